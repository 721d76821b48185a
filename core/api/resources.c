/* /v1/sessions/{}/resources */
#include "api/render.h"
#include "service/resource.h"
#include "store/session.h"

static const struct mg_list_kind RESOURCES = {.name = "resources", .limit = 100, .limit_max = 1000, .ascending = true};

static void render(struct mg_jw *w, const struct mg_resource_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstr(w, "type", x->type);
    if (x->url.ptr) {
        mg_jw_kstr(w, "url", x->url);
        mg_jw_kraw(w, "checkout", x->checkout.ptr ? x->checkout : MG_SV("null"));
    } else {
        mg_jw_kstr(w, "file_id", x->file_id);
    }
    mg_jw_kstr(w, "mount_path", x->mount_path);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_obj_end(w);
}

static mg_rc answer(struct mg_http_res *res, const struct mg_resource_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render(&w, x);
    return MG_OK;
}

mg_rc mg_get_resources(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_resource_row *rows;
    struct mg_session_row session;
    struct mg_sv scope, last = MG_SV("");
    mg_auto(res) struct mg_res *r = NULL, *s = NULL;
    mg_rc rc = mg_session_get(req->pg, mg_req_workspace(req), req->param[0], &s, &session, err);
    if (rc >= 0)
        rc = mg_param_list(req, &RESOURCES, req->param[0], &q, &scope, err);
    if (rc >= 0)
        rc = mg_resource_list(req->arena, req->pg, &q, req->param[0], &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render(&w, &rows[i]);
        last = rows[i].id;
    }
    mg_page_next(&w, req->arena, scope, page.more_after, (struct mg_page_edge){.id = last});
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_post_resources(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_resource_row row = {0};
    const struct mg_app *app = mg_req_app(req);
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_resources_add(app->engine, app->sandboxes, req->pg, req->arena, mg_req_who(req), req->param[0], body,
                              &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_get_resource(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_resource_row row = {0};
    mg_rc rc = mg_resource_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], req->param[1], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_resource(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_resource_row row = {0};
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_resources_rotate(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0],
                                 req->param[1], body, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_delete_resource(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_resources_remove(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0],
                                 req->param[1], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[1], "session_resource_deleted");
}
