/* One round trip over libpq's pipeline mode: what is sent, what came back, and what a failure means. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/pg-internal.h"

static const struct {
    const char *prefix; /* of the SQLSTATE */
    mg_rc rc;
    bool drop; /* the connection must not be used again */
} sqlstates[] = {
    {"MG001", MG_EFENCED, false},   /* raised by mango_fence() */
    {"23505", MG_ECONFLICT, false}, /* unique_violation */
    {"57014", MG_ETIMEOUT, false},  /* query_canceled: statement_timeout */
    {"40001", MG_EUNAVAIL, false},  /* serialization_failure */
    {"40P01", MG_EUNAVAIL, false},  /* deadlock_detected */
    {"55P03", MG_EUNAVAIL, false},  /* lock_not_available */
    {"25006", MG_EUNAVAIL, true},   /* read_only_sql_transaction: a demoted primary */
    {"25P03", MG_EUNAVAIL, true},   /* idle_in_transaction_session_timeout */
    {"26000", MG_EUNAVAIL, true},   /* a prepared statement vanished: somebody reset the session */
    {"22021", MG_EINVAL, false},    /* character_not_in_repertoire: text that is not UTF-8 */
    {"53300", MG_EUNAVAIL, true},   /* too_many_connections */
    {"57P", MG_EUNAVAIL, true},     /* shutdown, crash, starting up, database dropped */
    {"08", MG_EUNAVAIL, true},      /* connection exceptions; poolers use them too */
    {"53", MG_EUNAVAIL, false},     /* disk full, out of memory */
    {"58", MG_EUNAVAIL, false},     /* I/O errors of the server's host */
};

mg_rc mg_pg_classify(const PGresult *r, bool *ret_drop)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *severity = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *where = PQresultErrorField(r, PG_DIAG_SOURCE_FUNCTION);

    *ret_drop = true;
    if (!state) /* libpq's own words: the connection failed */
        return MG_EUNAVAIL;
    if (severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
        return MG_EUNAVAIL;
    /* "cached plan must not change result type": a migration ran; a new connection prepares anew */
    if (strcmp(state, "0A000") == 0 && where && strcmp(where, "RevalidateCachedQuery") == 0)
        return MG_EUNAVAIL;
    for (size_t i = 0; i < sizeof(sqlstates) / sizeof(sqlstates[0]); i++) {
        if (strncmp(state, sqlstates[i].prefix, strlen(sqlstates[i].prefix)) == 0) {
            *ret_drop = sqlstates[i].drop;
            return sqlstates[i].rc;
        }
    }
    *ret_drop = false;
    return MG_EINTERNAL;
}

mg_rc mg_pg_fail_err(struct mg_err *err, const struct mg_pg_fail *f)
{
    switch (f->rc) {
    case MG_EFENCED:
        return mg_err_set(err, f->rc, "another writer has taken over (statement %s)", f->stmt);
    case MG_ECONFLICT:
        return mg_err_set(err, f->rc, "a row with this key exists already (statement %s)", f->stmt);
    case MG_ETIMEOUT:
        return mg_err_set(err, f->rc, "the database did not answer in time (statement %s)", f->stmt);
    case MG_EINVAL:
        return mg_err_set(err, f->rc, "text that is not valid UTF-8 cannot be stored (statement %s)", f->stmt);
    case MG_EUNAVAIL:
        mg_err_set(err, f->rc, "the database is not available; try again (%s)",
                   f->sqlstate[0] ? f->sqlstate : "connection lost");
        if (err)
            err->retry_after_s = 1;
        return f->rc;
    default:
        return mg_err_set(err, f->rc, "the database refused statement %s (SQLSTATE %s)", f->stmt, f->sqlstate);
    }
}

static void op_push(struct mg_pg *pg, enum mg_pg_op_kind kind, int prep)
{
    if (pg->op_tail == pg->cap_ops) {
        pg->cap_ops = pg->cap_ops ? pg->cap_ops * 2 : 32;
        pg->ops = mg_xrealloc(pg->ops, (size_t)pg->cap_ops * sizeof(*pg->ops));
    }
    pg->ops[pg->op_tail++] = (struct mg_pg_op){.kind = kind, .prep = prep};
}

