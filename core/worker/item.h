/* A work item as the poll gives it, or as the environment of `mango-worker run` names it. */
#ifndef MG_WORKER_ITEM_H
#define MG_WORKER_ITEM_H

#include "base/err.h"
#include "base/sv.h"

/* All strings are the item's own, "" where the server gave none. */
struct mg_work_item {
    char *id, *environment_id;
    char *type;           /* of data: "session"; a health check has another */
    char *session_id;     /* data.id */
    char *last_heartbeat; /* what another process's first heartbeat was answered; "" or NULL: there was none */
    char *secret;         /* a credential: wiped, never logged */
    char *json;           /* the item as it came, the secret included; NULL when it was named by ids */
};

void mg_work_item_done(struct mg_work_item *w);
static inline void mg_work_item_cleanup(struct mg_work_item *w)
{
    mg_work_item_done(w);
}
/* The body of a poll's answer. *ret_empty: it was null, or an object without an id as some servers answer; ret is empty then. */
mg_rc mg_work_item_parse(struct mg_sv body, struct mg_work_item *ret, bool *ret_empty, struct mg_err *err) MG_MUSTCHECK;
void mg_work_item_set(struct mg_work_item *ret, const char *id, const char *environment_id, const char *session_id,
                      const char *secret);
/* The token in the secret: malloc memory of the caller, to be wiped, or NULL when there is none in it. */
char *mg_work_item_token(const struct mg_work_item *w);

#endif
