/* What the model has been told and has answered, byte for byte; and all that a model request is built from, in one round trip. */
#ifndef MG_STORE_TRANSCRIPT_H
#define MG_STORE_TRANSCRIPT_H

#include "domain/id.h"
#include "store/context-mark.h"
#include "store/pg.h"

struct mg_transcript_row {
    bool assistant;       /* else user */
    struct mg_sv content; /* raw JSON array of blocks */
    /* What the endpoint counted up to and including this entry, under the fixed part of this fingerprint; 0: not measured. */
    int64_t tokens, fixed;
};

/* Queues the insert behind the len entries that the thread ("": the primary one) has. */
mg_rc mg_transcript_append(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session,
                           const struct mg_id *thread, int64_t len, const struct mg_transcript_row *rows, int n,
                           struct mg_err *err) MG_MUSTCHECK;

/* All of it lives in *ret_res. */
struct mg_turn_input {
    struct mg_sv agent;             /* the thread's agent: the SessionAgent snapshot, or the child's */
    struct mg_sv request_id;        /* event id of the request that the step waits for */
    int64_t turn;                   /* the trigger's seq */
    int64_t len;                    /* entries of the whole transcript */
    bool grade;                     /* the request is the grader's */
    struct mg_sv stores;            /* the session's memory stores as clients see them, a JSON array; ptr NULL: none */
    struct mg_transcript_row *rows; /* the entries behind the newest summary: the last n_rows of the len */
    int n_rows;
    struct mg_context_mark *marks; /* in the order of their making; of the summaries the newest alone */
    int n_marks;
    struct mg_sv
        *triggers; /* bodies of the turn's unprocessed input events, in order: the trigger and its companions */
    struct mg_sv *trigger_types;
    int64_t *trigger_seqs;
    int n_triggers;
};
/* epoch: the claim; MG_EFENCED when it is no longer the thread's, or its step is not `model`. */
mg_rc mg_turn_input_load(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread,
                         int64_t epoch, struct mg_res **ret_res, struct mg_turn_input *ret,
                         struct mg_err *err) MG_MUSTCHECK;

/* What the primary thread's model is shown of its conversation: the newest summary, and the entries behind it. Without a claim. Views of *ret_res. */
mg_rc mg_transcript_shown(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, struct mg_res **ret_res,
                          struct mg_transcript_row **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

#endif
