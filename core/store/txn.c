/* Transactions: BEGIN goes out with the first statement, COMMIT with the last. */
#include "store/pg-internal.h"

static const struct mg_stmt sql_begin = {"begin", "BEGIN"}; /* READ COMMITTED: set with the connection */
static const struct mg_stmt sql_commit = {"commit", "COMMIT"};
static const struct mg_stmt sql_rollback = {"rollback", "ROLLBACK"};

static mg_rc begin(struct mg_txn *t, struct mg_err *err)
{
    if (t->done || t->failed)
        return mg_err_set(err, MG_EINTERNAL, "the transaction is over");
    if (t->begun)
        return MG_OK;
    if (t->pg->in_txn)
        return mg_err_set(err, MG_EINTERNAL, "a transaction is open on this connection");
    mg_rc rc = mg_pg_ready(t->pg, err);
    if (rc == 0)
        rc = mg_pipe_stmt(t->pg, &sql_begin, -1, MG_OP_EXEC, NULL, 0, err);
    if (rc < 0)
        return rc;
    t->begun = true;
    t->pg->in_txn = true;
    return MG_OK;
}

/* What was queued cannot be taken back from libpq's buffer: it goes out and is rolled back with the rest. */
static void roll_back(struct mg_txn *t)
{
    struct mg_pg *pg = t->pg;
    for (int i = 0; i < 2 && pg->conn; i++) {
        if (pg->op_head == pg->op_tail && PQtransactionStatus(pg->conn) == PQTRANS_IDLE)
            break;
        if (mg_pipe_stmt(pg, &sql_rollback, -1, MG_OP_EXEC, NULL, 0, NULL) < 0)
            break;
        struct mg_pg_fail f; /* a queued statement may fail, which skips the first ROLLBACK */
        mg_pipe_run(pg, MG_PG_ROLLBACK_MS, NULL, &f);
    }
    if (pg->conn && PQtransactionStatus(pg->conn) != PQTRANS_IDLE)
        mg_pg_close(pg);
    pg->in_txn = false;
    t->done = true;
}

static mg_rc failed(struct mg_txn *t, mg_rc rc)
{
    t->failed = true;
    if (t->begun && !t->done)
        roll_back(t);
    return rc;
}

void mg_txn_cleanup(struct mg_txn *t)
{
    if (t->begun && !t->done)
        roll_back(t);
}

mg_rc mg_txn_query(struct mg_txn *t, const struct mg_stmt *st, const struct mg_sv *params, int n, struct mg_res **ret,
                   struct mg_err *err)
{
    mg_rc rc = begin(t, err);
    if (rc == 0)
        rc = mg_pipe_stmt(t->pg, st, -1, MG_OP_EXEC, params, n, err);
    if (rc < 0)
        return failed(t, rc);

    PGresult *r = NULL;
    struct mg_pg_fail f;
    t->queued = 0;
    mg_pipe_run(t->pg, mg_pg_wait_ms(t->pg), &r, &f);
    if (f.rc < 0)
        return failed(t, mg_pg_fail_err(err, &f));
    if (ret)
        *ret = (struct mg_res *)r;
    else
        PQclear(r);
    return MG_OK;
}

mg_rc mg_txn_queue(struct mg_txn *t, const struct mg_stmt *st, const struct mg_sv *params, int n, int want_rows,
                   struct mg_err *err)
{
    mg_rc rc = begin(t, err);
    if (rc == 0)
        rc = mg_pipe_stmt(t->pg, st, want_rows, MG_OP_EXEC, params, n, err);
    if (rc < 0)
        return failed(t, rc);
    t->queued++;
    return MG_OK;
}

mg_rc mg_txn_script(struct mg_txn *t, const char *sql, struct mg_err *err)
{
    /* what is queued goes first, in a round trip of its own */
    static const struct mg_stmt nothing = {"nothing", "SELECT 1"};
    mg_rc rc = mg_txn_query(t, &nothing, NULL, 0, NULL, err);
    if (rc < 0)
        return rc;
    struct mg_pg_fail f;
    mg_pipe_script(t->pg, sql, &f);
    if (f.rc < 0)
        return failed(t, mg_pg_fail_err(err, &f));
    if (PQtransactionStatus(t->pg->conn) != PQTRANS_INTRANS)
        return failed(t, mg_err_set(err, MG_EINTERNAL,
                                    "the script ended the transaction: it must not hold BEGIN, COMMIT or ROLLBACK"));
    return MG_OK;
}

mg_rc mg_txn_commit(struct mg_txn *t, struct mg_err *err)
{
    return mg_txn_commit_last(t, NULL, err);
}

mg_rc mg_txn_commit_last(struct mg_txn *t, struct mg_res **ret, struct mg_err *err)
{
    PGresult *last = NULL;
    if (ret)
        *ret = NULL;
    if (!t->begun && !t->failed && !t->done) { /* nothing was asked for */
        t->done = true;
        return MG_OK;
    }
    mg_rc rc = begin(t, err);
    if (rc == 0)
        rc = mg_pipe_stmt(t->pg, &sql_commit, -1, MG_OP_COMMIT, NULL, 0, err);
    if (rc < 0)
        return failed(t, rc);

    struct mg_pg_fail f;
    mg_pipe_run(t->pg, mg_pg_wait_ms(t->pg), ret ? &last : NULL, &f);
    if (f.committed) {
        t->done = true;
        t->pg->in_txn = false;
        if (ret)
            *ret = (struct mg_res *)last;
        return MG_OK;
    }
    PQclear(last);
    if (f.rc == 0)
        return failed(t, mg_err_set(err, MG_EINTERNAL, "the database rolled the transaction back"));
    rc = mg_pg_fail_err(err, &f);
    /* Answers come in order: a server that said goodbye before the answer of an earlier statement has not committed. */
    bool known = !f.lost || (f.fatal && f.at != MG_OP_COMMIT && f.at != MG_OP_SYNC);
    if (!known) {
        rc = mg_err_code(
            err, MG_EUNAVAIL, "commit_unknown",
            "the connection to the database was lost during the commit; whether it took effect is not known");
        if (err)
            err->retry_after_s = 1;
    }
    return failed(t, rc);
}