void mg_pipe_forget(struct mg_pg *pg)
{
    for (int i = 0; i < pg->n_preps; i++)
        pg->preps[i].state = MG_PREP_NONE;
    pg->op_head = pg->op_tail = 0;
}

static int prep_find(struct mg_pg *pg, const struct mg_stmt *st, int want)
{
    for (int i = 0; i < pg->n_preps; i++) {
        struct mg_prep *p = &pg->preps[i];
        if (p->sql == st->sql && p->want == want && strcmp(p->copy, st->sql) == 0)
            return i;
    }
    if (pg->n_preps == pg->cap_preps) {
        pg->cap_preps = pg->cap_preps ? pg->cap_preps * 2 : 32;
        pg->preps = mg_xrealloc(pg->preps, (size_t)pg->cap_preps * sizeof(*pg->preps));
    }
    struct mg_prep *p = &pg->preps[pg->n_preps];
    *p = (struct mg_prep){.sql = st->sql, .copy = mg_xstrdup(st->sql), .want = want};
    snprintf(p->name, sizeof(p->name), "%.40s_%d", st->name, pg->n_preps);
    return pg->n_preps++;
}

/* The guard that keeps a fenced commit at one round trip: the statement becomes a CTE, and a wrong number of rows raises MG001 on
 * the server, which skips everything behind it in the pipeline, COMMIT included. */
static char *guarded(const char *sql, int want)
{
    static const char head[] = "WITH mg_guarded AS (";
    static const char tail[] = ") SELECT CASE WHEN (SELECT count(*) FROM mg_guarded) <> %d THEN mango_fence() END";
    bool rows = strcasestr(sql, "RETURNING") || strncasecmp(sql, "SELECT", 6) == 0;
    size_t cap = sizeof(head) + sizeof(tail) + strlen(sql) + 32;
    char *text = mg_xmalloc(cap);
    int n = snprintf(text, cap, "%s%s%s", head, sql, rows ? "" : " RETURNING 1");
    snprintf(text + n, cap - (size_t)n, tail, want);
    return text;
}

/* Parameters in libpq's form: C strings in the scratch space of the connection. */
static mg_rc bind_params(struct mg_pg *pg, const struct mg_stmt *st, const struct mg_sv *params, int n,
                         const char *values[MG_PG_PARAMS_MAX], struct mg_err *err)
{
    if (n < 0 || n > MG_PG_PARAMS_MAX)
        return mg_err_set(err, MG_EINTERNAL, "statement %s has %d parameters, more than %d", st->name, n,
                          MG_PG_PARAMS_MAX);
    size_t need = 1;
    for (int i = 0; i < n; i++)
        need += params[i].ptr ? params[i].len + 1 : 0;
    if (need > pg->cap_scratch || (pg->cap_scratch > MG_PG_SCRATCH_KEEP && need <= MG_PG_SCRATCH_KEEP)) {
        size_t cap = need < 4096 ? 4096 : need;
        char *p = realloc(pg->scratch, cap);
        if (!p)
            return mg_err_set(err, MG_ETOOBIG, "no memory for the parameters of statement %s", st->name);
        pg->scratch = p;
        pg->cap_scratch = cap;
    }
    char *at = pg->scratch;
    for (int i = 0; i < n; i++) {
        if (!params[i].ptr) {
            values[i] = NULL;
            continue;
        }
        if (memchr(params[i].ptr, '\0', params[i].len))
            return mg_err_set(err, MG_EINVAL, "text with a NUL character cannot be stored; remove it (statement %s)",
                              st->name);
        memcpy(at, params[i].ptr, params[i].len);
        at[params[i].len] = '\0';
        values[i] = at;
        at += params[i].len + 1;
    }
    return MG_OK;
}

static mg_rc send_failed(struct mg_pg *pg, const struct mg_stmt *st, struct mg_err *err)
{
    struct mg_pg_fail f = {.rc = MG_EUNAVAIL, .lost = true};
    snprintf(f.stmt, sizeof(f.stmt), "%.40s", st->name);
    mg_pg_close(pg);
    return mg_pg_fail_err(err, &f);
}

