/* /v1/sessions/{}/threads: every session has its primary thread; a coordinator's has those of its children besides. */
#include "api/render.h"
#include "domain/check.h"
#include "domain/thread.h"
#include "service/thread.h"
#include "store/event-log.h"

static const struct mg_list_kind THREADS = {.name = "threads", .limit = 100, .limit_max = 1000};

static bool is_status(struct mg_sv s)
{
    static const char *const STATUSES[] = {"idle", "running", "rescheduling", "terminated", NULL};
    return mg_word_index(STATUSES, s) >= 0;
}

mg_rc mg_thread_of(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv thread_id, struct mg_sv *ret,
                   struct mg_err *err)
{
    struct mg_thread_row row;
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_id id = mg_thread_primary(session_id);
    *ret = MG_SV("");
    if (mg_sv_eq(mg_id_sv(&id), thread_id))
        return MG_OK;
    *ret = thread_id;
    return mg_thread_get(req->pg, session_id, thread_id, &r, &row, err);
}

/* The session's own row, as a thread. */
static mg_rc primary_of(struct mg_http_req *req, struct mg_res **ret_res, struct mg_thread_row *ret, struct mg_err *err)
{
    struct mg_session_row session;
    mg_rc rc = mg_session_get(req->pg, mg_req_workspace(req), req->param[0], ret_res, &session, err);
    if (rc < 0)
        return rc;
    mg_thread_row_of(req->arena, &session, ret);
    return mg_thread_primary_own(req->pg, req->param[0], ret, err);
}

static bool is_wanted(const struct mg_sv *statuses, int n, struct mg_sv status)
{
    bool wanted = n == 0;
    for (int i = 0; i < n; i++)
        wanted |= mg_sv_eq(statuses[i], status);
    return wanted;
}

/* The filter belongs to the cursor: a page of one is no page of the other. */
static struct mg_sv filter_text(struct mg_arena *a, struct mg_sv session_id, const struct mg_sv *statuses, int n)
{
    struct mg_sv all = session_id;
    for (int i = 0; i < n; i++)
        all = mg_arena_printf(a, "%.*s|%.*s", MG_SV_ARG(all), MG_SV_ARG(statuses[i]));
    return all;
}

mg_rc mg_get_threads(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_thread_row primary, *rows;
    struct mg_list_query q;
    struct mg_sv scope, *statuses;
    int n = 0, n_statuses;
    mg_auto(res) struct mg_res *session = NULL, *r = NULL;
    mg_rc rc = mg_param_words(req, "statuses", is_status, "idle, running, rescheduling, terminated", &statuses,
                              &n_statuses, err);
    if (rc >= 0)
        rc =
            mg_param_list(req, &THREADS, filter_text(req->arena, req->param[0], statuses, n_statuses), &q, &scope, err);
    if (rc >= 0)
        rc = primary_of(req, &session, &primary, err);
    if (rc < 0)
        return rc;
    bool first = !q.cursor.given && is_wanted(statuses, n_statuses, primary.status);
    int room = q.limit - first;
    rc = mg_thread_list(req->arena, req->pg, req->param[0], q.cursor.given ? q.cursor.pos : 0, room + 1, statuses,
                        n_statuses, &r, &rows, &n, err);
    struct mg_jw w = mg_page_begin(res);
    if (rc >= 0 && first)
        rc = mg_render_thread(&w, req->arena, req->param[0], &primary, err);
    for (int i = 0; rc >= 0 && i < n && i < room; i++)
        rc = mg_render_thread(&w, req->arena, req->param[0], &rows[i], err);
    if (rc < 0)
        return rc;
    bool more = n > room;
    mg_page_next(&w, req->arena, scope, more,
                 (struct mg_page_edge){.pos = more && room > 0 ? rows[room - 1].ordinal : 0});
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_get_thread(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_thread_row row;
    struct mg_sv child = MG_SV("");
    mg_auto(res) struct mg_res *session = NULL, *r = NULL;
    mg_rc rc = primary_of(req, &session, &row, err);
    if (rc >= 0)
        rc = mg_thread_of(req, req->param[0], req->param[1], &child, err);
    if (rc >= 0 && child.len)
        rc = mg_thread_get(req->pg, req->param[0], child, &r, &row, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_jw_to(&res->body);
    return mg_render_thread(&w, req->arena, req->param[0], &row, err);
}

mg_rc mg_post_thread_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_threads_archive(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0],
                                req->param[1], err);
    return rc < 0 ? rc : mg_get_thread(req, res, err);
}

/* The session comes first: a thread of another workspace's is no thread. */
static mg_rc thread_in_path(struct mg_http_req *req, struct mg_sv *ret, struct mg_err *err)
{
    int64_t head;
    mg_rc rc = mg_session_last_seq(req->pg, req->param[0], mg_req_workspace(req), &head, err);
    return rc < 0 ? rc : mg_thread_of(req, req->param[0], req->param[1], ret, err);
}

mg_rc mg_get_thread_events(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_sv thread;
    mg_rc rc = thread_in_path(req, &thread, err);
    return rc < 0 ? rc : mg_events_page(req, res, req->param[0], thread, err);
}

mg_rc mg_get_thread_stream(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_sv thread;
    mg_rc rc = thread_in_path(req, &thread, err);
    return rc < 0 ? rc : mg_events_open(req, res, req->param[0], thread, err);
}
