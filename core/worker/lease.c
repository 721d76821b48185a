#include "worker/lease.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

struct mg_lease {
    const struct mg_remote *remote;
    struct mg_tether *tether;
    struct mg_buf path; /* up to the value of expected_last_heartbeat */
    char last[MG_LEASE_STAMP_MAX];
    uint32_t interval_ms, ttl_ms;
    uint64_t good_ns; /* when the last good beat was sent; before the first: when we began */
    struct mg_cancel *closing;
    pthread_t thread;
    const char *work_id; /* for the log; points into own_id */
    char *own_id;
};

static void lost(struct mg_lease *l, const char *how, const struct mg_err *err)
{
    mg_log(MG_ERROR, how, MG_F_STR("work", l->work_id), MG_F_STR("error", err->text));
    mg_tether_end(l->tether, MG_TETHER_LOST);
}

static mg_rc take_answer(struct mg_lease *l, uint64_t sent_ns, struct mg_sv body, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    int64_t ttl_s = 0;
    mg_rc rc = mg_json_parse(a, body, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return rc;
    struct mg_sv last = mg_json_get_str(a, v, "last_heartbeat"), state = mg_json_get_str(a, v, "state");
    const struct mg_json *extended = mg_json_get(v, "lease_extended"), *ttl = mg_json_get(v, "ttl_seconds");
    bool over = mg_sv_eqz(state, "stopped"), stopping = mg_sv_eqz(state, "stopping");
    if (!over && !stopping && (last.len == 0 || last.len >= sizeof(l->last)))
        return mg_err_set(err, MG_EINVAL, "the answer to the heartbeat has no last_heartbeat that can be sent back");
    if (last.len && last.len < sizeof(l->last))
        (void)snprintf(l->last, sizeof(l->last), "%.*s", MG_SV_ARG(last));
    if (ttl && mg_json_i64(ttl, &ttl_s) && ttl_s > 0) {
        l->ttl_ms = ttl_s < MG_LEASE_TTL_MAX_MS / 1000 ? (uint32_t)ttl_s * 1000 : MG_LEASE_TTL_MAX_MS;
        l->interval_ms = l->ttl_ms / 2 < MG_LEASE_BEAT_MAX_MS ? l->ttl_ms / 2 : MG_LEASE_BEAT_MAX_MS;
        if (l->interval_ms < MG_LEASE_BEAT_MIN_MS)
            l->interval_ms = MG_LEASE_BEAT_MIN_MS;
    }
    l->good_ns = sent_ns;
    mg_tether_renew(l->tether, sent_ns, l->ttl_ms);
    bool kept = !mg_json_is(extended, MG_JSON_BOOL) || extended->boolean;
    if (over || stopping || !kept)
        mg_log(MG_INFO, "the heartbeat says that the item ends", MG_F_STR("work", l->work_id), MG_F_SV("state", state));
    if (stopping)
        mg_tether_end(l->tether, MG_TETHER_STOPPING);
    else if (over || !kept)
        mg_tether_end(l->tether, MG_TETHER_OVER);
    return MG_OK;
}

/* One beat; what it says goes to the tether. MG_OK: an answer that counts. */
static mg_rc beat(struct mg_lease *l, struct mg_err *err)
{
    mg_auto(remote_answer) struct mg_remote_answer a = {0};
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(8192);
    uint64_t now = mg_now_ns();
    (void)mg_buf_sv(&path, mg_buf_view(&l->path));
    (void)mg_buf_percent(&path, mg_sv_of(l->last));
    const struct mg_remote_req q = {
        .method = "POST",
        .path = mg_buf_view(&path).ptr,
        .call_ms = l->interval_ms,
        .deadline_ns = now + (uint64_t)l->interval_ms * 1000000u,
        .cancel = l->closing,
    };
    mg_rc rc = mg_remote_call(l->remote, &q, &a, err);
    if (rc == MG_OK)
        rc = take_answer(l, now, mg_buf_view(&a.body), err);
    if (rc == MG_OK || mg_cancel_fired(l->closing))
        return rc;
    if (a.status == 412) {
        lost(l, "lease lost: the item went to another worker or its lease ran out", err);
        return MG_EFENCED;
    }
    if (a.status >= 400 && a.status < 500 && a.status != 408 && a.status != 409 && a.status != 429) {
        mg_log(MG_ERROR, "heartbeat refused", MG_F_STR("work", l->work_id), MG_F_STR("error", err->text));
        mg_tether_end(l->tether, MG_TETHER_REFUSED);
        return rc;
    }
    if (mg_now_ns() - l->good_ns > (uint64_t)l->ttl_ms * 1000000u) {
        lost(l, "lease assumed lost: no good heartbeat for as long as it lasts", err);
        return MG_EFENCED;
    }
    mg_log(MG_WARN, "heartbeat failed, tried again", MG_F_STR("work", l->work_id), MG_F_STR("error", err->text));
    return rc;
}

/* Until the next beat is due, or the lease is closed. */
static bool pause_for(struct mg_lease *l)
{
    struct mg_tether *t = l->tether;
    uint64_t due = mg_now_ns() + (uint64_t)l->interval_ms * 1000000u;
    pthread_mutex_lock(&t->lock);
    while (t->end < MG_TETHER_OVER && !mg_cancel_fired(l->closing) && mg_now_ns() < due)
        (void)mg_tether_wait(t, due);
    bool on = t->end < MG_TETHER_OVER && !mg_cancel_fired(l->closing);
    pthread_mutex_unlock(&t->lock);
    return on;
}

static void *keep(void *arg)
{
    struct mg_lease *l = arg;
    struct mg_err err = {0};
    pthread_setname_np(pthread_self(), "mg-lease");
    while (pause_for(l))
        (void)!beat(l, &err);
    return NULL;
}

static void lease_free(struct mg_lease *l)
{
    mg_cancel_unref(l->closing);
    mg_buf_done(&l->path);
    free(l->own_id);
    free(l);
}

/* The verdict of the first beat, however many tries it takes. */
static mg_rc first_beat(struct mg_lease *l, struct mg_err *err)
{
    for (;;) {
        mg_rc rc = beat(l, err);
        enum mg_tether_end end = mg_tether_ended(l->tether);
        if (rc == MG_OK && end >= MG_TETHER_STOPPING)
            return mg_err_set(err, MG_EFENCED, "the item was stopped before its first heartbeat");
        if (rc == MG_OK)
            return MG_OK; /* with a shutdown too: the item is ours, and is to be stopped */
        if (end == MG_TETHER_STOP)
            return mg_err_set(err, MG_ECANCELED, "the worker shuts down");
        if (end >= MG_TETHER_OVER)
            return rc;
        mg_tether_sleep(l->tether, MG_LEASE_BEAT_MIN_MS);
    }
}

mg_rc mg_lease_open(const struct mg_remote *r, const char *environment_id, const char *work_id, const char *last,
                    struct mg_tether *t, struct mg_lease **ret, struct mg_err *err)
{
    struct mg_lease *l = mg_xcalloc(1, sizeof(*l));
    *ret = NULL;
    *l = (struct mg_lease){
        .remote = r,
        .tether = t,
        .path = MG_BUF_INIT(4096),
        .interval_ms = MG_LEASE_BEAT_MAX_MS,
        .ttl_ms = MG_LEASE_TTL_MS,
        .good_ns = mg_now_ns(),
        .closing = mg_cancel_new(),
        .own_id = mg_xstrdup(work_id),
    };
    l->work_id = l->own_id;
    (void)snprintf(l->last, sizeof(l->last), "%s", last && *last ? last : "NO_HEARTBEAT");
    (void)mg_buf_str(&l->path, "/v1/environments/");
    (void)mg_buf_percent(&l->path, mg_sv_of(environment_id));
    (void)mg_buf_str(&l->path, "/work/");
    (void)mg_buf_percent(&l->path, mg_sv_of(work_id));
    (void)mg_buf_str(&l->path, "/heartbeat?expected_last_heartbeat=");
    mg_rc rc = first_beat(l, err);
    if (rc == MG_OK && mg_thread_start(&l->thread, NULL, keep, l) != 0)
        rc = mg_err_set(err, MG_EUNAVAIL, "no thread for the heartbeats");
    if (rc < 0) {
        lease_free(l);
        return rc;
    }
    *ret = l;
    return MG_OK;
}

void mg_lease_close(struct mg_lease *l)
{
    if (!l)
        return;
    mg_cancel_fire(l->closing);
    mg_tether_wake(l->tether);
    pthread_join(l->thread, NULL);
    lease_free(l);
}
