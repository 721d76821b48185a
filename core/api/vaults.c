/* /v1/vaults */
#include "api/api.h"
#include "base/clock.h"
#include "conf/conf.h"
#include "http/http.h"
#include "run/validate.h"
#include "service/vault.h"

static const struct mg_list_kind VAULTS = {.name = "vaults", .limit = 20, .limit_max = 100};
static const struct mg_list_kind CREDENTIALS = {.name = "credentials", .limit = 20, .limit_max = 100};

static void render_vault(struct mg_jw *w, const struct mg_vault_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "vault");
    mg_jw_kstr(w, "display_name", x->vault.name);
    mg_jw_kraw(w, "metadata", x->vault.metadata);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_ktime(w, "archived_at", x->archived_us);
    mg_jw_obj_end(w);
}

static void render_credential(struct mg_jw *w, const struct mg_credential_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "vault_credential");
    mg_jw_kstr(w, "vault_id", x->vault_id);
    mg_jw_kstr_or_null(w, "display_name", x->cred.name);
    mg_jw_kraw(w, "metadata", x->cred.metadata);
    mg_jw_kraw(w, "auth", x->cred.auth);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_ktime(w, "archived_at", x->archived_us);
    mg_jw_obj_end(w);
}

static mg_rc answer_vault(struct mg_http_res *res, const struct mg_vault_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render_vault(&w, x);
    return MG_OK;
}

static mg_rc answer_credential(struct mg_http_res *res, const struct mg_credential_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render_credential(&w, x);
    return MG_OK;
}

static struct mg_vault_rules rules_of(const struct mg_http_req *req)
{
    return (struct mg_vault_rules){
        .keyring = mg_req_app(req)->keyring,
        .allow_http = mg_conf_bool(mg_req_app(req)->conf, MG_OPT_MCP_ALLOW_PRIVATE),
    };
}

/* ---- vaults ---- */

mg_rc mg_get_vaults(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_vault_row *rows;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_param_list(req, &VAULTS, MG_SV(""), &q, &scope, err);
    if (rc >= 0)
        rc = mg_vault_list(req->arena, req->pg, &q, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render_vault(&w, &rows[i]);
        last = (struct mg_page_edge){.pos = rows[i].created_us, .id = rows[i].id};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_post_vaults(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_vault_row row = {0};
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_vaults_create(req->pg, req->arena, mg_req_who(req), body, &row, err);
    return rc < 0 ? rc : answer_vault(res, &row);
}

mg_rc mg_get_vault(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_vault_row row = {0};
    mg_rc rc = mg_vault_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer_vault(res, &row);
}

mg_rc mg_post_vault(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_vault_row row = {0};
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_vaults_update(req->pg, req->arena, mg_req_who(req), req->param[0], body, &row, err);
    return rc < 0 ? rc : answer_vault(res, &row);
}

mg_rc mg_delete_vault(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_vaults_delete(req->pg, req->arena, mg_req_who(req), req->param[0], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[0], "vault_deleted");
}

mg_rc mg_post_vault_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_vault_row row = {0};
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_vaults_archive(req->pg, req->arena, mg_req_who(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer_vault(res, &row);
}

/* ---- credentials ---- */

mg_rc mg_get_credentials(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_credential_row *rows;
    struct mg_vault_row vault = {0};
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_vault_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &vault, err);
    if (rc >= 0)
        rc = mg_param_list(req, &CREDENTIALS, vault.id, &q, &scope, err);
    if (rc >= 0)
        rc = mg_credential_list(req->arena, req->pg, vault.id, &q, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render_credential(&w, &rows[i]);
        last = (struct mg_page_edge){.pos = rows[i].created_us, .id = rows[i].id};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_post_credentials(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    const struct mg_vault_rules rules = rules_of(req);
    struct mg_credential_row row = {0};
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_credentials_create(&rules, req->pg, req->arena, mg_req_who(req), req->param[0], body, &row, err);
    return rc < 0 ? rc : answer_credential(res, &row);
}

mg_rc mg_get_credential(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_credential_row row = {0};
    mg_rc rc = mg_credential_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], req->param[1], &row, err);
    return rc < 0 ? rc : answer_credential(res, &row);
}

mg_rc mg_post_credential(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    const struct mg_vault_rules rules = rules_of(req);
    struct mg_credential_row row = {0};
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_credentials_update(&rules, req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1], body,
                                   &row, err);
    return rc < 0 ? rc : answer_credential(res, &row);
}

mg_rc mg_delete_credential(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_credentials_delete(req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[1], "vault_credential_deleted");
}

mg_rc mg_post_credential_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_credential_row row = {0};
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_credentials_archive(req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1], &row, err);
    return rc < 0 ? rc : answer_credential(res, &row);
}

