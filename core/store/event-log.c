#include "store/event-log.h"

#include <limits.h>

#include "base/clock.h"
#include "domain/check.h"

static const struct mg_stmt SQL_INSERT = {
    "events_insert",
    "INSERT INTO events (session_id, seq, id, type, body, processed_at)"
    " SELECT $1, $2::bigint + o, i, ty, b, CASE WHEN p THEN $3::timestamptz END"
    " FROM unnest($4::text[], $5::text[], $6::text[], $7::bool[]) WITH ORDINALITY AS u(i, ty, b, p, o)",
};
/* The same with events of child threads among them. */
static const struct mg_stmt SQL_INSERT_THREADS = {
    "events_insert_threads",
    "INSERT INTO events (session_id, seq, id, type, body, processed_at, thread_id)"
    " SELECT $1, $2::bigint + o, i, ty, b, CASE WHEN p THEN $3::timestamptz END, nullif(th, '')"
    " FROM unnest($4::text[], $5::text[], $6::text[], $7::bool[], $8::text[]) WITH ORDINALITY AS u(i, ty, b, p, th, "
    "o)",
};
/* The most frequent shape, one row, without the array's quoting. */
static const struct mg_stmt SQL_INSERT_ONE = {
    "event_insert",
    "INSERT INTO events (session_id, seq, id, type, body, processed_at)"
    " VALUES ($1, $2::bigint + 1, $4, $5, $6, CASE WHEN $7::bool THEN $3::timestamptz END)",
};

static mg_rc insert_one(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t last_seq,
                        const struct mg_event_row *row, int64_t processed_us, struct mg_err *err)
{
    const struct mg_sv p[] = {
        mg_id_sv(session),
        mg_p_int(a, last_seq),
        mg_p_time(a, processed_us),
        mg_id_sv(&row->id),
        mg_sv_of(mg_event_type_name(row->type)),
        row->body,
        mg_p_bool(row->processed),
    };
    return mg_txn_queue(t, &SQL_INSERT_ONE, p, 7, -1, err);
}

mg_rc mg_events_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t last_seq,
                       const struct mg_event_row *rows, int n, int64_t processed_us, struct mg_err *err)
{
    if (n == 0)
        return MG_OK;
    if (n == 1 && !rows->thread.s[0])
        return insert_one(a, t, session, last_seq, rows, processed_us, err);
    struct mg_sv *cols = mg_arena_alloc(a, sizeof(*cols) * 5 * (size_t)n);
    struct mg_sv *ids = cols, *types = cols + n, *bodies = cols + 2 * n, *done = cols + 3 * n, *threads = cols + 4 * n;
    bool children = false;
    for (int i = 0; i < n; i++) {
        ids[i] = mg_id_sv(&rows[i].id);
        types[i] = mg_sv_of(mg_event_type_name(rows[i].type));
        bodies[i] = rows[i].body;
        done[i] = mg_p_bool(rows[i].processed);
        threads[i] = mg_id_sv(&rows[i].thread);
        children |= threads[i].len > 0;
    }
    size_t count = (size_t)n;
    const struct mg_sv p[] = {
        mg_id_sv(session),           mg_p_int(a, last_seq),
        mg_p_time(a, processed_us),  mg_p_array(a, ids, count),
        mg_p_array(a, types, count), mg_p_array(a, bodies, count),
        mg_p_array(a, done, count),  children ? mg_p_array(a, threads, count) : mg_p_null(),
    };
    return mg_txn_queue(t, children ? &SQL_INSERT_THREADS : &SQL_INSERT, p, children ? 8 : 7, -1, err);
}

static const struct mg_stmt SQL_MARK = {
    "events_mark",
    "UPDATE events SET processed_at = $2::timestamptz WHERE session_id = $1 AND seq = ANY ($3::bigint[]) AND "
    "processed_at IS NULL",
};
/* The usual case; with the array the planner may walk the session's whole log. */
static const struct mg_stmt SQL_MARK_ONE = {
    "event_mark",
    "UPDATE events SET processed_at = $2::timestamptz WHERE session_id = $1 AND seq = $3::bigint AND processed_at IS "
    "NULL",
};

