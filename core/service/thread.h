/* Child threads: what clients may change of them. Reads go to store/thread-state.h. */
#ifndef MG_SERVICE_THREAD_H
#define MG_SERVICE_THREAD_H

#include "domain/principal.h"
#include "store/pg.h"

struct mg_engine;

/* Ends a child and frees its place. Twice is fine. MG_ECONFLICT: it runs; MG_EINVAL: the primary thread; MG_ENOTFOUND. */
mg_rc mg_threads_archive(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                         struct mg_sv session_id, struct mg_sv thread_id, struct mg_err *err) MG_MUSTCHECK;

#endif
