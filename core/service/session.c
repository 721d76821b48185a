#include "service/session.h"

#include "base/mem.h"
#include "domain/egress.h"
#include "domain/metadata.h"
#include "domain/session.h"
#include "json/write.h"
#include "run/budget.h"
#include "run/engine.h"
#include "run/delegate.h"
#include "run/outcome.h"
#include "run/turn.h"
#include "sandbox/manager.h"
#include "service/admission.h"
#include "service/content-file.h"
#include "store/mcp-tools.h"
#include "service/resource.h"
#include "store/repository.h"
#include "run/advisor.h"
#include "service/roster.h"
#include "service/skill.h"
#include "store/vault.h"

enum { UPDATED_MAX = 128 * 1024 * 1024 /* bytes of a session.updated: an agent's text and 16 pairs */ };

/* ---- create ---- */

/* The agent as this session will run it: the stored one with its overrides. */
static mg_rc resolve_agent(struct mg_arena *a, struct mg_txn *t, const struct mg_session_create *c,
                           struct mg_session_new *s, struct mg_err *err)
{
    struct mg_agent x;
    struct mg_json *name;
    bool roster = false;
    const struct mg_roster_owner self = {
        .workspace = s->workspace, .id = s->agent_id, .version = s->base->agent_version};
    mg_rc rc = mg_agent_load(a, s->base->agent_body, &x, err);
    if (rc >= 0 && c->agent.overrides)
        rc = mg_agent_override(a, c->agent.overrides, &x, &x, err);
    if (rc >= 0)
        rc = mg_egress_check_servers(a, s->base->env_config, x.mcp_servers, err);
    if (rc >= 0)
        rc = mg_roster_expand(a, t, &self, s->base->env_config, &x, &roster, err);
    if (rc >= 0 && roster)
        rc = mg_json_parse(a, x.name, &mg_json_raw_limits, &name, err);
    if (rc < 0)
        return rc;
    s->coordinator = roster ? mg_json_str(a, name) : mg_p_null();
    s->agent = mg_agent_session_format(a, s->agent_id, s->base->agent_version, &x);
    return MG_OK;
}

static bool has_price(const struct mg_prices *p, struct mg_arena *a, const struct mg_json *agent)
{
    return mg_price_of(p, mg_json_get_str(a, mg_json_get(agent, "model"), "id"));
}

/* Every model that the session can run must have a price: the agent's and those of the agents that it may call. */
static mg_rc check_budgetable(const struct mg_prices *p, struct mg_arena *a, struct mg_sv agent, struct mg_err *err)
{
    struct mg_json *v;
    mg_rc rc = mg_json_parse(a, agent, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, MG_EINTERNAL, "stored agent");
    bool good = has_price(p, a, v);
    for (const struct mg_json *m = mg_roster_first(a, v); good && m; m = mg_roster_next(a, m))
        good = has_price(p, a, m);
    const struct mg_json *advisor = mg_advisor_of(a, v);
    if (good && advisor)
        good = mg_price_of(p, mg_json_get_str(a, advisor, "model"));
    if (good)
        return MG_OK;
    return mg_err_set(
        err, MG_EINVAL,
        "budget: model_not_budgetable: the price list has no price for a model that the session can run, so a "
        "budget could not be kept; leave it out, or add the model to the server's prices_file");
}

/* What the backend can never do is said now, not by the first tool call. */
static mg_rc check_sandbox(const struct mg_sandboxes *boxes, const struct mg_session_base *base, int n_resources,
                           int n_skills, struct mg_err *err)
{
    if (!boxes || !mg_sv_eqz(base->env_type, "cloud"))
        return MG_OK;
    mg_rc rc = mg_sandbox_check(boxes, base->env_config, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "environment_id");
    if (n_resources)
        rc = mg_sandbox_check_any(boxes, "resources", err);
    return rc >= 0 && n_skills ? mg_sandbox_check_any(boxes, "agent.skills", err) : rc;
}

