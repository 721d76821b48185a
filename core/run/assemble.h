/* What a model request is made of: loaded in one round trip, shown through the marks, measured against the window. The same rows and options give
 * the same request, on any node and after any restart. */
#ifndef MG_RUN_ASSEMBLE_H
#define MG_RUN_ASSEMBLE_H

#include "run/compact.h"
#include "run/engine-internal.h"
#include "store/session-file.h"

enum { MG_LOST_MAX = 32 /* files that one step says are gone; the next one says the rest */ };

struct mg_assembly {
    struct mg_res *res; /* holds the rows */
    struct mg_turn_input in;
    struct mg_sv user;  /* content of the turn's input that is not in the transcript yet, or empty */
    struct mg_sv model; /* the agent's own: a budget counts at its price, whatever the server sends the requests to */
    int64_t fixed;      /* fingerprint of model, system and tools */
    struct mg_context context;
    struct mg_compact compact;
    bool advising;             /* an advisor's (advisor.h) */
    struct mg_request request; /* the turn's, or with compact.how ASK the one for the summary */
    /* attached.h */
    struct mg_session_file *files; /* NULL: no entry may name one */
    int n_files;
    struct mg_context_mark *lost;
    int n_lost;
    char **owned; /* contents with their files' bytes */
    int n_owned;
};

static inline void mg_assembly_cleanup(struct mg_assembly *x)
{
    for (int i = 0; i < x->n_owned; i++)
        free(x->owned[i]);
    mg_res_free(x->res);
}
/* MG_EFENCED when the turn's claim is no longer the run's or its step is not `model`. */
mg_rc mg_assemble(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *ret,
                  struct mg_err *err) MG_MUSTCHECK;

#endif