mg_rc mg_pipe_stmt(struct mg_pg *pg, const struct mg_stmt *st, int want, enum mg_pg_op_kind kind,
                   const struct mg_sv *params, int n, struct mg_err *err)
{
    const char *values[MG_PG_PARAMS_MAX];
    mg_rc rc = bind_params(pg, st, params, n, values, err);
    if (rc < 0)
        return rc;

    if (!*st->name) {
        if (!PQsendQueryParams(pg->conn, st->sql, n, NULL, values, NULL, NULL, 0))
            return send_failed(pg, st, err);
        op_push(pg, kind, -1);
        return MG_OK;
    }
    int i = prep_find(pg, st, want);
    if (pg->preps[i].state == MG_PREP_NONE) {
        mg_autofree char *text = want >= 0 ? guarded(st->sql, want) : NULL;
        if (!PQsendPrepare(pg->conn, pg->preps[i].name, text ? text : st->sql, 0, NULL))
            return send_failed(pg, st, err);
        pg->preps[i].state = MG_PREP_SENT;
        op_push(pg, MG_OP_PREPARE, i);
    }
    if (!PQsendQueryPrepared(pg->conn, pg->preps[i].name, n, values, NULL, NULL, 0))
        return send_failed(pg, st, err);
    op_push(pg, kind, i);
    return MG_OK;
}

/* True when PQgetResult will not block: there is a result, or the connection is lost (pg->lost). False: the time is over. */
static bool wait_result(struct mg_pg *pg, uint64_t deadline_ns)
{
    while (!pg->lost) {
        int unsent = PQflush(pg->conn);
        if (!PQisBusy(pg->conn))
            return true;
        if (PQsocket(pg->conn) < 0) {
            pg->lost = true;
            break;
        }
        uint64_t now = mg_now_ns();
        if (now >= deadline_ns)
            return false;
        struct pollfd p = {.fd = PQsocket(pg->conn), .events = (short)(POLLIN | (unsent > 0 ? POLLOUT : 0))};
        int k = poll(&p, 1, (int)((deadline_ns - now) / 1000000 + 1));
        if (k < 0 && errno != EINTR)
            pg->lost = true;
        else if (k > 0 && (p.revents & (POLLIN | POLLERR | POLLHUP)) && !PQconsumeInput(pg->conn))
            pg->lost = true;
    }
    return true;
}

static void note_failure(struct mg_pg *pg, const PGresult *r, struct mg_pg_fail *f)
{
    bool drop = false;
    mg_rc rc = mg_pg_classify(r, &drop);
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    if (drop)
        pg->lost = true;
    if (f->rc < 0) /* the first failure is the cause */
        return;
    f->rc = rc;
    f->fatal = drop && state != NULL;
    snprintf(f->sqlstate, sizeof(f->sqlstate), "%s", state ? state : "");
    if (pg->op_head < pg->op_tail) {
        const struct mg_pg_op *op = &pg->ops[pg->op_head];
        f->at = op->kind;
        snprintf(f->stmt, sizeof(f->stmt), "%s", op->prep >= 0 ? pg->preps[op->prep].name : "");
    }
}

static void note_success(struct mg_pg *pg, PGresult *r, PGresult **ret, struct mg_pg_fail *f)
{
    const struct mg_pg_op *op = &pg->ops[pg->op_head];
    if (op->kind == MG_OP_PREPARE) {
        pg->preps[op->prep].state = MG_PREP_READY;
    } else if (op->kind == MG_OP_COMMIT) {
        f->committed = strcmp(PQcmdStatus(r), "COMMIT") == 0;
    } else if (op->kind == MG_OP_EXEC && ret) {
        PQclear(*ret);
        *ret = r;
        return;
    }
    PQclear(r);
}

