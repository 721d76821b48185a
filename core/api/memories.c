/* /v1/memory_stores/{id}/memories and /memory_versions */
#include "api/api.h"
#include "service/memory.h"

enum { FULL_PAGE_MAX = 20 /* items of a page with contents: contract 1.10 */ };
static const struct mg_list_kind MEMORIES = {.name = "memories", .limit = 20, .limit_max = 100, .ascending = true};
static const struct mg_list_kind VERSIONS = {.name = "memory_versions", .limit = 20, .limit_max = 100};

static mg_rc param_view(const struct mg_http_req *req, bool *full, struct mg_err *err)
{
    struct mg_sv v = {NULL, 0};
    mg_rc rc = mg_param_one(req, "view", &v, err);
    if (rc < 0 || !v.ptr)
        return rc;
    *full = mg_sv_eqz(v, "full");
    if (!*full && !mg_sv_eqz(v, "basic"))
        return mg_err_set(err, MG_EINVAL, "view: must be basic or full");
    return MG_OK;
}

/* ---- memories ---- */

static void render_memory(struct mg_jw *w, const struct mg_memory_row *x, bool full)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "memory");
    mg_jw_kstr(w, "memory_store_id", x->store_id);
    mg_jw_kstr(w, "memory_version_id", x->version_id);
    mg_jw_kstr(w, "path", x->path);
    mg_jw_kraw_or_null(w, "content", full ? x->content.json : mg_sv_n(NULL, 0));
    mg_jw_kstr(w, "content_sha256", x->content.sha256);
    mg_jw_kint(w, "content_size_bytes", x->content.size);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_obj_end(w);
}

static void render_item(struct mg_jw *w, const struct mg_memory_item *x, bool full)
{
    if (!x->prefix) {
        render_memory(w, &x->row, full);
        return;
    }
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "memory_prefix");
    mg_jw_kstr(w, "path", x->row.path);
    mg_jw_obj_end(w);
}

static mg_rc answer(struct mg_http_res *res, const struct mg_memory_row *x, bool full)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render_memory(&w, x, full);
    return MG_OK;
}

/* Pages with contents are small, however large a page was asked for. */
static void cap(struct mg_list_query *q, bool full)
{
    if (full && q->limit > FULL_PAGE_MAX)
        q->limit = FULL_PAGE_MAX;
}

static mg_rc param_memories(const struct mg_http_req *req, struct mg_memory_list *f, struct mg_list_query *q,
                            struct mg_sv *ret_scope, struct mg_err *err)
{
    int64_t depth = 0;
    struct mg_sv prefix = {NULL, 0};
    mg_rc rc = mg_param_int(req, "depth", 0, 1, &depth, err);
    if (rc >= 0)
        rc = mg_param_one(req, "path_prefix", &prefix, err);
    if (rc >= 0 && prefix.ptr)
        rc = mg_memory_prefix_check(prefix, err);
    if (rc >= 0)
        rc = param_view(req, &f->full, err);
    if (rc < 0)
        return rc;
    f->prefix = prefix.ptr ? prefix : MG_SV("/");
    f->shallow = depth == 1;
    struct mg_sv filters =
        mg_arena_printf(req->arena, "%.*s|%d|%.*s", MG_SV_ARG(f->store), (int)f->shallow, MG_SV_ARG(f->prefix));
    rc = mg_param_list(req, &MEMORIES, filters, q, ret_scope, err);
    cap(q, f->full);
    return rc;
}

mg_rc mg_get_memories(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q = {0};
    struct mg_list_page page;
    struct mg_memory_store_row store = {.created_us = 0};
    struct mg_memory_item *items;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_memory_store_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &store, err);
    if (rc < 0)
        return rc;
    struct mg_memory_list f = {.store = store.id};
    rc = param_memories(req, &f, &q, &scope, err);
    if (rc >= 0)
        rc = mg_memory_items(req->arena, req->pg, &f, &q, &r, &items, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render_item(&w, &items[i], f.full);
        last = (struct mg_page_edge){.id = items[i].row.path};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_post_memories(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_memory_row row = {0};
    bool full = false;
    mg_rc rc = param_view(req, &full, err);
    if (rc >= 0)
        rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_memories_create(req->pg, req->arena, mg_req_who(req), req->param[0], body, &row, err);
    return rc < 0 ? rc : answer(res, &row, full);
}

mg_rc mg_get_memory(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_memory_store_row store = {.created_us = 0};
    struct mg_memory_row row = {0};
    bool full = true;
    mg_rc rc = param_view(req, &full, err);
    if (rc >= 0)
        rc = mg_memory_store_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &store, err);
    if (rc >= 0)
        rc = mg_memory_get(req->arena, req->pg, store.id, req->param[1], &row, err);
    return rc < 0 ? rc : answer(res, &row, full);
}

mg_rc mg_post_memory(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_memory_row row = {0};
    bool full = false;
    mg_rc rc = param_view(req, &full, err);
    if (rc >= 0)
        rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_memories_update(req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1], body, &row, err);
    return rc < 0 ? rc : answer(res, &row, full);
}