mg_rc mg_events_mark(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const int64_t *seqs, int n,
                     int64_t processed_us, struct mg_err *err)
{
    if (n == 0)
        return MG_OK;
    if (n == 1) {
        const struct mg_sv one[] = {mg_id_sv(session), mg_p_time(a, processed_us), mg_p_int(a, seqs[0])};
        return mg_txn_queue(t, &SQL_MARK_ONE, one, 3, -1, err);
    }
    struct mg_sv *texts = mg_arena_alloc(a, sizeof(*texts) * (size_t)n);
    for (int i = 0; i < n; i++)
        texts[i] = mg_p_int(a, seqs[i]);
    const struct mg_sv p[] = {mg_id_sv(session), mg_p_time(a, processed_us), mg_p_array(a, texts, (size_t)n)};
    return mg_txn_queue(t, &SQL_MARK, p, 3, -1, err);
}

static const struct mg_stmt SQL_MARK_ALL = {
    "events_mark_all",
    "UPDATE events SET processed_at = $2::timestamptz WHERE session_id = $1 AND seq <= $3::bigint AND processed_at IS "
    "NULL AND coalesce(thread_id, '') = $4",
};

mg_rc mg_events_mark_all(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                         int64_t upto, int64_t processed_us, struct mg_err *err)
{
    const struct mg_sv p[] = {mg_id_sv(session), mg_p_time(a, processed_us), mg_p_int(a, upto), mg_id_sv(thread)};
    return mg_txn_queue(t, &SQL_MARK_ALL, p, 4, -1, err);
}

mg_rc mg_event_render(struct mg_buf *out, struct mg_sv body, int64_t processed_us)
{
    char time[MG_TIME_LEN];
    (void)mg_buf_append(out, body.ptr, body.len - 1);
    if (processed_us == INT64_MIN)
        return mg_buf_str(out, ",\"processed_at\":null}");
    mg_time_format(processed_us, time);
    return mg_buf_printf(out, ",\"processed_at\":\"%s\"}", time);
}

static struct mg_event_seen event_from_row(const struct mg_res *r, int i)
{
    return (struct mg_event_seen){
        .seq = mg_res_int(r, i, 0),
        .id = mg_res_sv(r, i, 1),
        .type = mg_res_sv(r, i, 2),
        .thread_id = mg_res_sv(r, i, 3),
        .body = mg_res_sv(r, i, 4),
        .processed_us = mg_res_time(r, i, 5),
    };
}

static const struct mg_stmt SQL_AFTER = {
    "events_after",
    "SELECT seq, id, type, coalesce(thread_id, ''), body, mg_us(processed_at) FROM ("
    " SELECT *, sum(length(body)) OVER (ORDER BY seq) - length(body) AS before FROM ("
    "  SELECT * FROM events WHERE session_id = $1 AND seq > $2::bigint ORDER BY seq LIMIT $3::int) page) sized"
    " WHERE before < $4::bigint ORDER BY seq",
};

mg_rc mg_events_after(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, int64_t after, int limit,
                      int64_t max_bytes, struct mg_res **ret_res, struct mg_event_seen **ret, int *ret_n,
                      struct mg_err *err)
{
    const struct mg_sv p[] = {session, mg_p_int(a, after), mg_p_int(a, limit), mg_p_int(a, max_bytes)};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_AFTER, p, 4, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    int64_t head;
    if (n == 0) {
        rc = mg_session_last_seq(pg, session, MG_SV(""), &head, err);
        if (rc < 0)
            return rc;
    }
    struct mg_event_seen *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(n ? n : 1));
    for (int i = 0; i < n; i++)
        rows[i] = event_from_row(r, i);
    *ret_res = mg_steal(&r);
    *ret = rows;
    *ret_n = n;
    return MG_OK;
}

static const struct mg_stmt SQL_SEQ_OF = {"event_seq_of", "SELECT seq FROM events WHERE session_id = $1 AND id = $2"};

