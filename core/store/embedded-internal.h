/* Inside of embedded.c and cluster.c only. */
#ifndef MG_STORE_EMBEDDED_INTERNAL_H
#define MG_STORE_EMBEDDED_INTERNAL_H

#include <sys/types.h>

#include "store/embedded.h"
#include "store/pg-install.h"

enum { MG_EMBEDDED_PORT = 5432 /* only part of the socket's name */ };

struct mg_embedded {
    char *root;   /* STATE/pg */
    char *data;   /* STATE/pg/data */
    char *socket; /* folder of the socket */
    char *log;    /* STATE/postgresql.log */
    char *conninfo;
    struct mg_pg_install install;
    char user[64]; /* run as; "" as ourselves */
    uid_t uid;
    gid_t gid;
    pid_t pid; /* 0: not known to run */
    bool child, adopted;
};

/* malloc memory; aborts when there is none. */
char *mg_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Connection string of a database behind the socket. malloc memory. */
char *mg_embedded_conninfo_of(const char *socket, const char *database);
/* Finds the user, the paths and the programs, and makes the cluster when there is none. */
mg_rc mg_cluster_prepare(struct mg_embedded *e, const struct mg_state_dir *dir, const char *bindir,
                         struct mg_err *err) MG_MUSTCHECK;

#endif
