/* What can be done about a request that the endpoint refuses for its content: it is too long, or one block of it is not taken. Found before the
 * failure's step begins, applied in it; the request is then made again at once. */
#ifndef MG_RUN_REMEDY_H
#define MG_RUN_REMEDY_H

#include "run/engine-internal.h"
#include "store/context-mark.h"

enum mg_remedy_kind {
    MG_REMEDY_NONE,
    MG_REMEDY_COMPACT, /* the context is made smaller, once in a turn */
    MG_REMEDY_LIMIT,   /* it cannot be made smaller, or was already: the turn ends, the session stays */
    MG_REMEDY_REPLACE, /* a note stands for the refused block from here on */
};

struct mg_remedy {
    enum mg_remedy_kind kind;
    struct mg_context_mark mark; /* valid unless NONE */
};

mg_rc mg_remedy_find(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_remedy *ret,
                     struct mg_err *err) MG_MUSTCHECK;
/* Everything but LIMIT's end of the turn, which is the caller's: for LIMIT only the mark is added. */
mg_rc mg_remedy_apply(struct mg_step *s, const struct mg_model_result *res, const struct mg_remedy *x,
                      struct mg_err *err) MG_MUSTCHECK;
/* "messages.N.content.M" in the endpoint's words. */
bool mg_remedy_place(struct mg_sv message, int64_t *ret_message, int64_t *ret_block, struct mg_sv *ret_reason);

#endif
