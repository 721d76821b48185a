/* /v1/sessions */
#include <inttypes.h>

#include "api/render.h"
#include "domain/check.h"
#include "service/session.h"

static const struct mg_list_kind SESSIONS = {.name = "sessions", .limit = 100, .limit_max = 1000};

static mg_rc answer(struct mg_http_req *req, struct mg_http_res *res, const struct mg_session_row *row)
{
    struct mg_jw w = mg_jw_to(&res->body);
    mg_render_session(&w, req->arena, row);
    return MG_OK;
}

/* ---- list ---- */

static bool is_status(struct mg_sv s)
{
    static const char *const STATUSES[] = {"idle", "running", "rescheduling", "terminated", NULL};
    return mg_word_index(STATUSES, s) >= 0;
}

static mg_rc parse_filter(struct mg_http_req *req, struct mg_session_filter *f, struct mg_sv *ret_text,
                          struct mg_err *err)
{
    struct mg_sv *statuses = NULL;
    *f = (struct mg_session_filter){.agent_version = 0};
    mg_rc rc = mg_param_id(req, "agent_id", &f->agent_id, err);
    if (rc >= 0)
        rc = mg_param_int(req, "agent_version", 1, INT32_MAX, &f->agent_version, err);
    if (rc >= 0)
        rc = mg_param_id(req, "deployment_id", &f->deployment_id, err);
    if (rc >= 0)
        rc = mg_param_id(req, "memory_store_id", &f->memory_store_id, err);
    if (rc >= 0)
        rc = mg_param_words(req, "statuses", is_status, "idle, running, rescheduling, terminated", &statuses,
                            &f->n_statuses, err);
    if (rc < 0)
        return rc;
    if (f->agent_version && !f->agent_id.ptr)
        return mg_err_set(err, MG_EINVAL, "agent_version: needs agent_id beside it");
    f->statuses = statuses;
    *ret_text = mg_arena_printf(req->arena, "%.*s|%" PRId64 "|%.*s|%.*s", MG_SV_ARG(f->agent_id), f->agent_version,
                                MG_SV_ARG(f->deployment_id), MG_SV_ARG(f->memory_store_id));
    for (int i = 0; i < f->n_statuses; i++)
        *ret_text = mg_arena_printf(req->arena, "%.*s|%.*s", MG_SV_ARG(*ret_text), MG_SV_ARG(statuses[i]));
    return MG_OK;
}

mg_rc mg_get_sessions(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_session_filter f;
    struct mg_list_page page;
    struct mg_session_row *rows;
    struct mg_sv scope = {0}, text = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = parse_filter(req, &f, &text, err);
    if (rc >= 0)
        rc = mg_param_list(req, &SESSIONS, text, &q, &scope, err);
    if (rc >= 0)
        rc = mg_session_list(req->arena, req->pg, &q, &f, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_page_edge first = {0}, last = {0};
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        mg_render_session(&w, req->arena, &rows[i]);
        last = (struct mg_page_edge){.pos = rows[i].created_us, .id = rows[i].id};
        first = i == 0 ? last : first;
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_page_prev(&w, req->arena, scope, page.more_before, first);
    mg_jw_obj_end(&w);
    return MG_OK;
}

/* ---- one ---- */

mg_rc mg_post_sessions(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_session_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_sessions_create(mg_req_app(req)->engine, mg_req_app(req)->sandboxes, req->pg, req->arena,
                                mg_req_who(req), body, &row, err);
    return rc < 0 ? rc : answer(req, res, &row);
}

mg_rc mg_get_session(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_session_row row;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_session_get(req->pg, mg_req_workspace(req), req->param[0], &r, &row, err);
    return rc < 0 ? rc : answer(req, res, &row);
}

mg_rc mg_post_session(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_session_row row;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_sessions_update(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], body, &r,
                                &row, err);
    return rc < 0 ? rc : answer(req, res, &row);
}

mg_rc mg_delete_session(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_sessions_delete(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[0], "session_deleted");
}

mg_rc mg_post_session_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_session_row row;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_sessions_archive(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], &r, &row,
                                 err);
    return rc < 0 ? rc : answer(req, res, &row);
}