/* d NULL: a client asks for it. */
static mg_rc create(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                    const struct mg_principal *who, const struct mg_json *body, const struct mg_session_deployed *d,
                    struct mg_session_row *ret, struct mg_err *err)
{
    struct mg_session_create c;
    struct mg_session_base base;
    struct mg_admitted *admitted = NULL;
    struct mg_skill_pins skills = {.n = 0};
    mg_rc rc = d ? mg_session_parse_deployed(a, body, &c, err) : mg_session_parse_create(a, body, &c, err);
    if (rc < 0)
        return rc;
    rc = mg_content_files_read(mg_engine_objects(e), pg, a, mg_id_sv(&who->workspace), "initial_events", c.events,
                               c.n_events, err);
    if (rc < 0)
        return rc;
    struct mg_session_new *s = mg_arena_new_of(a, struct mg_session_new);
    *s = (struct mg_session_new){
        .id = mg_id_new("sesn"),
        .workspace = mg_id_sv(&who->workspace),
        .agent_id = c.agent.id,
        .environment_id = c.environment_id,
        .title = c.title,
        .metadata = c.metadata,
        .vault_ids = c.vault_ids,
        .budget_nano = c.budget_nano,
        .deployment_id = d ? d->deployment_id : mg_p_null(),
        .base = &base,
    };
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    rc = mg_session_base_lock(a, &t, s->workspace, s->agent_id, c.agent.version, s->environment_id, &base, err);
    if (rc >= 0)
        rc = mg_vaults_check(a, &t, s->workspace, c.vaults, c.n_vaults, err);
    if (rc >= 0)
        rc = resolve_agent(a, &t, &c, s, err);
    if (rc >= 0)
        rc = mg_skills_resolve(a, &t, s->workspace, &s->agent, &skills, err);
    if (rc >= 0)
        rc = check_sandbox(boxes, &base, c.n_resources, skills.n, err);
    if (rc >= 0 && s->budget_nano != MG_BUDGET_NONE)
        rc = check_budgetable(mg_engine_prices(e), a, s->agent, err);
    if (rc >= 0)
        rc = mg_session_insert(a, &t, s, err);
    struct mg_session_state fresh = {.session = s->id,
                                     .roster = s->coordinator.ptr,
                                     .self_hosted = rc >= 0 && mg_sv_eqz(base.env_type, "self_hosted")};
    struct mg_sv resources = MG_SV("[]");
    (void)mg_id_from(s->environment_id, &fresh.environment);
    if (rc >= 0)
        rc = mg_skills_pin(a, &t, mg_id_sv(&s->id), &skills, err);
    if (rc >= 0)
        rc = mg_resources_attach(e, a, &t, s->workspace, mg_id_sv(&s->id), fresh.self_hosted, c.resources,
                                 c.n_resources, &resources, err);
    if (rc >= 0 && c.n_events)
        rc = mg_admit_in(e, &t, a, &fresh, c.events, c.n_events, &admitted, err);
    if (rc >= 0 && d)
        rc = d->also(d->ctx, &t, mg_id_sv(&s->id), err);
    if (rc >= 0)
        rc = mg_txn_commit(&t, err);
    if (rc < 0)
        return rc;
    if (admitted)
        mg_admitted_publish(e, admitted);
    *ret = mg_session_new_row(s, admitted ? mg_admitted_status(admitted) : mg_session_status_name(MG_ST_IDLE));
    ret->resources = resources;
    return MG_OK;
}

mg_rc mg_sessions_create(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                         const struct mg_principal *who, const struct mg_json *body, struct mg_session_row *ret,
                         struct mg_err *err)
{
    return create(e, boxes, pg, a, who, body, NULL, ret, err);
}

mg_rc mg_sessions_create_deployed(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg,
                                  struct mg_arena *a, const struct mg_principal *who, const struct mg_json *body,
                                  const struct mg_session_deployed *d, struct mg_session_row *ret, struct mg_err *err)
{
    return create(e, boxes, pg, a, who, body, d, ret, err);
}

