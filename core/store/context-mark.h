/* Marks on a transcript: what a model is shown in place of parts of it. Insert-only, in the order of their making. */
#ifndef MG_STORE_CONTEXT_MARK_H
#define MG_STORE_CONTEXT_MARK_H

#include "domain/id.h"
#include "store/pg.h"

enum mg_mark_kind {
    MG_MARK_SUMMARY,  /* entries below a are told by content; texts of entries below b are excerpts */
    MG_MARK_REFUSED,  /* a request of a estimated tokens was too long for the endpoint */
    MG_MARK_REPLACED, /* block b of entry a was refused; content stands in its place */
};

struct mg_context_mark {
    enum mg_mark_kind kind;
    int64_t made_at; /* entries of the transcript at that time */
    int64_t turn;    /* trigger of the turn that made it */
    int64_t a, b;
    struct mg_sv content; /* SUMMARY: raw JSON array of blocks, empty when only excerpts were made; REPLACED: text */
};

/* Queues the insert; under the session's lock. */
mg_rc mg_context_mark_add(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                          const struct mg_context_mark *m, struct mg_err *err) MG_MUSTCHECK;
enum mg_mark_kind mg_mark_kind_of(struct mg_sv name);

#endif
