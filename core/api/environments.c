/* /v1/environments */
#include "api/render.h"
#include "service/environment.h"

static const struct mg_list_kind ENVIRONMENTS = {.name = "environments", .limit = 100, .limit_max = 1000};

static mg_rc answer(struct mg_http_res *res, const struct mg_environment_row *row)
{
    struct mg_jw w = mg_jw_to(&res->body);
    mg_render_environment(&w, row);
    return MG_OK;
}

mg_rc mg_get_environments(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_environment_row *rows;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_param_list(req, &ENVIRONMENTS, MG_SV(""), &q, &scope, err);
    if (rc >= 0)
        rc = mg_environment_list(req->arena, req->pg, &q, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        mg_render_environment(&w, &rows[i]);
        last = (struct mg_page_edge){.pos = rows[i].created_us, .id = rows[i].id};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_post_environments(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_environment_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_environments_create(req->pg, req->arena, mg_req_who(req), body, mg_req_app(req)->default_cloud, &row,
                                    err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_get_environment(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_environment_row row;
    mg_rc rc = mg_environment_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_environment(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_environment_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_environments_update(req->pg, req->arena, mg_req_who(req), req->param[0], body, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_delete_environment(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_environments_delete(req->pg, req->arena, mg_req_who(req), req->param[0], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[0], "environment_deleted");
}

mg_rc mg_post_environment_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_environment_row row;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_environments_archive(req->pg, req->arena, mg_req_who(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}
