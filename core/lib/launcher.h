/* A launcher hosted by the server: `mango-worker supervise` as a child process for each environment that the settings name, so that the
 * code is the one that runs beside a server, and a launcher that crashes takes nothing along.
 *
 * Each child has an environment key of its own, made at the start and revoked at the end. A child that ends is started again. The end of the
 * server ends the children at once; the boxes go on, and the next start finds them.
 *
 * Concurrency: one thread for each child; open and close on one thread. */
#ifndef MG_LIB_LAUNCHER_H
#define MG_LIB_LAUNCHER_H

#include "base/err.h"
#include "conf/conf.h"
#include "store/pg.h"

enum {
    MG_LAUNCHER_ENVIRONMENTS_MAX = 64, /* a child each */
    MG_LAUNCHER_RETRY_MS = 1000,       /* behind a child that ended, doubling */
    MG_LAUNCHER_RETRY_MAX_MS = 60000,
    MG_LAUNCHER_STEADY_MS = 60000, /* a child that ran so long starts the pauses anew */
};

struct mg_launcher;

/* port: where the server listens. *ret NULL: the settings name no launcher. MG_ECONFIG: they name one that is not there, or an
 * environment that does not exist or is not self_hosted. */
mg_rc mg_launcher_open(const struct mg_conf *conf, const char *plugin_dir, struct mg_pg *pg, int port,
                       struct mg_launcher **ret, struct mg_err *err) MG_MUSTCHECK;
/* pg may be NULL: the keys stay until the next start. l NULL is fine. */
void mg_launcher_close(struct mg_launcher *l, struct mg_pg *pg);

#endif
