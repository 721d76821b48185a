#include "worker/serve.h"

#include "base/log.h"
#include "worker/lease.h"
#include "worker/runner.h"

static const char HELPER[] = "environments-worker";

/* The bearer for the item: its own token, else the environment key. To be wiped by the caller. */
static mg_rc credential(const struct mg_serve_opts *o, const struct mg_work_item *w, char **ret, struct mg_err *err)
{
    const char *key = o->environment_key && *o->environment_key ? o->environment_key : NULL;
    *ret = mg_work_item_token(w);
    if (*ret)
        return MG_OK;
    bool had = w->secret && w->secret[0];
    if (had)
        mg_log(MG_WARN, "there is no token in the item's secret; the environment key is used", MG_F_STR("work", w->id));
    if (!key)
        return mg_err_set(
            err, MG_EINVAL,
            "%s, and there is no environment key: set ANTHROPIC_WORK_SECRET, or ANTHROPIC_ENVIRONMENT_KEY",
            had ? "the item's secret holds no token" : "the item has no secret");
    *ret = mg_xstrdup(key);
    return MG_OK;
}

/* What this release does not prepare for a session: it is served without, and not silently. */
static void say_missing(struct mg_arena *a, const struct mg_json *session, const char *id)
{
    const struct mg_json *skills = mg_json_get(mg_json_get(session, "agent"), "skills");
    const struct mg_json *resources = mg_json_get(session, "resources");
    if (mg_json_is(skills, MG_JSON_ARRAY) && skills->n > 0)
        mg_log(MG_WARN, "the session's skills are not prepared by this release", MG_F_STR("session", id),
               MG_F_INT("skills", skills->n));
    for (uint32_t i = 0; mg_json_is(resources, MG_JSON_ARRAY) && i < resources->n; i++) {
        struct mg_sv type = mg_json_get_str(a, mg_json_at(resources, i), "type");
        mg_log(MG_WARN, "a resource of the session is not prepared by this release", MG_F_STR("session", id),
               MG_F_SV("type", type));
    }
}

/* The session's status; MG_OK also for one that is terminated. */
static mg_rc get_session(const struct mg_remote *r, const char *id, struct mg_tether *t, bool *ret_terminated,
                         struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(8192);
    mg_auto(remote_answer) struct mg_remote_answer a;
    mg_auto(arena) struct mg_arena *arena = mg_arena_new();
    struct mg_json *v = NULL;
    (void)mg_buf_str(&path, "/v1/sessions/");
    (void)mg_buf_percent(&path, mg_sv_of(id));
    const struct mg_remote_req q = {
        .method = "GET", .path = path.ptr, .max_bytes = 64 * 1024 * 1024, .cancel = t->leave};
    mg_rc rc = mg_remote_call(r, &q, &a, err);
    if (rc == MG_OK)
        rc = mg_json_parse(arena, mg_buf_view(&a.body), &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "session %s", id);

    *ret_terminated = mg_sv_eqz(mg_json_get_str(arena, v, "status"), "terminated");
    if (!*ret_terminated)
        say_missing(arena, v, id);
    return MG_OK;
}

static void stop_item(const struct mg_remote *r, const struct mg_work_item *w)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(8192);
    mg_auto(remote_answer) struct mg_remote_answer a;
    struct mg_err err = {0};
    (void)mg_buf_str(&path, "/v1/environments/");
    (void)mg_buf_percent(&path, mg_sv_of(w->environment_id));
    (void)mg_buf_str(&path, "/work/");
    (void)mg_buf_percent(&path, mg_sv_of(w->id));
    (void)mg_buf_str(&path, "/stop");
    const struct mg_remote_req q = {
        .method = "POST", .path = path.ptr, .body = MG_SV("{\"force\":true}"), .call_ms = MG_SERVE_STOP_MS / 3};
    mg_rc rc = mg_remote_call(r, &q, &a, &err);
    if (rc < 0 && a.status != 409) /* somebody stopped it before */
        mg_log(MG_ERROR, "the item could not be stopped; its lease will run out", MG_F_STR("work", w->id),
               MG_F_STR("error", err.text));
}