/* ---- update ---- */

/* A session's next form, and which parts of it are new. */
struct change {
    struct mg_sv title, metadata, agent, servers;
    int64_t budget_nano; /* MG_BUDGET_NONE: none */
    bool new_title, new_metadata, new_agent, new_servers, new_budget;
};

static bool same_text(struct mg_sv a, struct mg_sv b)
{
    if (!a.ptr || !b.ptr)
        return !a.ptr && !b.ptr;
    return mg_sv_eq(a, b);
}

static bool same_json(struct mg_arena *a, struct mg_sv x, struct mg_sv y)
{
    struct mg_json *u, *v;
    return mg_sv_eq(x, y) || (mg_json_parse(a, x, &mg_json_raw_limits, &u, NULL) == MG_OK &&
                              mg_json_parse(a, y, &mg_json_raw_limits, &v, NULL) == MG_OK && mg_json_equal(a, u, v));
}

static mg_rc change_agent(struct mg_arena *a, const struct mg_session_state *st, const struct mg_json *update,
                          struct change *c, struct mg_err *err)
{
    struct mg_agent old, new;
    struct mg_json *snapshot;
    int64_t version = 0;
    mg_rc rc = mg_agent_load(a, c->agent, &old, err);
    if (rc >= 0)
        rc = mg_agent_session_update(a, update, &old, &new, err);
    if (rc < 0)
        return rc;
    if (mg_agent_same(a, &old, &new))
        return MG_OK;
    if (st->status != MG_ST_IDLE || st->turn_step != MG_TURN_NONE)
        return mg_err_set(err, MG_ECONFLICT,
                          "agent: can only be changed while the session is idle and waits for no tool call; it is %s",
                          st->status == MG_ST_IDLE ? "waiting for an answer to a tool call"
                                                   : mg_session_status_name(st->status));
    rc = mg_json_parse(a, c->agent, &mg_json_raw_limits, &snapshot, err);
    if (rc < 0)
        return mg_err_wrap(err, MG_EINTERNAL, "stored agent");
    const struct mg_json *v = mg_json_get(snapshot, "version");
    if (v)
        (void)mg_json_i64(v, &version);
    c->agent = mg_agent_session_format(a, mg_json_get_str(a, snapshot, "id"), version, &new);
    c->new_agent = true;
    c->servers = new.mcp_servers;
    c->new_servers = !same_json(a, old.mcp_servers, new.mcp_servers);
    return MG_OK;
}

static mg_rc change_budget(const struct mg_session_state *st, int64_t nano, struct change *c, struct mg_err *err)
{
    if (!st->has_budget && nano != MG_BUDGET_NONE)
        return mg_err_set(
            err, MG_EINVAL,
            "budget: budget_create_only: a budget cannot be added to a session that was created without one, "
            "or whose budget was removed");
    c->new_budget = st->has_budget && nano != st->budget_nano;
    c->budget_nano = nano;
    if (!c->new_budget || nano == MG_BUDGET_NONE)
        return MG_OK;
    if (st->cost_unknown)
        return mg_err_set(err, MG_EINVAL,
                          "budget: model_not_budgetable: the session has used a model without a price, so what it has "
                          "cost is not known; remove the budget with null");
    if (nano <= st->cost_nano)
        return mg_err_set(err, MG_EINVAL,
                          "budget.max_list_cost: budget_not_raised: must be above what the session has cost, which is "
                          "%lld cents; send more, or null to remove the budget",
                          (long long)(st->cost_nano / MG_NANO_PER_CENT));
    return MG_OK;
}

