/* /v1/environments/{}/work */
#include "api/render.h"
#include "base/clock.h"
#include "conf/conf.h"
#include "crypto/hash.h"
#include "domain/check.h"
#include "service/work.h"

static const struct mg_list_kind WORK = {.name = "work", .limit = 100, .limit_max = 1000};

enum {
    BLOCK_MAX_MS = 999, /* contract 6.2 */
    BLOCK_MIN_MS = 25,  /* a shorter rest is not waited for: timers are coarser than that */
    RECLAIM_MAX_MS = 24 * 3600 * 1000,
    DESIRED_TTL_MAX = 1000000000, /* seconds that may be asked for; what is above MG_WORK_TTL_MAX_S is cut to it */
};

/* ---- the object ---- */

/* secret: only in the answer of the poll that made it; ptr NULL everywhere else. */
static void render(struct mg_jw *w, const struct mg_work_row *x, struct mg_sv secret)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "work");
    mg_jw_kstr(w, "environment_id", x->environment);
    mg_jw_key(w, "data");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "session");
    mg_jw_kstr(w, "id", x->session);
    mg_jw_obj_end(w);
    mg_jw_kstrz(w, "state", mg_work_state_name(x->state));
    mg_jw_kstr_or_null(w, "secret", secret);
    mg_jw_kraw(w, "metadata", x->metadata);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "acknowledged_at", x->acknowledged_us);
    mg_jw_ktime(w, "started_at", x->started_us);
    mg_jw_ktime(w, "latest_heartbeat_at", x->heartbeat_us);
    mg_jw_ktime(w, "stop_requested_at", x->stop_requested_us);
    mg_jw_ktime(w, "stopped_at", x->stopped_us);
    mg_jw_obj_end(w);
}

static mg_rc answer(struct mg_http_res *res, const struct mg_work_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render(&w, x, mg_p_null());
    return MG_OK;
}

/* ---- poll ---- */

static mg_rc parse_poll(struct mg_http_req *req, struct mg_work_poll *q, int64_t *ret_block, struct mg_err *err)
{
    struct mg_sv worker = {0};
    *ret_block = 0;
    q->environment = req->param[0];
    q->reclaim_ms = MG_WORK_RECLAIM_MS;
    mg_rc rc = mg_param_int(req, "block_ms", 1, BLOCK_MAX_MS, ret_block, err);
    if (rc >= 0)
        rc = mg_param_int(req, "reclaim_older_than_ms", 0, RECLAIM_MAX_MS, &q->reclaim_ms, err);
    if (rc >= 0)
        rc = mg_param_one(req, "worker_id", &worker, err);
    if (rc < 0)
        return rc;
    q->worker_id = req->worker_id.len ? req->worker_id : worker;
    if (q->worker_id.len > MG_WORK_WORKER_ID_MAX)
        return mg_err_set(err, MG_EINVAL, "Anthropic-Worker-ID: at most %d bytes are allowed, this has %zu",
                          MG_WORK_WORKER_ID_MAX, q->worker_id.len);
    return MG_OK;
}

/* {"sessions_token":"..."} as base64url: contract 6.8. */
static mg_rc write_claimed(struct mg_http_res *res, const struct mg_work_row *x, const char *token)
{
    mg_auto(buf) struct mg_buf plain = MG_BUF_INIT(256), coded = MG_BUF_INIT(512);
    (void)mg_buf_printf(&plain, "{\"sessions_token\":\"%s\"}", token);
    mg_rc rc = mg_base64url_encode(&coded, mg_buf_view(&plain));
    struct mg_jw w = mg_jw_to(&res->body);
    render(&w, x, mg_buf_view(&coded));
    mg_wipe(plain.ptr, plain.len);
    mg_wipe(coded.ptr, coded.len);
    return rc;
}

struct look {
    struct mg_pollers *pollers;
    struct mg_id environment;
};

static void look(void *arg, struct mg_pg *pg)
{
    struct look *l = arg;
    mg_works_look(l->pollers, pg, mg_id_sv(&l->environment));
    free(l);
}

/* Beside the poll, which the next one profits from. */
static void look_for_beginning(const struct mg_app *app, struct mg_sv environment)
{
    struct look *l = mg_xcalloc(1, sizeof(*l));
    l->pollers = app->pollers;
    if (!mg_id_from(environment, &l->environment) || !mg_works_look_due(app->pollers, environment) ||
        mg_http_run(app->http, look, l) < 0)
        free(l);
}

mg_rc mg_get_work_poll(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_app *app = mg_req_app(req);
    struct mg_work_poll q = {0};
    struct mg_work_row row = {0};
    char token[MG_WORK_TOKEN_TEXT] = "";
    int64_t block = 0;
    mg_rc rc = parse_poll(req, &q, &block, err);
    if (rc >= 0)
        rc = mg_works_poll(app->engine, app->pollers, req->pg, req->arena, mg_req_who(req), &q, &row, token, err);
    if (rc < 0)
        return rc;
    look_for_beginning(app, q.environment);
    if (row.id.len) {
        rc = write_claimed(res, &row, token);
        mg_wipe(token, sizeof(token));
        return rc;
    }
    int64_t left = block - (int64_t)((mg_now_ns() - req->start_ns) / 1000000);
    if (left >= BLOCK_MIN_MS && mg_id_from(q.environment, &res->park.topic))
        res->park.ms = (unsigned)left;
    return mg_buf_str(&res->body, "null"); /* the one empty answer that all SDKs take */
}

