/* PostgreSQL access: connections, transactions over libpq's pipeline mode, results.
 *
 * Concurrency: an mg_pg belongs to one thread at a time. Each request thread and each engine thread owns one.
 * Errors: MG_EUNAVAIL for everything that a later try may mend (connection lost, 57P01-03, 53300, 08xxx, 25006: the connection is
 * dropped and made anew at the next use, asking for a read-write target; 40001 and 40P01 too, the connection kept), MG_ETIMEOUT for statement_timeout, MG_ECONFLICT
 * for 23505, MG_EINTERNAL else. Texts never hold SQL or values. */
#ifndef MG_STORE_PG_H
#define MG_STORE_PG_H

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/sv.h"

enum {
    MG_PG_STATEMENT_MS =
        15000, /* statement_timeout: no request thread waits longer; half-open servers are found by it */
    MG_PG_PARAMS_MAX = 64,
};

struct mg_pg;  /* a connection (lazily opened) */
struct mg_res; /* a result: rows of text fields */

/* conninfo is copied. Opening happens at first use. */
struct mg_pg *mg_pg_new(const char *conninfo);
void mg_pg_free(struct mg_pg *pg);
mg_rc mg_pg_connect(struct mg_pg *pg, struct mg_err *err) MG_MUSTCHECK; /* at once; no-op when open */
int mg_pg_socket(struct mg_pg *pg);                                     /* -1 when closed */
int mg_pg_backend_pid(struct mg_pg *pg); /* 0 when closed; behind a pooler not the real one */
void mg_pg_close(struct mg_pg *pg);      /* the next use opens anew */
unsigned mg_pg_opened(
    const struct mg_pg *pg); /* connections made so far: state of a session (LISTEN) is gone when it grew */
/* Another statement_timeout than MG_PG_STATEMENT_MS for this connection (leases, probes); call before the first use. */
void mg_pg_set_timeout(struct mg_pg *pg, int statement_ms);
/* libpq's words about the last connect that failed, or "". For logs and `mango doctor`, never for a client: it names hosts. */
const char *mg_pg_diag(const struct mg_pg *pg);

/* Parameters are text, in order; ptr == NULL is SQL NULL. Text with a NUL byte is refused with MG_EINVAL. */
struct mg_param {
    struct mg_sv v;
};
static inline struct mg_sv mg_p_null(void)
{
    return (struct mg_sv){NULL, 0};
}
struct mg_sv mg_p_int(struct mg_arena *a, int64_t n);
struct mg_sv mg_p_bool(bool b);
struct mg_sv mg_p_time(struct mg_arena *a, int64_t wall_us); /* for a timestamptz parameter; INT64_MIN: NULL */
/* A PostgreSQL text[] literal of n items (NULL items allowed), for unnest($1::text[]). */
struct mg_sv mg_p_array(struct mg_arena *a, const struct mg_sv *items, size_t n);

/* A statement of ours: its text is the identity, prepared once per connection. Define as static const. With the name "" it is parsed
 * each time and leaves nothing in the session (and cannot be guarded by want_rows). */
struct mg_stmt {
    const char *name; /* unique, at most 60 bytes; shows in pg_stat_activity by application_name only */
    const char *sql;
};

/* One statement outside of a transaction (autocommit). ret may be NULL. Rows live until mg_res_free. */
mg_rc mg_pg_exec(struct mg_pg *pg, const struct mg_stmt *st, const struct mg_sv *params, int n, struct mg_res **ret,
                 struct mg_err *err) MG_MUSTCHECK;
/* Simple-protocol text of several statements; migrations and maintenance only. */
mg_rc mg_pg_script(struct mg_pg *pg, const char *sql, struct mg_err *err) MG_MUSTCHECK;

/* Transactions. BEGIN costs no round trip of its own: it goes out with the first statement. Queued statements go out with the next
 * query or the commit. A transaction that is not committed is rolled back by mg_txn_cleanup. */
