#include "store/mcp-tools.h"

static const struct mg_stmt SQL_LOAD = {
    "mcp_snapshots",
    "SELECT m.server, m.url, m.tools, m.failed_turn IS NOT NULL AND m.failed_turn <> coalesce(t.turn_trigger, "
    "s.turn_trigger)"
    " FROM mcp_tools m JOIN session_state s USING (session_id)"
    " LEFT JOIN thread_state t ON t.session_id = m.session_id AND t.thread_id = m.thread_id"
    " WHERE m.session_id = $1 AND m.thread_id = $2 ORDER BY m.server",
};

mg_rc mg_mcp_snapshots_load(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session,
                            const struct mg_id *thread, struct mg_res **ret_res, struct mg_mcp_snapshot **ret,
                            int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_LOAD, (const struct mg_sv[]){mg_id_sv(session), mg_id_sv(thread)}, 2, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = (struct mg_mcp_snapshot){
            .server = mg_res_sv(r, i, 0),
            .url = mg_res_sv(r, i, 1),
            .tools = mg_res_sv(r, i, 2),
            .stale = mg_res_bool(r, i, 3),
        };
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_SAVE = {
    "mcp_snapshot_save",
    "INSERT INTO mcp_tools (session_id, thread_id, server, url, tools, failed_turn) VALUES ($1, $2, $3, $4, $5, "
    "$6::bigint)"
    " ON CONFLICT (session_id, thread_id, server) DO UPDATE SET url = excluded.url, tools = excluded.tools,"
    " failed_turn = excluded.failed_turn, taken_at = now()",
};

mg_rc mg_mcp_snapshot_save(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session,
                           const struct mg_id *thread, const struct mg_mcp_snapshot *s, int64_t failed_turn,
                           struct mg_err *err)
{
    const struct mg_sv p[] = {
        mg_id_sv(session), mg_id_sv(thread),
        s->server,         s->url,
        s->tools,          failed_turn < 0 ? mg_p_null() : mg_p_int(a, failed_turn),
    };
    return mg_txn_queue(t, &SQL_SAVE, p, 6, -1, err);
}

static const struct mg_stmt SQL_DROP = {"mcp_snapshots_drop",
                                        "DELETE FROM mcp_tools WHERE session_id = $1 AND thread_id = ''"};

mg_rc mg_mcp_snapshots_drop(struct mg_txn *t, struct mg_sv session, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_DROP, &session, 1, -1, err);
}

static const struct mg_stmt SQL_ENVIRONMENT = {"mcp_environment", "SELECT env_config FROM sessions WHERE id = $1"};

mg_rc mg_mcp_environment(struct mg_txn *t, struct mg_sv session, struct mg_res **ret_res, struct mg_sv *ret_config,
                         struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_ENVIRONMENT, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "the session is gone");
    *ret_config = mg_res_sv(r, 0, 0);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_AGENT = {
    "mcp_agent",
    "SELECT coalesce(t.agent, s.agent), s.env_type FROM sessions s"
    " LEFT JOIN thread_state t ON t.session_id = s.id AND t.thread_id = $2 WHERE s.id = $1",
};

mg_rc mg_mcp_agent_load(struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread,
                        struct mg_res **ret_res, struct mg_sv *ret_agent, bool *ret_cloud, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_AGENT, (const struct mg_sv[]){mg_id_sv(session), mg_id_sv(thread)}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "the session is gone");
    *ret_agent = mg_res_sv(r, 0, 0);
    *ret_cloud = mg_sv_eqz(mg_res_sv(r, 0, 1), "cloud");
    *ret_res = mg_steal(&r);
    return MG_OK;
}
