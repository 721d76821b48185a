#include "store/session-file.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

static const struct mg_stmt SQL_PIN = {
    "session_file_pin",
    "INSERT INTO session_files (session_id, file_id) SELECT s.id, f.id FROM sessions s"
    " JOIN files f ON f.workspace_id = s.workspace_id WHERE s.id = $1 AND f.id = $2"
    " AND (f.expires_at IS NULL OR f.expires_at > now()) FOR SHARE OF f"
    " ON CONFLICT (session_id, file_id) DO UPDATE SET file_id = excluded.file_id RETURNING file_id",
};

mg_rc mg_session_file_pin(struct mg_txn *t, struct mg_sv session, struct mg_sv file_id, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_PIN, (const struct mg_sv[]){session, file_id}, 2, &r, err);
    if (rc < 0 || mg_res_rows(r) > 0)
        return rc;
    return mg_err_code(err, MG_ENOTFOUND, "file_not_found", "file '%.*s' does not exist",
                       MG_SV_ARG(mg_shown_id(file_id)));
}

static const struct mg_stmt SQL_LIST = {
    "session_files_of",
    "SELECT p.file_id, f.object_key, f.mime_type, f.size_bytes FROM session_files p"
    " LEFT JOIN files f ON f.id = p.file_id WHERE p.session_id = $1",
};

mg_rc mg_session_files_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_session_file **ret,
                          int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_LIST, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    struct mg_session_file *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++) {
        struct mg_session_file *x = &rows[i];
        *x = (struct mg_session_file){mg_res_sv(r, i, 0), mg_res_sv(r, i, 1), mg_res_sv(r, i, 2), mg_res_int(r, i, 3)};
        struct mg_sv *const texts[] = {&x->id, &x->object_key, &x->mime_type};
        mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
    }
    *ret = rows;
    return MG_OK;
}
