/* Resources of this deployment at a service that no row names: what a database that lost its last commits, or a create whose
 * answer came after the delete, leaves behind. Never another deployment's: services are asked for our owner key alone, and
 * destroy compares the label.
 *
 * Concurrency: any thread with a connection of its own; no lock is held across a call. */
#ifndef MG_SANDBOX_ORPHANS_H
#define MG_SANDBOX_ORPHANS_H

#include "plugin/plugin.h"
#include "store/pg.h"

enum {
    MG_ORPHANS_MAX = 100000, /* resources that one listing looks at; the next one goes on when these are gone */
    MG_ORPHAN_LIST_MS = 120000,
    MG_ORPHAN_DESTROY_MS = 30000,
};

struct mg_orphan {
    struct mg_sv id, label; /* label "": the service does not tell, and it can only be destroyed by hand */
    int64_t created_us;     /* 0: not known */
};

/* Those of one backend, in the arena. MG_EINVAL: the backend cannot list what it owns. */
mg_rc mg_orphans_find(struct mg_plugin *p, struct mg_pg *pg, struct mg_arena *a, struct mg_sv owner,
                      struct mg_orphan **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Looks once more whether it has an owner by now (then MG_ECONFLICT), and destroys it. */
mg_rc mg_orphan_destroy(struct mg_plugin *p, struct mg_pg *pg, const struct mg_orphan *o,
                        struct mg_err *err) MG_MUSTCHECK;

#endif
