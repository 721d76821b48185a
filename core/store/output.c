#include "store/output.h"

#include "base/mem.h"

static const struct mg_stmt SQL_DUE = {
    "outputs_due",
    "SELECT (SELECT count(*) FROM tool_calls c WHERE c.session_id = b.session_id AND c.kind = 'builtin'"
    " AND c.state <> 'prepared'),"
    " coalesce((SELECT o.calls FROM session_outputs o WHERE o.session_id = b.session_id), 0), s.workspace_id"
    " FROM sandboxes b JOIN sessions s ON s.id = b.session_id WHERE b.session_id = $1 AND b.lost_at IS NULL",
};

mg_rc mg_outputs_due(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, int64_t *ret_calls,
                     struct mg_sv *ret_workspace, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_DUE, &session, 1, &r, err);
    *ret_workspace = MG_SV("");
    if (rc < 0 || mg_res_rows(r) == 0 || mg_res_int(r, 0, 0) == mg_res_int(r, 0, 1))
        return rc;
    *ret_calls = mg_res_int(r, 0, 0);
    *ret_workspace = mg_arena_sv(a, mg_res_sv(r, 0, 2));
    return rc;
}

static const struct mg_stmt SQL_LIST = {
    "outputs_of",
    "SELECT output_path, sha256, size_bytes FROM files WHERE session_id = $1 AND output_path IS NOT NULL",
};

mg_rc mg_outputs_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_output_row **ret, int *ret_n,
                    struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_LIST, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = (struct mg_output_row){.path = mg_arena_sv(a, mg_res_sv(r, i, 0)),
                                           .sha256 = mg_arena_sv(a, mg_res_sv(r, i, 1)),
                                           .size = mg_res_int(r, i, 2)};
    return MG_OK;
}

static const struct mg_stmt SQL_DETACH = {
    "output_detach",
    "UPDATE files f SET output_path = NULL WHERE f.session_id = $1 AND f.output_path = $2"
    " AND (EXISTS (SELECT 1 FROM session_resources r WHERE r.file_id = f.id)"
    " OR EXISTS (SELECT 1 FROM session_files p WHERE p.file_id = f.id))",
};
static const struct mg_stmt SQL_HIDE = {
    "output_hide",
    "WITH gone AS (DELETE FROM files WHERE session_id = $1 AND output_path = $2 RETURNING object_key)"
    " UPDATE objects o SET state = 'deleting', revision = nextval('object_revisions'), last_checked_at = NULL FROM gone"
    " WHERE o.key = gone.object_key AND o.state = 'ready'",
};

mg_rc mg_output_hide(struct mg_txn *t, struct mg_sv session, struct mg_sv path, struct mg_err *err)
{
    const struct mg_sv p[] = {session, path};
    mg_rc rc = mg_txn_queue(t, &SQL_DETACH, p, 2, -1, err);
    return rc < 0 ? rc : mg_txn_queue(t, &SQL_HIDE, p, 2, -1, err);
}

static const struct mg_stmt SQL_DONE = {
    "outputs_done",
    "INSERT INTO session_outputs (session_id, calls) VALUES ($1, $2::bigint)"
    " ON CONFLICT (session_id) DO UPDATE SET calls = excluded.calls",
};

mg_rc mg_outputs_done(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, int64_t calls, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_DONE, (const struct mg_sv[]){session, mg_p_int(a, calls)}, 2, -1, err);
}
