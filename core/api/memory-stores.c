/* /v1/memory_stores */
#include "api/api.h"
#include "service/memory.h"

static const struct mg_list_kind STORES = {.name = "memory_stores", .limit = 20, .limit_max = 100};

static void render(struct mg_jw *w, const struct mg_memory_store_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "memory_store");
    mg_jw_kstr(w, "name", x->store.name);
    mg_jw_kstr(w, "description", x->store.description);
    mg_jw_kraw(w, "metadata", x->store.metadata);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_ktime(w, "archived_at", x->archived_us);
    mg_jw_obj_end(w);
}

static mg_rc answer(struct mg_http_res *res, const struct mg_memory_store_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render(&w, x);
    return MG_OK;
}

mg_rc mg_get_memory_stores(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_memory_store_row *rows;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_param_list(req, &STORES, MG_SV(""), &q, &scope, err);
    if (rc >= 0)
        rc = mg_memory_store_list(req->arena, req->pg, &q, &r, &rows, &page, err);
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

mg_rc mg_post_memory_stores(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_memory_store_row row = {0};
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_memory_stores_create(req->pg, req->arena, mg_req_who(req), body, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_get_memory_store(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_memory_store_row row = {0};
    mg_rc rc = mg_memory_store_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_memory_store(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_memory_store_row row = {0};
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_memory_stores_update(req->pg, req->arena, mg_req_who(req), req->param[0], body, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_delete_memory_store(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_memory_stores_delete(req->pg, req->arena, mg_req_who(req), req->param[0], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[0], "memory_store_deleted");
}

mg_rc mg_post_memory_store_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_memory_store_row row = {0};
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_memory_stores_archive(req->pg, req->arena, mg_req_who(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}