mg_rc mg_event_seq_of(struct mg_pg *pg, struct mg_sv session, struct mg_sv event_id, int64_t *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_SEQ_OF, (const struct mg_sv[]){session, event_id}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "this session has no event '%.*s'", MG_SV_ARG(mg_shown_id(event_id)));
    *ret = mg_res_int(r, 0, 0);
    return MG_OK;
}

static const struct mg_stmt SQL_LAST = {
    "session_last_seq",
    "SELECT st.last_seq FROM session_state st JOIN sessions s ON s.id = st.session_id"
    " WHERE st.session_id = $1 AND ($2 = '' OR s.workspace_id = $2) AND st.deleting_at IS NULL",
};

mg_rc mg_session_last_seq(struct mg_pg *pg, struct mg_sv session, struct mg_sv workspace, int64_t *ret,
                          struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc =
        mg_pg_exec(pg, &SQL_LAST, (const struct mg_sv[]){session, workspace.len ? workspace : MG_SV("")}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' does not exist", MG_SV_ARG(mg_shown_id(session)));
    *ret = mg_res_int(r, 0, 0);
    return MG_OK;
}

/* By thread: the primary one, a child. A child's system.message always belongs to its turn: it follows a result. */
static const struct mg_stmt SQL_INPUTS[2] = {
    {"events_inputs",
     "SELECT e.seq, e.type, e.body FROM events e WHERE e.session_id = $1 AND e.thread_id IS NULL AND e.seq >= "
     "$2::bigint AND e.processed_at IS NULL"
     " AND (e.seq = $2::bigint OR (e.seq <= $3::bigint AND e.type = 'agent.thread_message_received') OR (e.type = "
     "'system.message' AND (e.seq = $2::bigint + 1 OR EXISTS (SELECT FROM events b WHERE b.session_id = $1"
     " AND b.seq = e.seq - 1 AND b.type IN ('user.tool_result', 'user.custom_tool_result'))))) ORDER BY 1"},
    {"events_inputs_child",
     "SELECT e.seq, e.type, e.body FROM events e WHERE e.session_id = $1 AND e.thread_id = $4 AND e.seq >= $2::bigint"
     " AND e.processed_at IS NULL AND (e.seq = $2::bigint OR (e.seq <= $3::bigint AND e.type = "
     "'agent.thread_message_received') OR e.type = 'system.message') ORDER BY 1"},
};
#define WAITING(thread)                                                                                               \
    "SELECT seq, type, body FROM events WHERE session_id = $1 AND " thread " AND seq >= $2::bigint AND processed_at " \
    "IS NULL AND type IN ('user.message', 'system.message', 'agent.thread_message_received') AND $3::bigint >= 0"     \
    " ORDER BY seq"
static const struct mg_stmt SQL_WAITING[2] = {
    {"events_waiting", WAITING("thread_id IS NULL")},
    {"events_waiting_child", WAITING("thread_id = $4")},
};
#define QUEUE(thread)                                                                                         \
    "SELECT seq, type, NULL::text FROM events WHERE session_id = $1 AND " thread " AND seq > $2::bigint AND " \
    "processed_at IS NULL AND type IN ('user.message', 'agent.thread_message_received') ORDER BY seq LIMIT $3::int"
static const struct mg_stmt SQL_QUEUE[2] = {
    {"events_queue", QUEUE("thread_id IS NULL")},
    {"events_queue_child", QUEUE("thread_id = $4")},
};

static mg_rc inputs(struct mg_arena *a, struct mg_txn *t, const struct mg_stmt sql[2], const struct mg_input_place *at,
                    int64_t third, struct mg_res **ret_res, struct mg_input_row **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    bool child = at->thread->s[0] != '\0';
    const struct mg_sv p[] = {mg_id_sv(at->session), mg_p_int(a, at->trigger), mg_p_int(a, third),
                              mg_id_sv(at->thread)};
    mg_rc rc = mg_txn_query(t, &sql[child], p, child ? 4 : 3, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n ? *ret_n : 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] =
            (struct mg_input_row){.seq = mg_res_int(r, i, 0), .type = mg_res_sv(r, i, 1), .body = mg_res_sv(r, i, 2)};
    *ret_res = mg_steal(&r);
    return MG_OK;
}

mg_rc mg_events_inputs(struct mg_arena *a, struct mg_txn *t, const struct mg_input_place *at, struct mg_res **ret_res,
                       struct mg_input_row **ret, int *ret_n, struct mg_err *err)
{
    return inputs(a, t, SQL_INPUTS, at, at->upto, ret_res, ret, ret_n, err);
}

mg_rc mg_events_waiting(struct mg_arena *a, struct mg_txn *t, const struct mg_input_place *at, struct mg_res **ret_res,
                        struct mg_input_row **ret, int *ret_n, struct mg_err *err)
{
    return inputs(a, t, SQL_WAITING, at, 0, ret_res, ret, ret_n, err);
}

mg_rc mg_events_queue(struct mg_arena *a, struct mg_txn *t, const struct mg_input_place *at, int limit,
                      struct mg_res **ret_res, struct mg_input_row **ret, int *ret_n, struct mg_err *err)
{
    return inputs(a, t, SQL_QUEUE, at, limit, ret_res, ret, ret_n, err);
}

static const struct mg_stmt SQL_LAST_ANSWER = {
    "events_last_answer",
    "SELECT body FROM events WHERE session_id = $1 AND thread_id = $2 AND seq > $3::bigint AND type = 'agent.message'"
    " ORDER BY seq DESC LIMIT 1",
};

mg_rc mg_events_last_answer(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session,
                            const struct mg_id *thread, int64_t behind, struct mg_sv *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_id_sv(session), mg_id_sv(thread), mg_p_int(a, behind)};
    mg_rc rc = mg_txn_query(t, &SQL_LAST_ANSWER, p, 3, &r, err);
    *ret = rc == MG_OK && mg_res_rows(r) ? mg_arena_sv(a, mg_res_sv(r, 0, 0)) : MG_SV("");
    return rc;
}

