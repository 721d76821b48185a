#include "store/sandbox.h"

#include "store/row.h"

/* Many sandboxes at a time: for the reconciler and for operators. */

static void fill_text(struct mg_arena *a, const struct mg_res *r, int i, void *row)
{
    *(struct mg_sv *)row = mg_arena_sv(a, mg_res_sv(r, i, 0));
}

static mg_rc texts(struct mg_pg *pg, struct mg_arena *a, const struct mg_stmt *sql, const struct mg_sv *params, int n,
                   struct mg_sv **ret, int *ret_n, struct mg_err *err)
{
    void *rows = NULL;
    mg_rc rc = mg_row_list(a, pg, sql, params, n, sizeof(**ret), fill_text, &rows, ret_n, err);
    *ret = rows;
    return rc;
}

static const struct mg_stmt SQL_DELETING = {
    "sandbox_deleting",
    "SELECT session_id FROM session_state WHERE deleting_at IS NOT NULL AND session_id > $2 ORDER BY session_id LIMIT "
    "$1",
};

mg_rc mg_deleting_list(struct mg_pg *pg, struct mg_arena *a, struct mg_sv after, int max, struct mg_sv **ret,
                       int *ret_n, struct mg_err *err)
{
    return texts(pg, a, &SQL_DELETING, (const struct mg_sv[]){mg_p_int(a, max), after}, 2, ret, ret_n, err);
}

static const struct mg_stmt SQL_LOST = {
    "sandbox_lost_list",
    "SELECT session_id FROM sandboxes WHERE lost_at IS NOT NULL ORDER BY lost_at DESC LIMIT $1",
};

mg_rc mg_lost_list(struct mg_pg *pg, struct mg_arena *a, int max, struct mg_sv **ret, int *ret_n, struct mg_err *err)
{
    return texts(pg, a, &SQL_LOST, (const struct mg_sv[]){mg_p_int(a, max)}, 1, ret, ret_n, err);
}

static const struct mg_stmt SQL_PROVIDERS = {
    "sandbox_providers",
    "SELECT provider FROM sandboxes UNION SELECT provider FROM sandbox_intents ORDER BY 1",
};

mg_rc mg_bound_providers(struct mg_pg *pg, struct mg_arena *a, struct mg_sv **ret, int *ret_n, struct mg_err *err)
{
    return texts(pg, a, &SQL_PROVIDERS, NULL, 0, ret, ret_n, err);
}

static const struct mg_stmt SQL_KNOWN = {
    "sandbox_known",
    "SELECT EXISTS (SELECT 1 FROM sandboxes WHERE provider = $1 AND external_id = $2)"
    " OR EXISTS (SELECT 1 FROM sandbox_intents WHERE provider = $1 AND label = $3)",
};

mg_rc mg_owned_known(struct mg_pg *pg, struct mg_sv provider, struct mg_sv id, struct mg_sv label, bool *ret,
                     struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_KNOWN, (const struct mg_sv[]){provider, id, label}, 3, &r, err);
    if (rc == MG_OK)
        *ret = mg_res_bool(r, 0, 0);
    return rc;
}

static const struct mg_stmt SQL_ROWS = {
    "sandbox_rows",
    "SELECT b.session_id, s.workspace_id, b.provider, b.external_id, b.label, b.lost_at IS NOT NULL,"
    " st.deleting_at IS NOT NULL, false, b.created_at FROM sandboxes b JOIN sessions s ON s.id = b.session_id"
    " JOIN session_state st USING (session_id) WHERE $1 = '' OR b.session_id = $1"
    " UNION ALL SELECT i.session_id, s.workspace_id, i.provider, '', i.label, false, st.deleting_at IS NOT NULL, true,"
    " i.created_at FROM sandbox_intents i JOIN sessions s ON s.id = i.session_id"
    " JOIN session_state st USING (session_id) WHERE $1 = '' OR i.session_id = $1 ORDER BY 9, 1",
};

static void fill_row(struct mg_arena *a, const struct mg_res *r, int i, void *row)
{
    *(struct mg_sandbox_row *)row = (struct mg_sandbox_row){
        .session_id = mg_arena_sv(a, mg_res_sv(r, i, 0)),
        .workspace_id = mg_arena_sv(a, mg_res_sv(r, i, 1)),
        .provider = mg_arena_sv(a, mg_res_sv(r, i, 2)),
        .external_id = mg_arena_sv(a, mg_res_sv(r, i, 3)),
        .label = mg_arena_sv(a, mg_res_sv(r, i, 4)),
        .state = mg_res_bool(r, i, 6)   ? "deleting"
                 : mg_res_bool(r, i, 7) ? "making"
                 : mg_res_bool(r, i, 5) ? "lost"
                                        : "bound",
        .created_us = mg_res_time(r, i, 8),
    };
}

mg_rc mg_sandbox_rows(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, struct mg_sandbox_row **ret,
                      int *ret_n, struct mg_err *err)
{
    void *rows = NULL;
    mg_rc rc = mg_row_list(a, pg, &SQL_ROWS, &session, 1, sizeof(**ret), fill_row, &rows, ret_n, err);
    *ret = rows;
    return rc;
}
