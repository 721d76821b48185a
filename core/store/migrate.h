/* Schema migrations: files NNNN_name.sql, applied in order, each in one transaction with its row in schema_migrations. */
#ifndef MG_STORE_MIGRATE_H
#define MG_STORE_MIGRATE_H

#include "store/pg.h"

enum {
    MG_MIGRATIONS_MAX = 9999,                 /* four digits */
    MG_MIGRATION_BYTES_MAX = 4 * 1024 * 1024, /* of one file */
    MG_MIGRATE_LOCK_MS = 10 * 60 * 1000,      /* how long a server waits for another one that migrates */
};

struct mg_migrate_report {
    int newest; /* version of the newest file */
    int was;    /* version of the database before */
    int now;    /* and after */
};

/* Brings the database to the newest version in dir. Any number of servers may do it at once: one works, the others wait.
 * MG_ECONFIG, naming both versions: a database newer than dir's newest file, or a file that was changed after it was applied. A
 * process that dies on the way leaves the version before. */
mg_rc mg_migrate(struct mg_pg *pg, const char *dir, struct mg_migrate_report *ret, struct mg_err *err) MG_MUSTCHECK;
/* The same checks without a change; now == was. For `mango doctor` and `mango migrate --check`. */
mg_rc mg_migrate_check(struct mg_pg *pg, const char *dir, struct mg_migrate_report *ret,
                       struct mg_err *err) MG_MUSTCHECK;

#endif
