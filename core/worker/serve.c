#include "worker/serve.h"

#include "base/log.h"
#include "json/write.h"
#include "worker/lease.h"
#include "worker/memory.h"
#include "worker/runner.h"
#include "worker/skills.h"

enum {
    PATH_BYTES = 8192,                /* of a request's path */
    SESSION_BYTES = 64 * 1024 * 1024, /* of a session as the server shows it: its agents with all their texts */
};

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

/* Arena memory. */
static mg_rc get_session(const struct mg_remote *r, const char *id, struct mg_tether *t, struct mg_arena *arena,
                         struct mg_json **ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    mg_auto(remote_answer) struct mg_remote_answer a = {0};
    (void)mg_buf_str(&path, "/v1/sessions/");
    (void)mg_buf_percent(&path, mg_sv_of(id));
    const struct mg_remote_req q = {.method = "GET", .path = path.ptr, .max_bytes = SESSION_BYTES, .cancel = t->leave};
    mg_rc rc = mg_remote_call(r, &q, &a, err);
    if (rc == MG_OK)
        rc = mg_json_parse(arena, mg_arena_sv(arena, mg_buf_view(&a.body)), &mg_json_raw_limits, ret, err);
    return rc < 0 ? mg_err_wrap(err, rc, "session %s", id) : MG_OK;
}

static void item_path(struct mg_buf *path, const struct mg_work_item *w, const char *verb)
{
    (void)mg_buf_str(path, "/v1/environments/");
    (void)mg_buf_percent(path, mg_sv_of(w->environment_id));
    (void)mg_buf_str(path, "/work/");
    (void)mg_buf_percent(path, mg_sv_of(w->id));
    (void)mg_buf_str(path, verb);
}

static void stop_item(const struct mg_remote *r, const struct mg_work_item *w)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    mg_auto(remote_answer) struct mg_remote_answer a = {0};
    struct mg_err err = {0};
    item_path(&path, w, "/stop");
    const struct mg_remote_req q = {
        .method = "POST", .path = path.ptr, .body = MG_SV("{\"force\":true}"), .call_ms = MG_SERVE_STOP_MS / 3};
    mg_rc rc = mg_remote_call(r, &q, &a, &err);
    if (rc < 0 && a.status != 409) /* somebody stopped it before */
        mg_log(MG_ERROR, "the item could not be stopped; its lease will run out", MG_F_STR("work", w->id),
               MG_F_STR("error", err.text));
}

/* Ends the session of an item that no worker can ever serve, and says why in it. False: the server has no such thing (it is Mango's own), or
 * did not take it. */
static bool fail_item(const struct mg_remote *r, const struct mg_work_item *w, const char *why)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES), body = MG_BUF_INIT(16 * MG_ERR_TEXT_MAX);
    mg_auto(remote_answer) struct mg_remote_answer a = {0};
    struct mg_jw j = mg_jw_to(&body);
    struct mg_err err = {0};
    item_path(&path, w, "/fail");
    mg_jw_obj(&j);
    mg_jw_kstrz(&j, "message", why);
    mg_jw_obj_end(&j);
    const struct mg_remote_req q = {
        .method = "POST", .path = path.ptr, .body = mg_buf_view(&body), .call_ms = MG_SERVE_STOP_MS / 3};
    mg_rc rc = mg_remote_call(r, &q, &a, &err);
    mg_log(MG_ERROR, rc == MG_OK ? "the session was ended: it cannot be prepared" : "the session cannot be prepared",
           MG_F_STR("session", w->session_id), MG_F_STR("error", why));
    return rc == MG_OK;
}

/* ---- one session ---- */

/* What a session has on this machine while it is served. */
struct prepared {
    struct mg_worker_skills *skills;
    struct mg_memories *memories;
    struct mg_toolbox_opts toolbox; /* the operator's, with the folders of the stores */
    const char *allowed[MG_WORKSPACE_ROOTS_MAX + MG_MEMORY_STORES_MAX + 1];
    const char *read_only[MG_WORKSPACE_ROOTS_MAX + MG_MEMORY_STORES_MAX + 1];
};

static mg_rc prepare_memories(const struct mg_serve_opts *o, const struct mg_remote *r, const struct mg_work_item *w,
                              const struct mg_json *session, struct mg_tether *t, struct prepared *p,
                              struct mg_err *err)
{
    const struct mg_json *resources = mg_json_get(session, "resources");
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    if (!mg_memory_any(a, resources))
        return MG_OK;
    if (!o->memory_sync_ms) {
        mg_log(MG_INFO, "the session is served without its memory stores, as asked",
               MG_F_STR("session", w->session_id));
        return MG_OK;
    }
    mg_autofree char *token = mg_work_item_token(w);
    if (!token)
        return mg_err_set(err, MG_EUNAVAIL,
                          "the item has no token, and the environment key has no right to the session's memory stores; "
                          "--memory-sync 0 serves it without them");
    mg_wipe(token, strlen(token));
    const struct mg_memory_opts m = {
        .remote = r, .tether = t, .workdir = o->toolbox.workspace.root, .interval_ms = o->memory_sync_ms};
    return mg_memories_prepare(&m, resources, &p->memories, err);
}