static mg_rc serve_session(const struct mg_serve_opts *o, const struct mg_remote *r, const struct mg_work_item *w,
                           struct mg_tether *t, bool *ret_abandoned, struct mg_err *err)
{
    bool terminated = false;
    struct mg_toolbox *box = NULL;
    mg_rc rc = get_session(r, w->session_id, t, &terminated, err);
    if (rc < 0)
        return rc;
    if (terminated) {
        mg_log(MG_INFO, "the session is terminated; nothing to serve", MG_F_STR("session", w->session_id));
        return MG_OK;
    }
    rc = mg_toolbox_open(&o->toolbox, w->session_id, &box, err);
    if (rc < 0)
        return rc;
    const struct mg_runner_opts run = {
        .remote = r,
        .session_id = w->session_id,
        .tether = t,
        .toolbox = box,
        .max_idle_ms = o->max_idle_ms,
    };
    enum mg_runner_end end = mg_runner_run(&run, ret_abandoned, err);
    if (!*ret_abandoned)
        mg_toolbox_close(box);
    mg_log(MG_INFO, end == MG_RUNNER_IDLE ? "the session is idle and is left" : "the session is left",
           MG_F_STR("session", w->session_id));
    return end == MG_RUNNER_FAILED ? (err->rc < 0 ? err->rc : MG_EINTERNAL) : MG_OK;
}

/* What happened, seen from the tether. */
static mg_rc verdict(struct mg_tether *t, mg_rc rc, struct mg_err *err)
{
    switch (mg_tether_ended(t)) {
    case MG_TETHER_LOST:
        return mg_err_set(err, MG_EFENCED, "the lease was lost; nothing more was sent");
    case MG_TETHER_STOP:
        return mg_err_set(err, MG_ECANCELED, "stopped");
    case MG_TETHER_RUNS:
    case MG_TETHER_STOPPING:
    case MG_TETHER_OVER:
    case MG_TETHER_REFUSED:
        break;
    }
    return rc;
}

static void explain_early_end(const struct mg_work_item *w, const struct mg_err *err)
{
    mg_log(MG_ERROR,
           "the item was over before its first heartbeat: whoever handed it over stopped it, or its lease ran out. "
           "Wait for the "
           "child in the --on-work script, or use mango-worker supervise",
           MG_F_STR("work", w->id), MG_F_STR("error", err->text));
}

mg_rc mg_serve(const struct mg_serve_opts *o, const struct mg_work_item *w, struct mg_tether *t, bool *ret_abandoned,
               struct mg_err *err)
{
    char *token = NULL;
    struct mg_lease *lease = NULL;
    *ret_abandoned = false;
    mg_rc rc = credential(o, w, &token, err);
    if (rc < 0)
        return rc;
    mg_auto(remote) struct mg_remote *r = mg_remote_new(o->net, o->base_url, token, HELPER);
    mg_wipe(token, strlen(token));
    free(token);
    rc = mg_lease_open(r, w->environment_id, w->id, t, &lease, err);
    if (rc == MG_EFENCED || rc == MG_ENOTFOUND)
        explain_early_end(w, err);
    if (rc == MG_OK && strcmp(w->type, "session") == 0 && mg_tether_ended(t) == MG_TETHER_RUNS)
        rc = serve_session(o, r, w, t, ret_abandoned, err);
    /* An item whose lease is another's is left alone, and one whose lease may be is asked about first. */
    if (lease)
        (void)mg_tether_may_send(t);
    bool ours = mg_tether_ended(t) != MG_TETHER_LOST;
    mg_lease_close(lease);
    if (ours)
        stop_item(r, w);
    return lease ? verdict(t, rc, err) : rc;
}
