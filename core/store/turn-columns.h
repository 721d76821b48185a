/* The columns that session_state and thread_state have in common: one text reads the turn of both, and one writes it, so that a column of the
 * turn that only one of them had would fail at once. Inside of core/store only. */
#ifndef MG_STORE_TURN_COLUMNS_H
#define MG_STORE_TURN_COLUMNS_H

#include "domain/usage.h"
#include "store/session-state.h"

/* Read by mg_turn_from_row; the table's alias is st. */
#define MG_TURN_READ                                                                                      \
    "st.transcript_len, st.queued_inputs, st.open_actions, st.turn_epoch, st.turn_step, st.turn_trigger," \
    " st.turn_upto, st.turn_round, st.turn_attempt, st.turn_continues, coalesce(st.turn_request_id, '')," \
    " coalesce(mg_us(st.turn_due_at) - mg_us(clock_timestamp()), 0)"

/* Written from mg_turn_params: $1 to $20. The session's key and what else the row has come behind. */
#define MG_TURN_WRITE                                                                                                  \
    "status = $1, transcript_len = $2, queued_inputs = $3, open_actions = $4, turn_epoch = $5, turn_step = $6,"        \
    " turn_trigger = $7, turn_upto = $8, turn_round = $9, turn_attempt = $10, turn_continues = $11,"                   \
    " turn_request_id = nullif($12, ''),"                                                                              \
    " turn_due_at = CASE WHEN $6 = 'backoff' THEN clock_timestamp() + $13::bigint * interval '1 microsecond' END,"     \
    " input_tokens = input_tokens + $14, output_tokens = output_tokens + $15, cache_read = cache_read + $16,"          \
    " cache_5m = cache_5m + $17, cache_1h = cache_1h + $18, web_searches = web_searches + $19,"                        \
    " web_fetches = web_fetches + $20, updated_at = now(),"                                                            \
    " running_since = CASE WHEN $1 = 'running' THEN coalesce(running_since, now()) END,"                               \
    " active_us = active_us + CASE WHEN $1 <> 'running' AND running_since IS NOT NULL THEN mg_us(now()) -"             \
    " mg_us(running_since) ELSE 0 END,"                                                                                \
    " terminated_at = CASE WHEN $1 = 'terminated' THEN coalesce(terminated_at, now()) END,"                            \
    " step_since = CASE WHEN turn_step = $6 AND turn_request_id IS NOT DISTINCT FROM nullif($12, '') THEN step_since " \
    "ELSE now() END"

enum { MG_TURN_PARAMS = 20, MG_TURN_PARAMS_MAX = 32 };

/* at: of the first column. */
void mg_turn_from_row(const struct mg_res *r, int row, int at, struct mg_session_state *ret);
/* What clients see of both: eleven columns from `at` on, in the order active and whole time, the seven counts of mg_usage, cost and whether it is known. */
struct mg_usage mg_usage_from_row(const struct mg_res *r, int row, int at, int64_t *ret_duration_us);
/* A span of time that a clock which went back made negative is none. */
int64_t mg_res_span(const struct mg_res *r, int row, int column);
/* Fills p[0] to p[MG_TURN_PARAMS - 1]; status is that of the row. */
void mg_turn_params(struct mg_arena *a, const struct mg_session_state *s, enum mg_session_status status,
                    struct mg_sv p[MG_TURN_PARAMS_MAX]);

#endif