static mg_rc make_change(struct mg_arena *a, const struct mg_session_state *st, const struct mg_session_row *row,
                         const struct mg_session_update *u, struct change *c, struct mg_err *err)
{
    const struct mg_meta_rules meta = {.create = false};
    *c = (struct change){.title = row->title, .metadata = row->metadata, .agent = row->agent};
    if (u->has_title) {
        c->new_title = !same_text(u->title, row->title);
        c->title = u->title;
    }
    mg_rc rc = mg_metadata_patch(a, row->metadata, u->metadata, &meta, &c->metadata, err);
    c->new_metadata = rc >= 0 && !same_json(a, row->metadata, c->metadata);
    if (rc >= 0 && u->has_budget)
        rc = change_budget(st, u->budget_nano, c, err);
    return rc >= 0 && u->agent ? change_agent(a, st, u->agent, c, err) : rc;
}

/* Members of session.updated: what changed and nothing else. */
static struct mg_sv updated_members(struct mg_arena *a, const struct change *c)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(UPDATED_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    if (c->new_agent)
        mg_jw_kraw(&w, "agent", c->agent);
    if (c->new_metadata)
        mg_jw_kraw(&w, "metadata", c->metadata);
    if (c->new_budget)
        mg_jw_kraw(&w, "budget", mg_budget_format(a, c->budget_nano));
    if (c->new_title)
        mg_jw_kstr_or_null(&w, "title", c->title);
    mg_jw_obj_end(&w);
    struct mg_sv all = mg_buf_view(&b);
    return mg_arena_sv(a, mg_sv_n(all.ptr + 1, all.len - 2));
}

/* A turn that waits for money goes on. */
static mg_rc set_budget(struct mg_step *s, int64_t nano, bool *ret_resumed, struct mg_err *err)
{
    mg_rc rc = mg_session_set_budget(s->arena, s->t, mg_id_sv(&s->st.session), nano, err);
    s->st.has_budget = nano != MG_BUDGET_NONE;
    s->st.budget_nano = nano;
    if (rc < 0 || mg_budget_reached(&s->st))
        return rc;
    if (s->threads)
        return mg_threads_resume_paused(s, err); /* and the step's end starts them */
    if (s->st.turn_step != MG_TURN_PAUSED)
        return MG_OK;
    *ret_resumed = true;
    mg_turn_claim(s);
    return mg_turn_request(s, false, err);
}

/* New MCP servers must be reachable from the session's environment; what the old ones listed is forgotten. */
static mg_rc change_servers(struct mg_step *s, struct mg_sv id, const struct change *c, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv config;
    mg_rc rc = mg_mcp_environment(s->t, id, &r, &config, err);
    if (rc >= 0)
        rc = mg_egress_check_servers(s->arena, config, c->servers, err);
    return rc < 0 ? rc : mg_mcp_snapshots_drop(s->t, id, err);
}

static mg_rc gone(struct mg_err *err, const struct mg_session_state *st)
{
    return mg_err_set(err, MG_ENOTFOUND, "session '%s' does not exist", st->session.s);
}

static mg_rc takes_update(const struct mg_session_state *st, struct mg_err *err)
{
    if (st->deleting)
        return gone(err, st);
    if (st->archived)
        return mg_err_set(err, MG_ECONFLICT, "session '%s' is archived and cannot be changed", st->session.s);
    return MG_OK;
}

