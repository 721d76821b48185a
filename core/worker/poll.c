#include "worker/poll.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "worker/retry.h"

enum {
    PATH_BYTES = 4096,
    STILL_IDLE_S = 300, /* an idle poller says so this often */
};

static const char HELPER[] = "environments-work-poller";

struct mg_poller {
    const struct mg_remote *remote;
    char *environment_id, *worker_id;
    struct mg_poller_opts opts; /* its strings are not used */
    struct mg_cancel *cancel;
    unsigned failures, refused_acks; /* in a row */
    uint64_t idle_ns;                /* since when polls are empty; 0: they are not */
    uint64_t idle_said;              /* when that was last logged */
};

static char *make_worker_id(void)
{
    char host[65] = "worker", id[96];
    if (gethostname(host, sizeof(host) - 1) < 0 || !host[0])
        (void)snprintf(host, sizeof(host), "worker");
    (void)snprintf(id, sizeof(id), "%s-%016llx", host, (unsigned long long)mg_rng_u64());
    return mg_xstrdup(id);
}

static bool printable(const char *z)
{
    for (; *z; z++)
        if ((unsigned char)*z < 0x21 || (unsigned char)*z > 0x7e)
            return false;
    return true;
}

mg_rc mg_poller_open(const struct mg_remote *r, const struct mg_poller_opts *o, struct mg_poller **ret,
                     struct mg_err *err)
{
    const char *id = o->worker_id && *o->worker_id ? o->worker_id : NULL;
    if (!o->environment_id || !*o->environment_id)
        return mg_err_set(err, MG_EINVAL, "no environment to poll: set ANTHROPIC_ENVIRONMENT_ID or --environment-id");
    if (!r->token[0])
        return mg_err_set(
            err, MG_EINVAL,
            "no environment key: set ANTHROPIC_ENVIRONMENT_KEY (`mango api-key create --environment` makes one)");
    if (id && (strlen(id) > MG_POLL_WORKER_ID_MAX || !printable(id)))
        return mg_err_set(err, MG_EINVAL, "the worker id must be at most %d printable ASCII characters without a space",
                          MG_POLL_WORKER_ID_MAX);
    struct mg_poller *p = mg_xcalloc(1, sizeof(*p));
    p->remote = r;
    p->opts = *o;
    p->environment_id = mg_xstrdup(o->environment_id);
    p->worker_id = id ? mg_xstrdup(id) : make_worker_id();
    p->cancel = mg_cancel_new();
    if (!p->opts.gap_min_ms && !p->opts.gap_max_ms) {
        p->opts.gap_min_ms = MG_POLL_GAP_MIN_MS;
        p->opts.gap_max_ms = MG_POLL_GAP_MAX_MS;
    }
    *ret = p;
    return MG_OK;
}

void mg_poller_close(struct mg_poller *p)
{
    if (!p)
        return;
    mg_cancel_unref(p->cancel);
    free(p->environment_id);
    free(p->worker_id);
    free(p);
}

void mg_poller_cancel(struct mg_poller *p)
{
    mg_cancel_fire(p->cancel);
}

const char *mg_poller_worker_id(const struct mg_poller *p)
{
    return p->worker_id;
}

static void poll_path(const struct mg_poller *p, struct mg_buf *path)
{
    const char *join = "?";
    (void)mg_buf_str(path, "/v1/environments/");
    (void)mg_buf_percent(path, mg_sv_of(p->environment_id));
    (void)mg_buf_str(path, "/work/poll");
    if (!p->opts.no_block) {
        (void)mg_buf_printf(path, "?block_ms=%d", MG_POLL_BLOCK_MS);
        join = "&";
    }
    if (p->opts.reclaim_older_than_ms >= 0)
        (void)mg_buf_printf(path, "%sreclaim_older_than_ms=%lld", join, (long long)p->opts.reclaim_older_than_ms);
}

/* One poll. MG_OK with *ret_empty, or an item. *ret_status: of a refusal. */
static mg_rc poll_once(struct mg_poller *p, struct mg_work_item *ret, bool *ret_empty, int *ret_status,
                       struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    mg_auto(remote_answer) struct mg_remote_answer a = {0};
    poll_path(p, &path);
    const struct mg_remote_req q = {
        .method = "GET",
        .path = mg_buf_view(&path).ptr,
        .helper = HELPER,
        .worker_id = p->worker_id,
        .call_ms = MG_POLL_CALL_MS,
        .cancel = p->cancel,
    };
    mg_rc rc = mg_remote_call(p->remote, &q, &a, err);
    *ret_status = a.status;
    if (rc == MG_OK && a.status == 204) {
        *ret_empty = true;
        return MG_OK;
    }
    rc = rc == MG_OK ? mg_work_item_parse(mg_buf_view(&a.body), ret, ret_empty, err) : rc;
    if (a.body.ptr)
        mg_wipe(a.body.ptr, a.body.len); /* the secret */
    return rc;
}