/* ---- a worker's calls ---- */

static int64_t server_ttl_s(const struct mg_http_req *req)
{
    return (mg_conf_ms(mg_req_app(req)->conf, MG_OPT_WORK_TTL) + 999) / 1000;
}

mg_rc mg_post_work_ack(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_work_row row;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_works_ack(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1],
                          server_ttl_s(req), &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

static void write_beat(struct mg_http_res *res, const struct mg_work_row *x, bool extended)
{
    char last[MG_TIME_LEN] = "";
    if (x->heartbeat_us != INT64_MIN)
        mg_time_format(x->heartbeat_us, last);
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "work_heartbeat");
    mg_jw_kstrz(&w, "last_heartbeat", last);
    mg_jw_kbool(&w, "lease_extended", extended);
    mg_jw_kstrz(&w, "state", mg_work_state_name(x->state));
    mg_jw_kint(&w, "ttl_seconds", x->ttl_s);
    mg_jw_obj_end(&w);
}

mg_rc mg_post_work_heartbeat(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_work_row row;
    struct mg_sv expected = {0};
    int64_t ttl = server_ttl_s(req);
    bool extended = false;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_param_one(req, "expected_last_heartbeat", &expected, err);
    if (rc >= 0)
        rc = mg_param_int(req, "desired_ttl_seconds", 1, DESIRED_TTL_MAX, &ttl, err);
    if (rc < 0)
        return rc;
    ttl = ttl < MG_WORK_TTL_MAX_S ? ttl : MG_WORK_TTL_MAX_S;
    rc = mg_works_beat(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1],
                       expected, ttl, &row, &extended, err);
    if (rc >= 0)
        write_beat(res, &row, extended);
    return rc;
}

mg_rc mg_post_work_stop(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {{.name = "force", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
                                                 {.name = NULL}};
    const struct mg_json *body, *m[1];
    struct mg_work_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_check_object(req->arena, body, "", RULES, m, err);
    if (rc >= 0)
        rc = mg_works_stop(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1],
                           mg_given(m[0]) && m[0]->boolean, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_work_fail(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "message", .type = MG_FT_STRING, .min = 1, .max = MG_WORK_FAIL_TEXT_MAX},
        {.name = "requeue", .type = MG_FT_BOOL},
        {.name = NULL},
    };
    const struct mg_json *body, *m[2];
    struct mg_work_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_check_object(req->arena, body, "", RULES, m, err);
    if (rc < 0)
        return rc;
    bool requeue = m[1] && m[1]->boolean;
    if (!m[0] && !requeue)
        return mg_err_set(
            err, MG_EINVAL,
            "message: is required, since it ends the session; with \"requeue\": true the item goes back to "
            "the queue instead");
    rc = mg_works_fail(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1],
                       m[0] ? mg_json_str(req->arena, m[0]) : MG_SV(""), requeue, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

/* ---- an operator's calls ---- */

mg_rc mg_get_work_list(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_work_row *rows;
    struct mg_page_edge last = {0};
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_param_list(req, &WORK, req->param[0], &q, &scope, err);
    if (rc >= 0)
        rc = mg_works_environment(req->pg, req->arena, mg_req_who(req), req->param[0], err);
    if (rc >= 0)
        rc = mg_work_list(req->arena, req->pg, &q, req->param[0], &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render(&w, &rows[i], mg_p_null());
        last = (struct mg_page_edge){.pos = rows[i].created_us, .id = rows[i].id};
    }
    mg_page_next(&w, req->arena, scope, page.more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_get_work(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_work_row row;
    mg_rc rc = mg_works_environment(req->pg, req->arena, mg_req_who(req), req->param[0], err);
    if (rc >= 0)
        rc = mg_work_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], req->param[1], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_work(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *body, *m[1];
    struct mg_work_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_check_object(req->arena, body, "", RULES, m, err);
    if (rc >= 0)
        rc = mg_works_update(req->pg, req->arena, mg_req_who(req), req->param[0], req->param[1], m[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_get_work_stats(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_work_stats s;
    mg_rc rc = mg_works_environment(req->pg, req->arena, mg_req_who(req), req->param[0], err);
    if (rc >= 0)
        rc = mg_work_stats(req->pg, req->param[0], &s, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "work_queue_stats");
    mg_jw_kint(&w, "depth", s.depth);
    mg_jw_kint(&w, "pending", s.pending);
    mg_jw_ktime(&w, "oldest_queued_at", s.oldest_us);
    mg_jw_kint(&w, "workers_polling", s.workers);
    mg_jw_obj_end(&w);
    return MG_OK;
}
