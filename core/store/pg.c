/* Connections: how they are opened, when they are given up, and single statements on them. */
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "store/pg-internal.h"

struct mg_pg *mg_pg_new(const char *conninfo)
{
    struct mg_pg *pg = mg_xcalloc(1, sizeof(*pg));
    pg->conninfo = mg_xstrdup(conninfo);
    pg->timeout_ms = MG_PG_STATEMENT_MS;
    return pg;
}

void mg_pg_close(struct mg_pg *pg)
{
    if (pg->conn)
        PQfinish(pg->conn);
    pg->conn = NULL;
    mg_pipe_forget(pg);
}

void mg_pg_free(struct mg_pg *pg)
{
    if (!pg)
        return;
    mg_pg_close(pg);
    for (int i = 0; i < pg->n_preps; i++)
        free(pg->preps[i].copy);
    free(pg->preps);
    free(pg->ops);
    free(pg->scratch);
    mg_wipe(pg->conninfo, strlen(pg->conninfo)); /* may hold a password */
    free(pg->conninfo);
    free(pg);
}

unsigned mg_pg_opened(const struct mg_pg *pg)
{
    return pg->opened;
}

/* A margin over the server's own timeout, smaller where that is short: what hears nothing by then talks to a dead peer. */
int mg_pg_wait_ms(const struct mg_pg *pg)
{
    int margin = pg->timeout_ms / 2;
    return pg->timeout_ms + (margin < MG_PG_WAIT_MARGIN_MS ? margin : MG_PG_WAIT_MARGIN_MS);
}

int mg_pg_socket(struct mg_pg *pg)
{
    return pg->conn ? PQsocket(pg->conn) : -1;
}

int mg_pg_backend_pid(struct mg_pg *pg)
{
    return pg->conn ? PQbackendPID(pg->conn) : 0;
}

void mg_pg_set_timeout(struct mg_pg *pg, int statement_ms)
{
    pg->timeout_ms = statement_ms;
}

const char *mg_pg_diag(const struct mg_pg *pg)
{
    return pg->diag;
}

static void drop_notice(void *arg, const PGresult *r)
{
    (void)arg;
    (void)r;
}

/* Defaults stand before the caller's string and give way to it; what the store relies on stands behind it. */
static PGconn *open_connection(const char *conninfo)
{
    char connect_s[16];
    snprintf(connect_s, sizeof(connect_s), "%d", MG_PG_CONNECT_S);
    const char *keys[] = {"connect_timeout",
                          "keepalives_idle",
                          "keepalives_interval",
                          "keepalives_count",
                          "tcp_user_timeout",
                          "gssencmode",
                          "dbname",
                          "target_session_attrs",
                          "application_name",
                          "client_encoding",
                          NULL};
    const char *vals[] = {connect_s, "10",         "5",      "3",    "20000", "disable",
                          conninfo,  "read-write", "mangod", "UTF8", NULL};
    return PQconnectdbParams(keys, vals, 1);
}

static mg_rc setup_session(struct mg_pg *pg, struct mg_err *err)
{
    /* Not as startup options: PgBouncer refuses those. tcp_keepalives_* are the server's, for a client that vanished. */
    static const struct mg_stmt setup = {
        "", "SELECT set_config('statement_timeout', $1, false),"
            " set_config('idle_in_transaction_session_timeout', $2, false),"
            " set_config('timezone', 'UTC', false), set_config('datestyle', 'ISO, YMD', false),"
            " set_config('default_transaction_isolation', 'read committed', false),"
            " set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),"
            " set_config('tcp_keepalives_count', '3', false)"};
    char statement[16], idle[16];
    snprintf(statement, sizeof(statement), "%d", pg->timeout_ms);
    snprintf(idle, sizeof(idle), "%d", MG_PG_IDLE_TXN_MS);
    mg_rc rc =
        mg_pipe_stmt(pg, &setup, -1, MG_OP_EXEC, (const struct mg_sv[]){mg_sv_of(statement), mg_sv_of(idle)}, 2, err);
    if (rc < 0)
        return rc;
    struct mg_pg_fail f;
    mg_pipe_run(pg, mg_pg_wait_ms(pg), NULL, &f);
    return f.rc < 0 ? mg_pg_fail_err(err, &f) : MG_OK;
}

static mg_rc unreachable(struct mg_pg *pg, struct mg_err *err)
{
    mg_pg_close(pg);
    /* exponential with full jitter: many threads of many replicas wait for the same server */
    uint64_t most = (uint64_t)MG_PG_BACKOFF_MIN_MS << (pg->failures < 5 ? pg->failures : 5);
    if (most > MG_PG_BACKOFF_MAX_MS)
        most = MG_PG_BACKOFF_MAX_MS;
    pg->failures++;
    pg->retry_at_ns = mg_now_ns() + (MG_PG_BACKOFF_MIN_MS / 2 + mg_rng_below(most)) * 1000000;
    mg_err_set(err, MG_EUNAVAIL, "the database cannot be reached; try again");
    if (err)
        err->retry_after_s = 1 + pg->failures / 4;
    return MG_EUNAVAIL;
}

