/* The paginated event history of a session. */
#ifndef MG_WORKER_HISTORY_H
#define MG_WORKER_HISTORY_H

#include "worker/event.h"
#include "worker/remote.h"

enum {
    MG_HISTORY_LIMIT = 1000,                /* events of one page */
    MG_HISTORY_PAGE_MAX = 64 * 1024 * 1024, /* bytes of one page; where more come, smaller pages are asked for */
    MG_HISTORY_PAGES_MAX = 100000,          /* pages of one reading: a server that never ends is left */
};

/* Calls fn for every event, oldest first. Events live for the call. */
mg_rc mg_history_read(const struct mg_remote *r, const char *session_id, struct mg_cancel *cancel,
                      void (*fn)(void *ctx, const struct mg_event *e), void *ctx, struct mg_err *err) MG_MUSTCHECK;

#endif
