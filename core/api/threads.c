/* /v1/sessions/{}/threads: every session has its primary thread, and no other yet. */
#include "api/render.h"
#include "domain/check.h"
#include "domain/thread.h"

static const struct mg_list_kind THREADS = {.name = "threads", .limit = 100, .limit_max = 1000};

static bool is_status(struct mg_sv s)
{
    static const char *const STATUSES[] = {"idle", "running", "rescheduling", "terminated", NULL};
    return mg_word_index(STATUSES, s) >= 0;
}

static mg_rc no_thread(const struct mg_http_req *req, struct mg_err *err)
{
    return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' has no thread '%.*s'", MG_SV_ARG(mg_shown_id(req->param[0])),
                      MG_SV_ARG(mg_shown_id(req->param[1])));
}

static bool is_primary(const struct mg_http_req *req)
{
    const struct mg_id id = mg_thread_primary(req->param[0]);
    return mg_sv_eq(mg_id_sv(&id), req->param[1]);
}

mg_rc mg_get_threads(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_session_row row;
    struct mg_list_query q;
    struct mg_sv scope, *statuses;
    int n;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc =
        mg_param_words(req, "statuses", is_status, "idle, running, rescheduling, terminated", &statuses, &n, err);
    if (rc >= 0)
        rc = mg_param_list(req, &THREADS, req->param[0], &q, &scope, err);
    if (rc >= 0)
        rc = mg_session_get(req->pg, mg_req_workspace(req), req->param[0], &r, &row, err);
    if (rc < 0)
        return rc;
    bool shown = n == 0;
    for (int i = 0; i < n; i++)
        shown |= mg_sv_eq(statuses[i], row.status);
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_key(&w, "data");
    mg_jw_arr(&w);
    if (shown)
        rc = mg_render_thread(&w, req->arena, &row, err);
    if (rc < 0)
        return rc;
    mg_jw_arr_end(&w);
    mg_jw_knull(&w, "next_page");
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_get_thread(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_session_row row;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_session_get(req->pg, mg_req_workspace(req), req->param[0], &r, &row, err);
    if (rc < 0)
        return rc;
    if (!is_primary(req))
        return no_thread(req, err);
    struct mg_jw w = mg_jw_to(&res->body);
    return mg_render_thread(&w, req->arena, &row, err);
}

mg_rc mg_post_thread_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_get_thread(req, res, err);
    if (rc < 0)
        return rc;
    return mg_err_set(err, MG_EINVAL, "the primary thread cannot be archived by itself; archive the session");
}

mg_rc mg_get_thread_events(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    return is_primary(req) ? mg_events_page(req, res, req->param[0], err) : no_thread(req, err);
}

mg_rc mg_get_thread_stream(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    return is_primary(req) ? mg_events_open(req, res, req->param[0], err) : no_thread(req, err);
}
