/* /v1/vaults */
#include "api/api.h"
#include "conf/conf.h"
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
