/* /v1/deployments and /v1/deployment_runs */
#include "api/api.h"
#include "service/deploy.h"

static const struct mg_list_kind DEPLOYMENTS = {.name = "deployments", .limit = 20, .limit_max = 100};
static const struct mg_list_kind RUNS = {.name = "deployment_runs", .limit = 20, .limit_max = 1000};

static void render_agent(struct mg_jw *w, struct mg_sv id, int64_t version)
{
    mg_jw_key(w, "agent");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "agent");
    mg_jw_kstr(w, "id", id);
    mg_jw_kint(w, "version", version);
    mg_jw_obj_end(w);
}

static void render_schedule(struct mg_jw *w, const struct mg_deploy_row *x)
{
    mg_jw_key(w, "schedule");
    if (!x->deploy.expression.ptr) {
        mg_jw_null(w);
        return;
    }
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "cron");
    mg_jw_kstr(w, "expression", x->deploy.expression);
    mg_jw_kstr(w, "timezone", x->deploy.timezone);
    mg_jw_ktime(w, "last_run_at", x->last_us);
    mg_jw_kraw(w, "upcoming_runs_at", x->upcoming);
    mg_jw_obj_end(w);
}

static void render(struct mg_jw *w, const struct mg_deploy_row *x)
{
    const struct mg_deploy *d = &x->deploy;
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "deployment");
    mg_jw_kstr(w, "name", d->name);
    mg_jw_kstr_or_null(w, "description", d->description);
    render_agent(w, d->agent_id, d->agent_version);
    mg_jw_kstr(w, "environment_id", d->environment_id);
    mg_jw_kraw(w, "initial_events", d->initial_events);
    mg_jw_kraw(w, "resources", d->resources);
    mg_jw_kraw(w, "vault_ids", d->vault_ids);
    mg_jw_kraw(w, "metadata", d->metadata);
    render_schedule(w, x);
    mg_jw_kstrz(w, "status", x->paused_reason.ptr ? "paused" : "active");
    mg_jw_kraw_or_null(w, "paused_reason", x->paused_reason);
    mg_jw_kraw_or_null(w, "budget", d->budget);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_ktime(w, "archived_at", x->archived_us);
    mg_jw_obj_end(w);
}

static void render_run(struct mg_jw *w, const struct mg_deploy_run_row *x)
{
    bool manual = x->scheduled_us == INT64_MIN;
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "deployment_run");
    mg_jw_kstr(w, "deployment_id", x->deployment_id);
    render_agent(w, x->agent_id, x->agent_version);
    mg_jw_key(w, "trigger_context");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", manual ? "manual" : "schedule");
    if (!manual)
        mg_jw_ktime(w, "scheduled_at", x->scheduled_us);
    mg_jw_obj_end(w);
    mg_jw_kstr_or_null(w, "session_id", x->session_id);
    mg_jw_key(w, "error");
    if (x->error_type.ptr) {
        mg_jw_obj(w);
        mg_jw_kstr(w, "type", x->error_type);
        mg_jw_kstr(w, "message", x->error_message);
        mg_jw_obj_end(w);
    } else {
        mg_jw_null(w);
    }
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_obj_end(w);
}

static mg_rc answer(struct mg_http_res *res, const struct mg_deploy_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render(&w, x);
    return MG_OK;
}

/* ---- deployments ---- */

static mg_rc param_filter(const struct mg_http_req *req, struct mg_deploy_filter *f, struct mg_err *err)
{
    bool archived = false;
    mg_rc rc = mg_param_id(req, "agent_id", &f->agent_id, err);
    if (rc >= 0)
        rc = mg_param_one(req, "status", &f->status, err);
    if (rc >= 0)
        rc = mg_param_bool(req, "include_archived", &archived, err);
    if (rc < 0 || !f->status.ptr)
        return rc;
    if (!mg_sv_eqz(f->status, "active") && !mg_sv_eqz(f->status, "paused"))
        return mg_err_set(err, MG_EINVAL, "status: must be active or paused");
    if (mg_http_query(req, "include_archived").ptr)
        return mg_err_set(err, MG_EINVAL, "include_archived: cannot be combined with status");
    return MG_OK;
}

mg_rc mg_get_deployments(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_deploy_filter f = {{NULL, 0}, {NULL, 0}};
    struct mg_deploy_row *rows;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = param_filter(req, &f, err);
    if (rc >= 0)
        rc = mg_param_list(req, &DEPLOYMENTS,
                           mg_arena_printf(req->arena, "%.*s|%.*s", MG_SV_ARG(f.agent_id), MG_SV_ARG(f.status)), &q,
                           &scope, err);
    if (rc >= 0)
        rc = mg_deploy_list(req->arena, req->pg, &q, &f, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render(&w, &rows[i]);
        last = (struct mg_page_edge){.pos = rows[i].created_us, .id = rows[i].id};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_post_deployments(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_deploy_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_deploys_create(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), body, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_get_deployment(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_deploy_row row;
    mg_rc rc = mg_deploy_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_deployment(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_deploy_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_deploys_update(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], body, &row,
                               err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_deployment_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_deploy_row row;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_deploys_archive(req->pg, req->arena, mg_req_who(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

static mg_rc pause_to(struct mg_http_req *req, struct mg_http_res *res, bool paused, struct mg_err *err)
{
    struct mg_deploy_row row;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_deploys_pause(req->pg, req->arena, mg_req_who(req), req->param[0], paused, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_deployment_pause(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    return pause_to(req, res, true, err);
}

mg_rc mg_post_deployment_unpause(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    return pause_to(req, res, false, err);
}

/* ---- runs ---- */

static mg_rc answer_run(struct mg_http_res *res, const struct mg_deploy_run_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render_run(&w, x);
    return MG_OK;
}

mg_rc mg_post_deployment_run(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_app *app = mg_req_app(req);
    struct mg_deploy_run_row row;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc =
            mg_deploys_run(app->engine, app->sandboxes, req->pg, req->arena, mg_req_who(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer_run(res, &row);
}

static mg_rc param_runs(const struct mg_http_req *req, struct mg_deploy_run_filter *f, struct mg_err *err)
{
    bool has_error = false;
    mg_rc rc = mg_param_id(req, "deployment_id", &f->deployment_id, err);
    if (rc >= 0)
        rc = mg_param_bool(req, "has_error", &has_error, err);
    if (rc >= 0)
        rc = mg_param_one(req, "has_error", &f->has_error, err);
    if (rc >= 0)
        rc = mg_param_one(req, "trigger_type", &f->trigger, err);
    if (rc < 0 || !f->trigger.ptr || mg_sv_eqz(f->trigger, "manual") || mg_sv_eqz(f->trigger, "schedule"))
        return rc;
    return mg_err_set(err, MG_EINVAL, "trigger_type: must be manual or schedule");
}

mg_rc mg_get_deployment_runs(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_deploy_run_filter f = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    struct mg_deploy_run_row *rows;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = param_runs(req, &f, err);
    if (rc >= 0)
        rc = mg_param_list(req, &RUNS,
                           mg_arena_printf(req->arena, "%.*s|%.*s|%.*s", MG_SV_ARG(f.deployment_id),
                                           MG_SV_ARG(f.has_error), MG_SV_ARG(f.trigger)),
                           &q, &scope, err);
    if (rc >= 0)
        rc = mg_deploy_run_list(req->arena, req->pg, &q, &f, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render_run(&w, &rows[i]);
        last = (struct mg_page_edge){.pos = rows[i].created_us, .id = rows[i].id};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_get_deployment_run(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_deploy_run_row row;
    mg_rc rc = mg_deploy_run_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer_run(res, &row);
}
