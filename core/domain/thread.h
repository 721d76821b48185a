/* The primary thread of a session. It has no row of its own: its id is the session's with another prefix. */
#ifndef MG_DOMAIN_THREAD_H
#define MG_DOMAIN_THREAD_H

#include <stdio.h>

#include "domain/id.h"

/* "sesn_X" gives "sthr_X". */
static inline struct mg_id mg_thread_primary(struct mg_sv session_id)
{
    struct mg_id id = {.s = "sthr_"};
    size_t cut = mg_sv_find(session_id, '_');
    struct mg_sv tail = mg_sv_from(session_id, cut + 1);
    snprintf(id.s, sizeof(id.s), "sthr_%.*s", (int)(tail.len < MG_ID_MAX - 6 ? tail.len : MG_ID_MAX - 6), tail.ptr);
    return id;
}

#endif