struct mg_txn {
    struct mg_pg *pg;
    bool begun, failed, done;
    int queued;
};
static inline struct mg_txn mg_txn_on(struct mg_pg *pg)
{
    return (struct mg_txn){.pg = pg};
}
void mg_txn_cleanup(struct mg_txn *t); /* mg_auto(txn) struct mg_txn t = mg_txn_on(pg); */
/* Sends what is queued and this, waits, gives the rows of this. */
mg_rc mg_txn_query(struct mg_txn *t, const struct mg_stmt *st, const struct mg_sv *params, int n, struct mg_res **ret,
                   struct mg_err *err) MG_MUSTCHECK;
/* Queues a statement whose rows nobody needs; its failure shows at the next query or at the commit. want_rows: the exact number of
 * rows it must affect, or -1. A mismatch rolls back and is MG_EFENCED: that is how epochs are checked. The bytes are copied into libpq's output buffer.
 *
 * How one round trip is kept: with want_rows >= 0 the statement is prepared as WITH mg_guarded AS (<sql> RETURNING 1) SELECT CASE WHEN
 * (SELECT count(*) FROM mg_guarded) <> want THEN mango_fence() END; the function raises SQLSTATE MG001, which skips the rest of the
 * pipeline, COMMIT included. So <sql> is one plain INSERT, UPDATE, DELETE or SELECT; RETURNING is added unless its text has one; a
 * leading WITH may hold SELECTs only. */
mg_rc mg_txn_queue(struct mg_txn *t, const struct mg_stmt *st, const struct mg_sv *params, int n, int want_rows,
                   struct mg_err *err) MG_MUSTCHECK;
/* One round trip: queued statements and COMMIT. On a connection lost while the answer was due the outcome is unknown: MG_EUNAVAIL
 * with err->code "commit_unknown". */
mg_rc mg_txn_commit(struct mg_txn *t, struct mg_err *err) MG_MUSTCHECK;
/* The same, and the rows of the statement that was queued last, in the same round trip. */
mg_rc mg_txn_commit_last(struct mg_txn *t, struct mg_res **ret, struct mg_err *err) MG_MUSTCHECK;

/* A script inside of the transaction, for migrations. What is queued goes out before. */
mg_rc mg_txn_script(struct mg_txn *t, const char *sql, struct mg_err *err) MG_MUSTCHECK;

/* Waits for notifications of a connection that has run LISTEN: until one comes, wake_fd (-1: none) is readable, or the time is over;
 * all are MG_OK. fn is called for each. MG_EUNAVAIL: the connection is lost, LISTEN must be done again. */
typedef void mg_pg_notify_fn(void *ctx, struct mg_sv channel, struct mg_sv payload, int backend_pid);
mg_rc mg_pg_wait_notify(struct mg_pg *pg, int wake_fd, int timeout_ms, mg_pg_notify_fn *fn, void *ctx,
                        struct mg_err *err) MG_MUSTCHECK;

/* Refuses a pooler that does not keep a session's state between transactions (PgBouncer with pool_mode transaction or statement):
 * MG_ECONFIG with a line that names the mode and the setting. For the start of the server; uses two connections of its own. */
mg_rc mg_pg_check_pooler(const char *conninfo, struct mg_err *err) MG_MUSTCHECK;

int mg_res_rows(const struct mg_res *r);
struct mg_sv mg_res_sv(const struct mg_res *r, int row, int col); /* ptr NULL for SQL NULL; lives with r */
int64_t mg_res_int(const struct mg_res *r, int row, int col);     /* 0 for NULL */
bool mg_res_bool(const struct mg_res *r, int row, int col);
/* Columns selected as mg_us(x), microseconds since 1970; INT64_MIN for NULL. */
int64_t mg_res_time(const struct mg_res *r, int row, int col);
void mg_res_free(struct mg_res *r);
static inline void mg_res_cleanup(struct mg_res **r)
{
    mg_res_free(*r);
}

#endif
