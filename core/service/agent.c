#include "service/agent.h"

#include "domain/agent.h"
#include "domain/check.h"
#include "service/roster.h"

mg_rc mg_agents_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, const struct mg_json *body,
                       struct mg_agent_row *ret, struct mg_err *err)
{
    struct mg_agent x;
    mg_rc rc = mg_agent_parse_create(a, body, &x, err);
    if (rc < 0)
        return rc;
    const struct mg_id id = mg_id_new("agent");
    const struct mg_roster_owner self = {.workspace = mg_id_sv(&who->workspace), .id = mg_id_sv(&id), .version = 1};
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    rc = mg_roster_pin(a, &t, &self, &x, err);
    if (rc >= 0)
        rc = mg_agent_insert(a, &t, mg_id_sv(&who->workspace), &id, mg_agent_format(a, &x), ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_agents_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       const struct mg_json *body, struct mg_agent_row *ret, struct mg_err *err)
{
    struct mg_agent old, new;
    int64_t expected = 0;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_agent_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc >= 0)
        rc = mg_agent_load(a, ret->body, &old, err);
    if (rc >= 0)
        rc = mg_agent_parse_update(a, body, &old, &new, &expected, err);
    if (rc < 0)
        return rc;
    if (ret->archived_us != INT64_MIN)
        return mg_err_set(err, MG_EINVAL, "agent '%.*s' is archived and cannot be changed", MG_SV_ARG(mg_shown_id(id)));
    if (expected && expected != ret->latest_version)
        return mg_err_set(err, MG_ECONFLICT,
                          "version: the agent is at version %lld, not %lld; read it again and repeat the change",
                          (long long)ret->latest_version, (long long)expected);
    /* Itself in its roster is the version that this write makes, if it makes one. */
    struct mg_roster_owner self = {.workspace = mg_id_sv(&who->workspace), .id = id, .version = ret->latest_version};
    rc = mg_roster_pin(a, &t, &self, &new, err);
    if (rc < 0 || mg_agent_same(a, &old, &new))
        return rc;
    self.version++;
    rc = mg_roster_repin(a, &self, &new.multiagent, err);
    if (rc >= 0)
        rc = mg_agent_add_version(a, &t, ret, mg_agent_format(a, &new), err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_agents_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                        struct mg_agent_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_agent_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc < 0 || ret->archived_us != INT64_MIN)
        return rc;
    rc = mg_agent_set_archived(&t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}