/* ---- whether a credential works ---- */

static void put_answer(struct mg_jw *w, int status, const char *type, const char *text, bool cut)
{
    mg_jw_key(w, "http_response");
    if (!status) {
        mg_jw_null(w);
        return;
    }
    mg_jw_obj(w);
    mg_jw_kint(w, "status_code", status);
    mg_jw_kstrz(w, "content_type", type);
    mg_jw_kstrz(w, "body", text);
    mg_jw_kbool(w, "body_truncated", cut);
    mg_jw_obj_end(w);
}

static void put_probe(struct mg_jw *w, const struct mg_validation *x)
{
    if (x->verdict == MG_CREDENTIAL_VALID) {
        mg_jw_knull(w, "mcp_probe");
        return;
    }
    mg_jw_key(w, "mcp_probe");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "method", x->probe.method ? x->probe.method : "initialize");
    put_answer(w, x->probe.status, x->probe.type, x->probe.text, x->probe.cut);
    mg_jw_obj_end(w);
}

static void put_refresh(struct mg_jw *w, const struct mg_validation *x)
{
    if (!x->refresh) {
        mg_jw_knull(w, "refresh");
        return;
    }
    bool failed = strcmp(x->refresh, "failed") == 0;
    mg_jw_key(w, "refresh");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "status", x->refresh);
    put_answer(w, failed ? x->answer.status : 0, x->answer.type, x->answer.text, x->answer.cut);
    mg_jw_obj_end(w);
}

static mg_rc answer_validation(struct mg_http_res *res, const struct mg_credential_row *row,
                               const struct mg_validation *x)
{
    static const char *const VERDICTS[] = {"unknown", "valid", "invalid"};
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "vault_credential_validation");
    mg_jw_kstr(&w, "credential_id", row->id);
    mg_jw_kstr(&w, "vault_id", row->vault_id);
    mg_jw_kstrz(&w, "status", VERDICTS[x->verdict]);
    mg_jw_kbool(&w, "has_refresh_token", x->can_refresh);
    put_probe(&w, x);
    put_refresh(&w, x);
    mg_jw_ktime(&w, "validated_at", x->at_us);
    mg_jw_obj_end(&w);
    return MG_OK;
}

static void validated(void *ctx, struct mg_sv credential)
{
    mg_http_unpark(ctx, credential, true);
}

/* The request waits without a thread while the server is asked. What is answered when that takes too long: nobody knows. */
static mg_rc wait_for_validation(struct mg_http_req *req, struct mg_http_res *res, const struct mg_credential_row *row)
{
    const int64_t waited = (int64_t)((mg_now_ns() - req->start_ns) / 1000000);
    if (waited < MG_VALIDATION_MS && mg_id_from(row->id, &res->park.topic))
        res->park.ms = (unsigned)(MG_VALIDATION_MS - waited);
    return answer_validation(res, row, &(struct mg_validation){.at_us = mg_wall_us()});
}

mg_rc mg_post_credential_validate(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_app *app = mg_req_app(req);
    struct mg_credential_row row = {0};
    struct mg_validation x;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_credential_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], req->param[1], &row, err);
    if (rc >= 0 && !row.sealed.ptr)
        rc = mg_err_set(err, MG_EINVAL, "credential '%.*s' is archived; its secrets are gone", MG_SV_ARG(row.id));
    if (rc < 0)
        return rc;
    enum mg_validation_state state = mg_validation_look(app->engine, row.id, req->start_ns, &x);
    if (state == MG_VALIDATION_DONE)
        return answer_validation(res, &row, &x);
    if (state == MG_VALIDATION_NEW)
        rc = mg_validation_start(app->engine, &row, req->start_ns, validated, app->http, err);
    return rc < 0 ? rc : wait_for_validation(req, res, &row);
}