static void join_roots(const char **to, const char *const *operators, const struct mg_memories *m, bool read_only)
{
    unsigned n = 0;
    for (; operators && operators[n] && n < MG_WORKSPACE_ROOTS_MAX; n++)
        to[n] = operators[n];
    n += m ? mg_memories_roots(m, read_only, to + n) : 0;
    to[n] = NULL;
}

static mg_rc prepare(const struct mg_serve_opts *o, const struct mg_remote *r, const struct mg_work_item *w,
                     const struct mg_json *session, struct mg_tether *t, struct prepared *p, struct mg_err *err)
{
    const struct mg_json *skills = mg_json_get(mg_json_get(session, "agent"), "skills");
    mg_rc rc = mg_worker_skills_prepare(r, o->toolbox.workspace.root, skills, t, &p->skills, err);
    if (rc == MG_OK)
        rc = prepare_memories(o, r, w, session, t, p, err);
    if (rc < 0)
        return rc;
    p->toolbox = o->toolbox;
    join_roots(p->allowed, o->toolbox.workspace.allowed, p->memories, false);
    join_roots(p->read_only, o->toolbox.workspace.read_only, p->memories, true);
    p->toolbox.workspace.allowed = p->allowed;
    p->toolbox.workspace.read_only = p->read_only;
    return MG_OK;
}

static void unprepare(struct prepared *p, bool clean, bool tools_run)
{
    mg_worker_skills_remove(p->skills);
    mg_memories_end(p->memories, clean, tools_run);
}

static void after_call(void *ctx)
{
    const struct prepared *p = ctx;
    if (p->memories)
        mg_memories_sync_due(p->memories);
}

static mg_rc run(const struct mg_serve_opts *o, const struct mg_remote *r, const struct mg_work_item *w,
                 struct mg_tether *t, struct prepared *p, bool *ret_clean, bool *ret_abandoned, struct mg_err *err)
{
    struct mg_toolbox *box = NULL;
    mg_rc rc = mg_toolbox_open(&p->toolbox, w->session_id, &box, err);
    if (rc < 0)
        return rc;
    const struct mg_runner_opts run = {
        .remote = r,
        .session_id = w->session_id,
        .tether = t,
        .toolbox = box,
        .max_idle_ms = o->max_idle_ms,
        .after_call = after_call,
        .ctx = p,
    };
    enum mg_runner_end end = mg_runner_run(&run, ret_abandoned, err);
    if (!*ret_abandoned)
        mg_toolbox_close(box);
    *ret_clean = end == MG_RUNNER_IDLE && mg_tether_ended(t) == MG_TETHER_RUNS;
    mg_log(MG_INFO, end == MG_RUNNER_IDLE ? "the session is idle and is left" : "the session is left",
           MG_F_STR("session", w->session_id));
    return end == MG_RUNNER_FAILED ? (err->rc < 0 ? err->rc : MG_EINTERNAL) : MG_OK;
}

/* *ret_failed: the session is over, and so is its item. */
static mg_rc serve_session(const struct mg_serve_opts *o, const struct mg_remote *r, const struct mg_work_item *w,
                           struct mg_tether *t, bool *ret_abandoned, bool *ret_failed, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *arena = mg_arena_new();
    struct mg_json *session = NULL;
    struct prepared p = {.skills = NULL};
    bool clean = false;
    mg_rc rc = get_session(r, w->session_id, t, arena, &session, err);
    if (rc < 0)
        return rc;
    if (mg_sv_eqz(mg_json_get_str(arena, session, "status"), "terminated")) {
        mg_log(MG_INFO, "the session is terminated; nothing to serve", MG_F_STR("session", w->session_id));
        return MG_OK;
    }
    rc = prepare(o, r, w, session, t, &p, err);
    bool never = rc == MG_EINVAL;
    if (rc == MG_OK)
        rc = run(o, r, w, t, &p, &clean, ret_abandoned, err);
    unprepare(&p, clean, *ret_abandoned);
    if (never && mg_tether_may_send(t) && fail_item(r, w, err->text)) {
        *ret_failed = true;
        rc = MG_OK;
    }
    return rc;
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
    bool failed = false;
    *ret_abandoned = false;
    mg_rc rc = credential(o, w, &token, err);
    if (rc < 0)
        return rc;
    mg_auto(remote) struct mg_remote *r = mg_remote_new(o->net, o->base_url, token, HELPER);
    mg_wipe(token, strlen(token));
    free(token);
    rc = mg_lease_open(r, w->environment_id, w->id, w->last_heartbeat, t, &lease, err);
    if (rc == MG_EFENCED || rc == MG_ENOTFOUND)
        explain_early_end(w, err);
    if (rc == MG_OK && strcmp(w->type, "session") == 0 && mg_tether_ended(t) == MG_TETHER_RUNS)
        rc = serve_session(o, r, w, t, ret_abandoned, &failed, err);
    /* An item whose lease is another's is left alone, and one whose lease may be is asked about first. */
    if (lease && !failed)
        (void)mg_tether_may_send(t);
    bool ours = mg_tether_ended(t) != MG_TETHER_LOST;
    mg_lease_close(lease);
    if (ours && !failed)
        stop_item(r, w);
    return lease && !failed ? verdict(t, rc, err) : rc;
}