/* Takes one answer. Returns false when the connection is of no more use. */
static bool take_result(struct mg_pg *pg, PGresult **ret, struct mg_pg_fail *f, int *empty)
{
    PGresult *r = PQgetResult(pg->conn);
    if (!r) { /* the end of one operation's answers */
        if (++*empty > 1 || pg->lost || PQstatus(pg->conn) == CONNECTION_BAD)
            return false;
        if (pg->ops[pg->op_head].kind != MG_OP_SYNC)
            pg->op_head++;
        return true;
    }
    *empty = 0;
    switch (PQresultStatus(r)) {
    case PGRES_PIPELINE_SYNC:
        pg->op_head++;
        PQclear(r);
        return true;
    case PGRES_PIPELINE_ABORTED:
        if (pg->ops[pg->op_head].kind == MG_OP_PREPARE)
            pg->preps[pg->ops[pg->op_head].prep].state = MG_PREP_NONE;
        PQclear(r);
        return true;
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
        note_success(pg, r, ret, f);
        return true;
    default:
        if (pg->ops[pg->op_head].kind == MG_OP_PREPARE)
            pg->preps[pg->ops[pg->op_head].prep].state = MG_PREP_NONE;
        note_failure(pg, r, f);
        PQclear(r);
        return !pg->lost && PQstatus(pg->conn) != CONNECTION_BAD;
    }
}

static void lost_connection(struct mg_pg *pg, PGresult **ret, struct mg_pg_fail *f)
{
    if (f->rc == 0) {
        f->rc = MG_EUNAVAIL;
        if (pg->op_head < pg->op_tail)
            f->at = pg->ops[pg->op_head].kind;
    }
    f->lost = true;
    if (ret) {
        PQclear(*ret);
        *ret = NULL;
    }
    mg_pg_close(pg);
}

void mg_pipe_run(struct mg_pg *pg, int wait_ms, PGresult **ret, struct mg_pg_fail *f)
{
    *f = (struct mg_pg_fail){.rc = MG_OK};
    if (ret)
        *ret = NULL;
    pg->lost = false;
    if (!pg->conn || !PQpipelineSync(pg->conn)) {
        lost_connection(pg, ret, f);
        return;
    }
    op_push(pg, MG_OP_SYNC, -1);

    uint64_t deadline = mg_now_ns() + (uint64_t)wait_ms * 1000000;
    int empty = 0;
    while (pg->op_head < pg->op_tail) {
        if (!wait_result(pg, deadline) || !take_result(pg, ret, f, &empty)) {
            if (f->committed)
                mg_pg_close(pg); /* the answer that counts is here */
            else
                lost_connection(pg, ret, f);
            return;
        }
    }
    pg->op_head = pg->op_tail = 0;
    if (f->rc < 0 && ret) {
        PQclear(*ret);
        *ret = NULL;
    }
}

void mg_pipe_script(struct mg_pg *pg, const char *sql, struct mg_pg_fail *f)
{
    *f = (struct mg_pg_fail){.at = MG_OP_EXEC, .stmt = "script"};
    pg->lost = false;
    if (!PQexitPipelineMode(pg->conn) || !PQsendQuery(pg->conn, sql)) {
        lost_connection(pg, NULL, f);
        return;
    }
    uint64_t deadline = mg_now_ns() + (uint64_t)MG_PG_SCRIPT_MS * 1000000;
    for (;;) {
        if (!wait_result(pg, deadline)) {
            lost_connection(pg, NULL, f);
            return;
        }
        PGresult *r = PQgetResult(pg->conn);
        if (!r)
            break;
        ExecStatusType st = PQresultStatus(r);
        if (st != PGRES_TUPLES_OK && st != PGRES_COMMAND_OK && st != PGRES_EMPTY_QUERY) {
            note_failure(pg, r, f);
            snprintf(f->stmt, sizeof(f->stmt), "script");
            pg->lost = pg->lost || st != PGRES_FATAL_ERROR; /* COPY has no place in a script */
        }
        PQclear(r);
        if (pg->lost)
            break;
    }
    if (pg->lost || PQstatus(pg->conn) == CONNECTION_BAD || !PQenterPipelineMode(pg->conn))
        lost_connection(pg, NULL, f);
}
