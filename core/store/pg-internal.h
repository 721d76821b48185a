/* Inside of pg.c, pipe.c, txn.c, res.c and pooler.c only: the connection object and its pipeline.
 *
 * libpq runs in pipeline and non-blocking mode all the time. `ops` mirrors what is in flight, in order, so that each answer is
 * matched with what asked for it. A round trip is: send operations, pipe_sync, pipe_drain. */
#ifndef MG_STORE_PG_INTERNAL_H
#define MG_STORE_PG_INTERNAL_H

#include <libpq-fe.h>

#include "store/pg.h"

enum {
    MG_PG_WAIT_MARGIN_MS = 2000,      /* the client waits this much longer than the server's statement_timeout */
    MG_PG_CONNECT_S = 5,              /* per host */
    MG_PG_ROLLBACK_MS = 5000,         /* for a rollback nobody waits longer: the connection is dropped instead */
    MG_PG_IDLE_TXN_MS = 10000,        /* a stopped process must not hold row locks: the server ends its transaction */
    MG_PG_SCRIPT_MS = 30 * 60 * 1000, /* migrations; a dead peer is found by TCP keepalive and user timeout before */
    MG_PG_BACKOFF_MIN_MS = 100,
    MG_PG_BACKOFF_MAX_MS = 2000,
    MG_PG_SCRATCH_KEEP = 256 * 1024, /* bytes of parameter space kept between statements */
};

enum mg_pg_op_kind { MG_OP_PREPARE, MG_OP_EXEC, MG_OP_COMMIT, MG_OP_SYNC };

struct mg_pg_op {
    enum mg_pg_op_kind kind;
    int prep; /* index into preps, or -1 */
};

enum mg_prep_state { MG_PREP_NONE, MG_PREP_SENT, MG_PREP_READY };

/* A statement known to this connection. Found by the address of its text; the copy guards against a reused address. */
struct mg_prep {
    const char *sql;
    char *copy;
    int want; /* rows that the guard demands, or -1 */
    enum mg_prep_state state;
    char name[64];
};

struct mg_pg {
    char *conninfo;
    PGconn *conn;
    int timeout_ms;    /* statement_timeout of the connection */
    bool in_txn;       /* an mg_txn is open on it */
    bool lost;         /* the socket failed during the present drain */
    unsigned opened;   /* connects that succeeded */
    unsigned failures; /* connects that failed in a row */
    uint64_t retry_at_ns;
    struct mg_prep *preps;
    int n_preps, cap_preps;
    struct mg_pg_op *ops;
    int op_head, op_tail, cap_ops;
    char *scratch;
    size_t cap_scratch;
    char diag[256]; /* libpq's words about the last failed connect */
};

/* How a drain went. rc is 0 when all went well. */
struct mg_pg_fail {
    mg_rc rc;
    bool lost;             /* the connection is gone; whether the last statement took effect is not known from rc */
    bool fatal;            /* the server itself said that it ends the connection */
    bool committed;        /* a COMMIT was confirmed */
    enum mg_pg_op_kind at; /* the operation that failed */
    char sqlstate[6];
    char stmt[64];
};

/* Opens when closed, and finds out without a round trip that an idle connection has died. */
mg_rc mg_pg_ready(struct mg_pg *pg, struct mg_err *err) MG_MUSTCHECK;
int mg_pg_wait_ms(const struct mg_pg *pg); /* how long the client waits for the answers of one round trip */
mg_rc mg_pg_classify(const PGresult *r, bool *ret_drop);
mg_rc mg_pg_fail_err(struct mg_err *err, const struct mg_pg_fail *f);

/* want: rows that the statement must affect, or -1. On a failure of the connection it is dropped. */
mg_rc mg_pipe_stmt(struct mg_pg *pg, const struct mg_stmt *st, int want, enum mg_pg_op_kind kind,
                   const struct mg_sv *params, int n, struct mg_err *err) MG_MUSTCHECK;
/* Sends a sync and waits for everything. ret (may be NULL) gets the result of the last MG_OP_EXEC when f->rc is 0. The connection
 * was dropped when it is of no more use. */
void mg_pipe_run(struct mg_pg *pg, int wait_ms, PGresult **ret, struct mg_pg_fail *f);
void mg_pipe_forget(struct mg_pg *pg); /* of a closed connection: nothing is in flight, nothing is prepared */

/* Simple protocol; no pipeline may be in flight. */
void mg_pipe_script(struct mg_pg *pg, const char *sql, struct mg_pg_fail *f);

#endif
