#include "worker/result.h"

#include "base/clock.h"
#include "base/log.h"
#include "json/write.h"
#include "tools/result.h"
#include "worker/retry.h"
#include "worker/runner.h"

enum {
    BODY_MAX = MG_TOOL_CONTENT_MAX + 8192,
    SEND_BASE_MS = 1000, /* between sends, doubling */
    SEND_CAP_MS = 30000,
    KEPT_MAX = 64 * 1024 * 1024, /* bytes of results that wait for another try */
};

static const char HELPER[] = "environments-worker, session-tool-runner";

mg_rc mg_result_body(struct mg_buf *out, const struct mg_call *c, const struct mg_tool_result *r)
{
    *out = MG_BUF_INIT(BODY_MAX);
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_key(&w, "events");
    mg_jw_arr(&w);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", c->custom ? "user.custom_tool_result" : "user.tool_result");
    mg_jw_kstrz(&w, c->custom ? "custom_tool_use_id" : "tool_use_id", c->id);
    mg_jw_kbool(&w, "is_error", r->is_error);
    mg_jw_kraw(&w, "content", mg_buf_view(&r->content));
    mg_jw_obj_end(&w);
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}

/* When sending is given up: the lease's length from the start on, or sooner in a shutdown. */
static uint64_t give_up_at(struct mg_tether *t, uint64_t start_ns)
{
    pthread_mutex_lock(&t->lock);
    uint32_t ms = t->end != MG_TETHER_RUNS ? MG_RUNNER_LAST_SEND_MS : t->ttl_ms ? t->ttl_ms : MG_RUNNER_SEND_MS;
    pthread_mutex_unlock(&t->lock);
    return start_ns + (uint64_t)ms * 1000000u;
}

enum mg_send_end mg_result_send(const struct mg_remote *r, const char *session_id, const struct mg_call *c,
                                struct mg_sv body, struct mg_tether *t, int *ret_status, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(8192);
    uint64_t start = mg_now_ns();
    (void)mg_buf_str(&path, "/v1/sessions/");
    (void)mg_buf_percent(&path, mg_sv_of(session_id));
    (void)mg_buf_str(&path, "/events");
    for (unsigned attempt = 0;; attempt++) {
        mg_auto(remote_answer) struct mg_remote_answer a = {.status = 0};
        if (!mg_tether_may_send(t))
            return MG_SEND_FENCED;
        const struct mg_remote_req q = {
            .method = "POST",
            .path = path.ptr,
            .body = body,
            .helper = HELPER,
            .retries = -1, /* this loop's: it looks at the tether in between */
            .deadline_ns = mg_tether_ended(t) == MG_TETHER_RUNS ? 0 : give_up_at(t, start),
            .cancel = t->fence,
        };
        mg_rc rc = mg_remote_call(r, &q, &a, err);
        *ret_status = a.status;
        if (rc == MG_OK)
            return MG_SEND_TAKEN;
        if (mg_tether_ended(t) >= MG_TETHER_OVER)
            return MG_SEND_FENCED;
        if (mg_retry_fatal(a.status) || (a.status == 409 && !a.again))
            return MG_SEND_REFUSED;
        uint64_t now = mg_now_ns(), until = give_up_at(t, start);
        if (now >= until)
            return MG_SEND_LATER;
        uint32_t left = (uint32_t)((until - now) / 1000000u) + 1;
        uint32_t wait = a.wait_ms ? a.wait_ms : mg_retry_delay_ms(attempt, SEND_BASE_MS, SEND_CAP_MS);
        mg_log(MG_WARN, "the result was not taken, sent again", MG_F_STR("call", c->id), MG_F_STR("error", err->text),
               MG_F_INT("backoff_ms", wait < left ? wait : left));
        mg_tether_sleep(t, wait < left ? wait : left);
    }
}

/* ---- results that wait ---- */

struct kept_result {
    struct mg_list link;
    char *id;
    struct mg_buf body;
};

struct mg_kept {
    struct mg_list all; /* oldest first */
    size_t bytes;
};

struct mg_kept *mg_kept_new(void)
{
    struct mg_kept *k = mg_xcalloc(1, sizeof(*k));
    mg_list_init(&k->all);
    return k;
}

static void drop(struct mg_kept *k, struct kept_result *r)
{
    mg_list_del(&r->link);
    k->bytes -= r->body.len;
    mg_buf_done(&r->body);
    free(r->id);
    free(r);
}

void mg_kept_free(struct mg_kept *k)
{
    mg_list_each (it, &k->all)
        drop(k, mg_container_of(it, struct kept_result, link));
    free(k);
}

void mg_kept_put(struct mg_kept *k, const char *id, struct mg_buf *body)
{
    struct kept_result *r = mg_xcalloc(1, sizeof(*r));
    r->id = mg_xstrdup(id);
    r->body = *body;
    *body = MG_BUF_INIT(0);
    k->bytes += r->body.len;
    mg_list_add_tail(&k->all, &r->link);
    while (k->bytes > KEPT_MAX && k->all.next != &r->link)
        drop(k, mg_container_of(k->all.next, struct kept_result, link));
}

bool mg_kept_take(struct mg_kept *k, const char *id, struct mg_buf *ret)
{
    mg_list_each (it, &k->all) {
        struct kept_result *r = mg_container_of(it, struct kept_result, link);
        if (strcmp(r->id, id) != 0)
            continue;
        k->bytes -= r->body.len;
        *ret = r->body;
        r->body = MG_BUF_INIT(0);
        drop(k, r);
        return true;
    }
    return false;
}