mg_rc mg_delete_memory(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_sv expected = {NULL, 0};
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_param_one(req, "expected_content_sha256", &expected, err);
    if (rc >= 0)
        rc = mg_memories_delete(req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1], expected, err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[1], "memory_deleted");
}

/* ---- versions ---- */

static void render_actor(struct mg_jw *w, const char *name, struct mg_sv kind, struct mg_sv id)
{
    mg_jw_key(w, name);
    if (!kind.ptr) {
        mg_jw_null(w);
        return;
    }
    bool session = mg_sv_eqz(kind, "session");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", session ? "session_actor" : "api_actor");
    mg_jw_kstr(w, session ? "session_id" : "api_key_id", id);
    mg_jw_obj_end(w);
}

static void render_version(struct mg_jw *w, const struct mg_memory_version_row *x, bool full)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "memory_version");
    mg_jw_kstr(w, "memory_store_id", x->store_id);
    mg_jw_kstr(w, "memory_id", x->memory_id);
    mg_jw_kstr(w, "operation", x->operation);
    mg_jw_kstr_or_null(w, "path", x->path);
    mg_jw_kraw_or_null(w, "content", full ? x->content.json : mg_sv_n(NULL, 0));
    mg_jw_kstr_or_null(w, "content_sha256", x->content.sha256);
    if (x->content.sha256.ptr)
        mg_jw_kint(w, "content_size_bytes", x->content.size);
    else
        mg_jw_knull(w, "content_size_bytes");
    mg_jw_ktime(w, "created_at", x->created_us);
    render_actor(w, "created_by", x->actor_kind, x->actor_id);
    mg_jw_ktime(w, "redacted_at", x->redacted_us);
    render_actor(w, "redacted_by", x->redactor_kind, x->redactor_id);
    mg_jw_obj_end(w);
}

static mg_rc param_versions(const struct mg_http_req *req, struct mg_memory_version_filter *f, struct mg_list_query *q,
                            struct mg_sv *ret_scope, struct mg_err *err)
{
    mg_rc rc = mg_param_id(req, "memory_id", &f->memory_id, err);
    if (rc >= 0)
        rc = mg_param_id(req, "session_id", &f->session_id, err);
    if (rc >= 0)
        rc = mg_param_id(req, "api_key_id", &f->api_key_id, err);
    if (rc >= 0)
        rc = mg_param_id(req, "service_account_id", &f->service_account_id, err);
    if (rc >= 0)
        rc = mg_param_one(req, "operation", &f->operation, err);
    if (rc >= 0 && f->operation.ptr && !mg_sv_eqz(f->operation, "created") && !mg_sv_eqz(f->operation, "modified") &&
        !mg_sv_eqz(f->operation, "deleted"))
        return mg_err_set(err, MG_EINVAL, "operation: must be created, modified or deleted");
    if (rc >= 0)
        rc = param_view(req, &f->full, err);
    if (rc < 0)
        return rc;
    struct mg_sv filters = mg_arena_printf(req->arena, "%.*s|%.*s|%.*s|%.*s|%.*s|%.*s", MG_SV_ARG(f->store),
                                           MG_SV_ARG(f->memory_id), MG_SV_ARG(f->session_id), MG_SV_ARG(f->api_key_id),
                                           MG_SV_ARG(f->service_account_id), MG_SV_ARG(f->operation));
    rc = mg_param_list(req, &VERSIONS, filters, q, ret_scope, err);
    cap(q, f->full);
    return rc;
}

mg_rc mg_get_memory_versions(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q = {0};
    struct mg_list_page page;
    struct mg_memory_store_row store = {.created_us = 0};
    struct mg_memory_version_row *rows;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_memory_store_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &store, err);
    if (rc < 0)
        return rc;
    struct mg_memory_version_filter f = {.store = store.id};
    rc = param_versions(req, &f, &q, &scope, err);
    if (rc >= 0)
        rc = mg_memory_version_list(req->arena, req->pg, &f, &q, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render_version(&w, &rows[i], f.full);
        last = (struct mg_page_edge){.pos = rows[i].seq, .id = MG_SV("")};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

static mg_rc answer_version(struct mg_http_res *res, const struct mg_memory_version_row *x, bool full)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render_version(&w, x, full);
    return MG_OK;
}

mg_rc mg_get_memory_version(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_memory_store_row store = {.created_us = 0};
    struct mg_memory_version_row row = {0};
    bool full = true;
    mg_rc rc = param_view(req, &full, err);
    if (rc >= 0)
        rc = mg_memory_store_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &store, err);
    if (rc >= 0)
        rc = mg_memory_version_get(req->arena, req->pg, store.id, req->param[1], &row, err);
    return rc < 0 ? rc : answer_version(res, &row, full);
}

mg_rc mg_post_memory_version_redact(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_memory_version_row row = {0};
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_memory_versions_redact(req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1], &row, err);
    return rc < 0 ? rc : answer_version(res, &row, true);
}