static mg_rc acknowledge(struct mg_poller *p, const struct mg_work_item *w, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    mg_auto(remote_answer) struct mg_remote_answer a = {0};
    (void)mg_buf_str(&path, "/v1/environments/");
    (void)mg_buf_percent(&path, mg_sv_of(w->environment_id[0] ? w->environment_id : p->environment_id));
    (void)mg_buf_str(&path, "/work/");
    (void)mg_buf_percent(&path, mg_sv_of(w->id));
    (void)mg_buf_str(&path, "/ack");
    const struct mg_remote_req q = {
        .method = "POST", .path = mg_buf_view(&path).ptr, .helper = HELPER, .cancel = p->cancel};
    return mg_remote_call(p->remote, &q, &a, err);
}

static void say_idle(struct mg_poller *p)
{
    uint64_t now = mg_now_ns();
    if (!p->idle_ns) {
        p->idle_ns = p->idle_said = now;
        mg_log(MG_INFO, "idle; polling for work", MG_F_STR("environment", p->environment_id));
    } else if (now - p->idle_said >= STILL_IDLE_S * 1000000000ull) {
        p->idle_said = now;
        mg_log(MG_INFO, "still polling", MG_F_INT("idle_s", (int64_t)((now - p->idle_ns) / 1000000000u)));
    }
}

static uint32_t gap(const struct mg_poller *p)
{
    uint32_t from = p->opts.gap_min_ms, to = p->opts.gap_max_ms;
    return to > from ? from + (uint32_t)mg_rng_below(to - from + 1) : from;
}

/* After a poll that failed. MG_OK: try again. */
static mg_rc back_off(struct mg_poller *p, mg_rc rc, int status, struct mg_err *err)
{
    if (rc == MG_ECANCELED || mg_cancel_fired(p->cancel))
        return MG_ECANCELED;
    if (mg_retry_fatal(status))
        return mg_err_wrap(err, rc, "polling %s", p->environment_id);
    uint32_t ms = mg_retry_delay_ms(p->failures++, MG_POLL_BACKOFF_MS, MG_POLL_BACKOFF_MAX_MS);
    mg_log(MG_WARN, "poll failed, backing off", MG_F_STR("error", err->text), MG_F_INT("backoff_ms", ms));
    (void)mg_retry_sleep(ms, p->cancel);
    return MG_OK;
}

mg_rc mg_poller_next(struct mg_poller *p, struct mg_work_item *ret, struct mg_err *err)
{
    struct mg_err own = {0};
    err = err ? err : &own;
    while (!mg_cancel_fired(p->cancel)) {
        bool empty = false;
        int status = 0;
        mg_rc rc = poll_once(p, ret, &empty, &status, err);
        if (rc < 0) {
            rc = back_off(p, rc, status, err);
            if (rc < 0)
                return rc;
            continue;
        }
        p->failures = 0;
        if (empty && p->opts.drain)
            return mg_err_set(err, MG_EGONE, "the queue is empty");
        if (empty) {
            say_idle(p);
            (void)mg_retry_sleep(gap(p), p->cancel);
            continue;
        }
        p->idle_ns = 0;
        mg_log(MG_INFO, "claimed work", MG_F_STR("work", ret->id), MG_F_STR("type", ret->type),
               MG_F_STR("session", ret->session_id));
        rc = acknowledge(p, ret, err);
        if (rc == MG_OK) {
            p->refused_acks = 0;
            return MG_OK;
        }
        /* Not stopped: it is tentative and comes back by itself, here or elsewhere. */
        mg_log(MG_ERROR, "ack failed; the item is left to the queue", MG_F_STR("work", ret->id),
               MG_F_STR("error", err->text));
        mg_work_item_done(ret);
        if (p->refused_acks++) /* the first may be an item that somebody else was quicker with */
            (void)mg_retry_sleep(mg_retry_delay_ms(p->refused_acks - 2, MG_POLL_BACKOFF_MS, MG_POLL_BACKOFF_MAX_MS),
                                 p->cancel);
    }
    return MG_ECANCELED;
}
