/* Where the programs of a PostgreSQL server are. Inside of core/store only. */
#ifndef MG_STORE_PG_INSTALL_H
#define MG_STORE_PG_INSTALL_H

#include <limits.h>

#include "base/err.h"

enum { MG_PG_MAJOR_MIN = 14 /* oldest server that the queries are tested with */ };

struct mg_pg_install {
    char bindir[PATH_MAX];
    int major;
};

/* want: the major version of an existing cluster, or 0 for the newest. bindir (may be NULL) names the only place to look at; else
 * MANGO_PG_BINDIR, the usual folders, `pg_config --bindir`. MG_ECONFIG says what was found and what to install. */
mg_rc mg_pg_install_find(const char *bindir, int want, struct mg_pg_install *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