static const struct mg_stmt SQL_NEXT_MESSAGE = {
    "events_next_message",
    "SELECT seq FROM events WHERE session_id = $1 AND seq > $2::bigint AND type = 'user.message' AND processed_at IS "
    "NULL ORDER BY seq LIMIT 1",
};

mg_rc mg_events_next_message(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t behind,
                             int64_t *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc =
        mg_txn_query(t, &SQL_NEXT_MESSAGE, (const struct mg_sv[]){mg_id_sv(session), mg_p_int(a, behind)}, 2, &r, err);
    if (rc < 0)
        return rc;
    *ret = mg_res_rows(r) ? mg_res_int(r, 0, 0) : 0;
    return MG_OK;
}

static const struct mg_stmt SQL_AT = {
    "event_at",
    "SELECT seq, id, type, coalesce(thread_id, ''), body, mg_us(processed_at) FROM events WHERE session_id = $1 AND "
    "seq >= $2::bigint AND thread_id IS NULL ORDER BY seq LIMIT 1",
};

mg_rc mg_event_at(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t seq,
                  struct mg_res **ret_res, struct mg_event_seen *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_AT, (const struct mg_sv[]){mg_id_sv(session), mg_p_int(a, seq)}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "this session has no event number %lld", (long long)seq);
    *ret = event_from_row(r, 0);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_GET = {
    "event_get",
    "SELECT seq, id, type, coalesce(thread_id, ''), body, mg_us(processed_at) FROM events WHERE session_id = $1 AND id "
    "= $2",
};

mg_rc mg_event_get(struct mg_txn *t, const struct mg_id *session, const struct mg_id *event, struct mg_res **ret_res,
                   struct mg_event_seen *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_GET, (const struct mg_sv[]){mg_id_sv(session), mg_id_sv(event)}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "this session has no event '%s'", event->s);
    *ret = event_from_row(r, 0);
    *ret_res = mg_steal(&r);
    return MG_OK;
}