mg_rc mg_sessions_update(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                         struct mg_sv id, const struct mg_json *body, struct mg_res **ret_res,
                         struct mg_session_row *ret, struct mg_err *err)
{
    struct mg_session_update u;
    struct change c;
    struct mg_sv workspace = mg_id_sv(&who->workspace);
    mg_auto(res) struct mg_res *r = NULL, *before = NULL;
    mg_rc rc = mg_session_parse_update(a, body, &u, err);
    if (rc < 0)
        return rc;
    mg_auto(step) struct mg_step s = {0};
    rc = mg_step_begin(&s, e, pg, a, id, workspace, -1, err);
    if (rc >= 0)
        rc = takes_update(&s.st, err);
    if (rc >= 0)
        rc = mg_session_read(s.t, workspace, id, &before, ret, err);
    if (rc >= 0)
        rc = make_change(a, &s.st, ret, &u, &c, err);
    if (rc < 0)
        return rc;
    if (!c.new_title && !c.new_metadata && !c.new_agent && !c.new_budget) {
        *ret_res = mg_steal(&before);
        return MG_OK;
    }
    mg_step_event(&s, MG_EV_SESSION_UPDATED, updated_members(a, &c), true);
    rc = mg_session_save(s.t, id, c.title, c.metadata, c.agent, err);
    if (rc >= 0 && c.new_servers)
        rc = change_servers(&s, id, &c, err);
    bool resumed = false;
    if (rc >= 0 && c.new_budget)
        rc = set_budget(&s, c.budget_nano, &resumed, err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "session_update", err);
    if (rc >= 0 && resumed)
        mg_engine_go(e, &s.st);
    if (rc >= 0)
        rc = mg_session_get(pg, workspace, id, &r, ret, err);
    if (rc >= 0)
        *ret_res = mg_steal(&r);
    return rc;
}

/* ---- archive, delete ---- */

static mg_rc not_running(const struct mg_session_state *st, const char *what, struct mg_err *err)
{
    if (st->deleting)
        return gone(err, st);
    /* Where the next step is a worker's, nothing of the server runs: the worker is told by its item. */
    bool waits = st->turn_step == MG_TURN_ACTION && !st->roster;
    if ((st->status == MG_ST_RUNNING && !waits) || st->status == MG_ST_RESCHEDULING)
        return mg_err_set(err, MG_ECONFLICT,
                          "session '%s' is %s and cannot be %s; send a user.interrupt and wait until it is idle",
                          st->session.s, mg_session_status_name(st->status), what);
    return MG_OK;
}

/* Open calls get their answers, then the session is over. */
static mg_rc terminate(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = s->threads ? mg_threads_end_children(s, err) : MG_OK;
    if (rc == MG_OK)
        rc = mg_turn_interrupt(s, err);
    if (rc == MG_OK)
        rc = mg_outcome_end(s, "interrupted", "The session was archived.", true, err);
    if (rc < 0 || s->st.status == MG_ST_TERMINATED)
        return rc;
    mg_step_event(s, MG_EV_STATUS_TERMINATED, MG_SV(""), true);
    s->st.status = MG_ST_TERMINATED;
    s->st.queued_inputs = 0;
    return MG_OK;
}

mg_rc mg_sessions_archive(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv id, struct mg_res **ret_res, struct mg_session_row *ret, struct mg_err *err)
{
    struct mg_sv workspace = mg_id_sv(&who->workspace);
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin(&s, e, pg, a, id, workspace, -1, err);
    if (rc >= 0)
        rc = not_running(&s.st, "archived", err);
    if (rc < 0)
        return rc;
    if (!s.st.archived) {
        rc = terminate(&s, err);
        if (rc >= 0)
            rc = mg_session_set_archived(s.t, id, err);
        if (rc >= 0)
            rc = mg_repositories_forget(s.t, id, err);
        if (rc >= 0)
            rc = mg_step_commit(&s, "session_archive", err);
        if (rc < 0)
            return rc;
    } else {
        mg_txn_cleanup(&s.txn); /* the connection is needed for the read */
    }
    return mg_session_get(pg, workspace, id, ret_res, ret, err);
}

mg_rc mg_sessions_delete(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                         struct mg_sv id, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin(&s, e, pg, a, id, mg_id_sv(&who->workspace), -1, err);
    if (rc >= 0)
        rc = not_running(&s.st, "deleted", err);
    s.st.deleting = true; /* its work ends with it */
    if (rc >= 0)
        rc = mg_session_set_deleting(s.t, id, err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "session_delete", err);
    if (rc < 0)
        return rc;
    mg_engine_deleted(e, &s.st.session, s.st.last_seq);
    return MG_OK;
}
