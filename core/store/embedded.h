/* The private PostgreSQL of a server without MANGO_DATABASE_URL: a cluster in STATE/pg on a unix socket, no TCP.
 *
 * The postmaster is a process of its own: it outlives a killed mangod, and the next one adopts it. Started by root, it runs as user
 * mango, or postgres. Callers hold the folder's lock (mg_state_dir_open). */
#ifndef MG_STORE_EMBEDDED_H
#define MG_STORE_EMBEDDED_H

#include "store/state-dir.h"

enum { MG_EMBEDDED_READY_MS = 120000 /* start, with crash recovery */, MG_EMBEDDED_STOP_MS = 60000 };

struct mg_embedded;

/* Makes the cluster at the first start, starts or adopts its postmaster, waits until it takes connections, makes database mango.
 * bindir: folder of initdb and postgres, or NULL: MANGO_PG_BINDIR, `pg_config --bindir`, /usr/lib/postgresql/N/bin. Errors are
 * MG_ECONFIG (what to install or mend) or MG_EUNAVAIL (it did not come up; the text quotes its log's last line). */
mg_rc mg_embedded_start(const struct mg_state_dir *dir, const char *bindir, struct mg_embedded **ret,
                        struct mg_err *err) MG_MUSTCHECK;
const char *mg_embedded_conninfo(const struct mg_embedded *e);
long mg_embedded_pid(const struct mg_embedded *e);
bool mg_embedded_adopted(const struct mg_embedded *e); /* it ran already */
/* Restarts the postmaster when it is not running (crashed, killed by the OOM killer); no-op otherwise. Any one thread at a time. */
mg_rc mg_embedded_revive(struct mg_embedded *e, struct mg_err *err) MG_MUSTCHECK;
/* Fast shutdown, waits. */
mg_rc mg_embedded_stop(struct mg_embedded *e, struct mg_err *err) MG_MUSTCHECK;
/* For programs beside the server (the command line): the connection string of the database that runs in this state folder. malloc
 * memory. MG_ENOTFOUND, MG_EUNAVAIL: none runs. Takes no lock. */
mg_rc mg_embedded_locate(const char *state_path, char **ret_conninfo, struct mg_err *err) MG_MUSTCHECK;
void mg_embedded_free(struct mg_embedded *e); /* leaves the postmaster as it is */

#endif