mg_rc mg_pg_connect(struct mg_pg *pg, struct mg_err *err)
{
    if (pg->conn)
        return MG_OK;
    if (pg->failures > 0 && mg_now_ns() < pg->retry_at_ns) {
        mg_err_set(err, MG_EUNAVAIL, "the database could not be reached a moment ago; try again");
        if (err)
            err->retry_after_s = 1;
        return MG_EUNAVAIL;
    }
    pg->conn = open_connection(pg->conninfo);
    if (!pg->conn || PQstatus(pg->conn) != CONNECTION_OK) {
        snprintf(pg->diag, sizeof(pg->diag), "%s", pg->conn ? PQerrorMessage(pg->conn) : "out of memory");
        size_t n = strlen(pg->diag);
        while (n > 0 && pg->diag[n - 1] == '\n')
            pg->diag[--n] = '\0';
        for (char *nl = strchr(pg->diag, '\n'); nl; nl = strchr(nl, '\n'))
            *nl = ' ';
        return unreachable(pg, err);
    }
    PQsetNoticeReceiver(pg->conn, drop_notice, NULL);
    if (PQsetnonblocking(pg->conn, 1) != 0 || !PQenterPipelineMode(pg->conn) || setup_session(pg, err) < 0) {
        snprintf(pg->diag, sizeof(pg->diag), "the connection was lost while it was set up");
        return unreachable(pg, err);
    }
    pg->failures = 0;
    pg->opened++;
    pg->diag[0] = '\0';
    return MG_OK;
}

/* A server that went away while the connection was idle has left an end of file or a last message on the socket. */
static bool idle_alive(struct mg_pg *pg)
{
    struct pollfd p = {.fd = PQsocket(pg->conn), .events = POLLIN};
    if (PQstatus(pg->conn) != CONNECTION_OK || p.fd < 0)
        return false;
    if (poll(&p, 1, 0) <= 0)
        return true;
    if (p.revents & ~POLLIN || !PQconsumeInput(pg->conn))
        return false;
    (void)PQisBusy(pg->conn); /* parses; a FATAL message alone is followed by the end of file at the next look */
    if (poll(&p, 1, 0) > 0 && !PQconsumeInput(pg->conn))
        return false;
    return PQstatus(pg->conn) == CONNECTION_OK;
}

mg_rc mg_pg_ready(struct mg_pg *pg, struct mg_err *err)
{
    if (pg->conn && !idle_alive(pg))
        mg_pg_close(pg);
    return mg_pg_connect(pg, err);
}

static mg_rc not_in_txn(const struct mg_pg *pg, struct mg_err *err)
{
    return pg->in_txn ? mg_err_set(err, MG_EINTERNAL, "a transaction is open on this connection") : MG_OK;
}

mg_rc mg_pg_exec(struct mg_pg *pg, const struct mg_stmt *st, const struct mg_sv *params, int n, struct mg_res **ret,
                 struct mg_err *err)
{
    mg_rc rc = not_in_txn(pg, err);
    if (rc == 0)
        rc = mg_pg_ready(pg, err);
    if (rc == 0)
        rc = mg_pipe_stmt(pg, st, -1, MG_OP_EXEC, params, n, err);
    if (rc < 0)
        return rc;

    PGresult *r = NULL;
    struct mg_pg_fail f;
    mg_pipe_run(pg, mg_pg_wait_ms(pg), &r, &f);
    if (f.rc < 0)
        return mg_pg_fail_err(err, &f);
    if (ret)
        *ret = (struct mg_res *)r;
    else
        PQclear(r);
    return MG_OK;
}

mg_rc mg_pg_script(struct mg_pg *pg, const char *sql, struct mg_err *err)
{
    mg_rc rc = not_in_txn(pg, err);
    if (rc == 0)
        rc = mg_pg_ready(pg, err);
    if (rc < 0)
        return rc;
    struct mg_pg_fail f;
    mg_pipe_script(pg, sql, &f);
    return f.rc < 0 ? mg_pg_fail_err(err, &f) : MG_OK;
}

mg_rc mg_pg_wait_notify(struct mg_pg *pg, int wake_fd, int timeout_ms, mg_pg_notify_fn *fn, void *ctx,
                        struct mg_err *err)
{
    if (!pg->conn)
        return mg_err_set(err, MG_EUNAVAIL, "the listening connection is closed");
    (void)PQisBusy(pg->conn); /* parses what earlier round trips read */
    PGnotify *note = PQnotifies(pg->conn);
    if (!note) {
        struct pollfd p[2] = {{.fd = PQsocket(pg->conn), .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
        int k = poll(p, wake_fd >= 0 ? 2 : 1, timeout_ms);
        if (k <= 0 || !p[0].revents)
            return MG_OK;
        if (!PQconsumeInput(pg->conn)) {
            mg_pg_close(pg);
            return mg_err_set(err, MG_EUNAVAIL, "the listening connection was lost");
        }
        (void)PQisBusy(pg->conn);
        note = PQnotifies(pg->conn);
    }
    for (; note; note = PQnotifies(pg->conn)) {
        fn(ctx, mg_sv_of(note->relname), mg_sv_of(note->extra), note->be_pid);
        PQfreemem(note);
    }
    return MG_OK;
}
