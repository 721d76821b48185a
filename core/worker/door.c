/* The door of libmango-worker: worker.h over the parts of this folder. */
#include "worker/worker.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "worker/lease.h"
#include "worker/memory.h"
#include "worker/poll.h"
#include "worker/runner.h"
#include "worker/serve.h"

#define DOOR __attribute__((visibility("default")))

enum { TOOLS_MAX = 256 /* of an agent; a worker needs no more */, ROOTS_MAX = MG_WORKSPACE_ROOTS_MAX };

/* Concurrency: the log sink is one for the process, so the first worker that is open has it. */
static atomic_flag log_in_use = ATOMIC_FLAG_INIT;

struct mango_work {
    struct mg_work_item item;
};

struct mango_worker {
    struct mg_net *net;
    struct mg_serve_opts serve;
    char *base_url, *environment_id, *environment_key, *worker_id, *workdir, *roots[ROOTS_MAX + 1];
    struct mango_tool tools[TOOLS_MAX];
    struct mango_executor executor;
    struct mg_poller_opts poll;
    mango_worker_log_fn *log;

    void *log_ctx;
    bool logs;              /* the process's sink is ours */
    pthread_mutex_t lock;   /* of what stands below */
    struct mg_list tethers; /* sessions that are served */
    struct mg_list pollers; /* of mango_worker_run and mango_poller_open */
    bool stopping;
};

struct mango_poller {
    struct mg_list link;
    struct mango_worker *worker;
    struct mg_remote *remote;
    struct mg_poller *poller;
};

static void log_line(void *ctx, enum mg_log_level level, struct mg_sv line)
{
    const struct mango_worker *w = ctx;

    if (w->log)
        w->log(w->log_ctx, (int32_t)level, line.ptr, line.len);
}

static int32_t say(mg_rc rc, const char *text, char *err, size_t err_size)
{
    if (rc < 0 && err && err_size > 0)
        (void)snprintf(err, err_size, "%s", text);
    return rc;
}

static char *dup_or_null(const char *z)
{
    return z && *z ? mg_xstrdup(z) : NULL;
}

/* ---- options ---- */

static mg_rc take_tools(struct mango_worker *w, const struct mango_worker_options *o, struct mg_err *err)
{
    if (o->n_tools > TOOLS_MAX)
        return mg_err_set(err, MG_EINVAL, "at most %d tools", TOOLS_MAX);
    for (uint32_t i = 0; i < o->n_tools; i++) {
        const struct mango_tool *t = &o->tools[i];
        if (t->struct_size < sizeof(*t) || !t->name || !*t->name || !t->run)
            return mg_err_set(err, MG_EINVAL,
                              "tool %u: struct_size must be sizeof(struct mango_tool); name and run are required", i);
        w->tools[i] = *t;
        w->tools[i].name = mg_xstrdup(t->name);
        w->serve.toolbox.n_tools++;
    }
    w->serve.toolbox.tools = w->tools;
    if (!o->executor)
        return MG_OK;
    const struct mango_executor *x = o->executor;
    if (x->struct_size < sizeof(*x) || !x->open || !x->has || !x->call || !x->close)
        return mg_err_set(
            err, MG_EINVAL,
            "the executor: struct_size must be sizeof(struct mango_executor); all four functions are required");
    w->executor = *x;
    w->serve.toolbox.executor = &w->executor;
    return MG_OK;
}

static mg_rc take_folders(struct mango_worker *w, const struct mango_worker_options *o, struct mg_err *err)
{
    const char *dir = o->workdir && *o->workdir ? o->workdir : ".";
    int n = 0;
    w->workdir = realpath(dir, NULL);
    if (!w->workdir)
        return mg_err_errno(err, errno, "the work folder %s", dir);
    for (const char *const *r = o->allowed_roots; r && *r; r++) {
        if (n == ROOTS_MAX)
            return mg_err_set(err, MG_EINVAL, "at most %d allowed roots", ROOTS_MAX);
        w->roots[n] = realpath(*r, NULL);
        if (!w->roots[n++])
            return mg_err_errno(err, errno, "the allowed root %s", *r);
    }
    w->serve.toolbox.workspace = (struct mg_workspace_opts){
        .root = w->workdir,
        .allowed = (const char *const *)w->roots,
        .unrestricted = o->unrestricted_paths != 0,
    };
    if (o->executor)
        return MG_OK;
    /* Once for trial: what is missing here must end the start, not every item. */
    struct mg_workspace *ws = NULL;
    mg_rc rc = mg_workspace_open(&w->serve.toolbox.workspace, &ws, err);
    mg_workspace_close(ws);
    return rc < 0 ? mg_err_wrap(err, rc, "the tools") : MG_OK;
}

static mg_rc take_options(struct mango_worker *w, const struct mango_worker_options *o, struct mg_err *err)
{
    w->base_url = dup_or_null(o->base_url);
    w->environment_id = dup_or_null(o->environment_id);
    w->environment_key = dup_or_null(o->environment_key);
    w->worker_id = dup_or_null(o->worker_id);
    w->serve.base_url = w->base_url;
    w->serve.environment_key = w->environment_key;
    w->serve.max_idle_ms = o->max_idle_ms == MANGO_WORKER_FOREVER ? 0
                           : o->max_idle_ms                       ? o->max_idle_ms
                                                                  : MG_RUNNER_IDLE_MS;
    w->serve.memory_sync_ms = o->memory_sync_ms == MANGO_WORKER_FOREVER ? 0
                              : o->memory_sync_ms                       ? o->memory_sync_ms
                                                                        : MG_MEMORY_SYNC_MS;
    w->poll = (struct mg_poller_opts){
        .environment_id = w->environment_id,
        .worker_id = w->worker_id,
        .drain = o->drain != 0,
        .reclaim_older_than_ms = o->reclaim_older_than_ms > 0 ? o->reclaim_older_than_ms : -1,
        .gap_min_ms = o->poll_gap_ms,
        .gap_max_ms = o->poll_gap_ms,
    };
    const struct mg_net_opts no = {.name = "mg-worker", .ca_file = o->ca_file, .proxy = o->proxy};
    mg_rc rc = mg_net_check_url(mg_sv_of(w->base_url ? w->base_url : MG_REMOTE_HOSTED), &no, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "the base URL");
    if ((rc = take_tools(w, o, err)) < 0 || (rc = take_folders(w, o, err)) < 0)
        return rc;
    rc = mg_net_open(&no, &w->net, err);
    w->serve.net = w->net;
    return rc;
}

DOOR int32_t mango_worker_open(const struct mango_worker_options *options, struct mango_worker **ret, char *err,
                               size_t err_size)
{
    struct mg_err e = {0};
    if (!options || !ret || options->struct_size < sizeof(*options))
        return say(MG_EINVAL, "mango_worker_open: options.struct_size must be sizeof(struct mango_worker_options)", err,
                   err_size);
    struct mango_worker *w = mg_xcalloc(1, sizeof(*w));
    pthread_mutex_init(&w->lock, NULL);
    mg_list_init(&w->tethers);
    mg_list_init(&w->pollers);

    w->log = options->log;
    w->log_ctx = options->log_ctx;
    w->logs = !atomic_flag_test_and_set(&log_in_use);
    if (w->logs)
        mg_log_set_sink(log_line, w);
    mg_rc rc = take_options(w, options, &e);
    if (rc < 0) {
        mango_worker_close(w);
        return say(rc, e.text, err, err_size);
    }
    *ret = w;
    return MANGO_WORKER_OK;
}

static void forget(char *secret)
{
    if (secret)
        mg_wipe(secret, strlen(secret));
    free(secret);
}

DOOR void mango_worker_close(struct mango_worker *w)
{
    if (!w)
        return;
    mg_net_close(w->net);

    if (w->logs) {
        mg_log_set_sink(NULL, NULL);
        atomic_flag_clear(&log_in_use);
    }
    for (unsigned i = 0; i < w->serve.toolbox.n_tools; i++)
        free((char *)w->tools[i].name);
    for (int i = 0; i < ROOTS_MAX && w->roots[i]; i++)
        free(w->roots[i]);
    forget(w->environment_key);
    free(w->base_url);
    free(w->environment_id);
    free(w->worker_id);
    free(w->workdir);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

DOOR void mango_worker_stop(struct mango_worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    mg_list_each (it, &w->tethers)
        mg_tether_end(mg_container_of(it, struct mg_tether, link), MG_TETHER_STOP);
    mg_list_each (it, &w->pollers)
        mg_poller_cancel(mg_container_of(it, struct mango_poller, link)->poller);
    pthread_mutex_unlock(&w->lock);
}

/* ---- serving ---- */

static void tie(struct mango_worker *w, struct mg_tether *t)
{
    mg_tether_init(t);
    pthread_mutex_lock(&w->lock);
    mg_list_add_tail(&w->tethers, &t->link);
    if (w->stopping)
        mg_tether_end(t, MG_TETHER_STOP);
    pthread_mutex_unlock(&w->lock);
}

static void untie(struct mango_worker *w, struct mg_tether *t)
{
    pthread_mutex_lock(&w->lock);
    mg_list_del(&t->link);
    pthread_mutex_unlock(&w->lock);
    mg_tether_done(t);
}

static mg_rc serve(struct mango_worker *w, const struct mg_work_item *item, bool *ret_abandoned, struct mg_err *err)
{
    struct mg_tether t;
    tie(w, &t);
    mg_rc rc = mg_serve(&w->serve, item, &t, ret_abandoned, err);
    untie(w, &t);
    return rc;
}

DOOR int32_t mango_worker_serve(struct mango_worker *w, const struct mango_work *work, char *err, size_t err_size)
{
    struct mg_err e = {0};
    bool abandoned;
    mg_rc rc = serve(w, &work->item, &abandoned, &e);
    return say(rc, e.text, err, err_size);
}

DOOR int32_t mango_worker_attach(struct mango_worker *w, const char *session_id, const char *credential, char *err,
                                 size_t err_size)
{
    struct mg_err e = {0};
    struct mg_tether t;
    struct mg_toolbox *box = NULL;
    bool abandoned = false;
    mg_rc rc = mg_toolbox_open(&w->serve.toolbox, session_id, &box, &e);
    if (rc < 0)
        return say(rc, e.text, err, err_size);
    mg_auto(remote) struct mg_remote *r = mg_remote_new(w->net, w->base_url, credential, "session-tool-runner");
    tie(w, &t);
    const struct mg_runner_opts o = {
        .remote = r, .session_id = session_id, .tether = &t, .toolbox = box, .max_idle_ms = w->serve.max_idle_ms};
    enum mg_runner_end end = mg_runner_run(&o, &abandoned, &e);
    untie(w, &t);
    if (!abandoned)
        mg_toolbox_close(box);
    rc = end == MG_RUNNER_FAILED   ? (e.rc < 0 ? e.rc : MG_EINTERNAL)
         : end == MG_RUNNER_TETHER ? mg_err_set(&e, MG_ECANCELED, "stopped")
                                   : MG_OK;
    return say(rc, e.text, err, err_size);
}

/* ---- polling ---- */

static mg_rc open_poller(struct mango_worker *w, struct mango_poller **ret, struct mg_err *err)
{
    struct mango_poller *p = mg_xcalloc(1, sizeof(*p));
    p->worker = w;
    mg_list_init(&p->link);
    p->remote = mg_remote_new(w->net, w->base_url, w->environment_key, "environments-work-poller");
    mg_rc rc = mg_poller_open(p->remote, &w->poll, &p->poller, err);
    if (rc < 0) {
        mg_remote_free(p->remote);
        free(p);
        return rc;
    }
    pthread_mutex_lock(&w->lock);
    mg_list_add_tail(&w->pollers, &p->link);
    if (w->stopping)
        mg_poller_cancel(p->poller);
    pthread_mutex_unlock(&w->lock);
    *ret = p;
    return MG_OK;
}

DOOR int32_t mango_poller_open(struct mango_worker *w, struct mango_poller **ret, char *err, size_t err_size)
{
    struct mg_err e = {0};
    return say(open_poller(w, ret, &e), e.text, err, err_size);
}

DOOR void mango_poller_close(struct mango_poller *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->worker->lock);
    mg_list_del(&p->link);
    pthread_mutex_unlock(&p->worker->lock);
    mg_poller_close(p->poller);
    mg_remote_free(p->remote);
    free(p);
}

DOOR int32_t mango_poller_next(struct mango_poller *p, struct mango_work **ret, char *err, size_t err_size)
{
    struct mg_err e = {0};
    struct mango_work *work = mg_xcalloc(1, sizeof(*work));
    mg_rc rc = mg_poller_next(p->poller, &work->item, &e);
    if (rc == MG_OK) {
        *ret = work;
        return MANGO_WORKER_OK;
    }
    mango_work_free(work);
    return say(rc, rc == MG_ECANCELED ? "stopped" : e.text, err, err_size);
}

DOOR void mango_poller_cancel(struct mango_poller *p)
{
    mg_poller_cancel(p->poller);
}

/* One item after the other. MG_OK: stopped, or drained. */
static mg_rc run_items(struct mango_worker *w, struct mango_poller *p, struct mg_err *err)
{
    for (;;) {
        mg_auto(work_item) struct mg_work_item item = {0};
        struct mg_err why = {0};
        bool abandoned = false;
        mg_rc rc = mg_poller_next(p->poller, &item, err);
        if (rc == MG_ECANCELED || rc == MG_EGONE)
            return MG_OK;
        if (rc < 0)
            return rc;
        rc = serve(w, &item, &abandoned, &why);
        if (abandoned)
            return mg_err_set(err, MG_EINTERNAL,
                              "a tool does not return from its call; this process cannot serve any more");
        if (rc < 0 && rc != MG_ECANCELED && rc != MG_EFENCED)
            mg_log(MG_ERROR, "the item failed", MG_F_STR("work", item.id), MG_F_STR("error", why.text));
    }
}

DOOR int32_t mango_worker_run(struct mango_worker *w, char *err, size_t err_size)
{
    struct mg_err e = {0};
    struct mango_poller *p = NULL;
    mg_rc rc = open_poller(w, &p, &e);
    if (rc == MG_OK)
        rc = run_items(w, p, &e);
    mango_poller_close(p);
    return say(rc, e.text, err, err_size);
}

/* ---- items ---- */

DOOR struct mango_work *mango_work_new(const char *id, const char *environment_id, const char *session_id,
                                       const char *secret)
{
    if (!id || !*id || !environment_id || !*environment_id || !session_id || !*session_id)
        return NULL;
    struct mango_work *work = mg_xcalloc(1, sizeof(*work));
    mg_work_item_set(&work->item, id, environment_id, session_id, secret);
    return work;
}

DOOR int32_t mango_work_continue(struct mango_work *work, const char *last_heartbeat)
{
    size_t n = last_heartbeat ? strlen(last_heartbeat) : 0;
    if (n == 0 || n >= MG_LEASE_STAMP_MAX)
        return MG_EINVAL;
    free(work->item.last_heartbeat);
    work->item.last_heartbeat = mg_xstrdup(last_heartbeat);
    return MANGO_WORKER_OK;
}

DOOR void mango_work_free(struct mango_work *work)
{
    if (!work)
        return;
    mg_work_item_done(&work->item);
    free(work);
}

DOOR const char *mango_work_id(const struct mango_work *work)
{
    return work->item.id;
}

DOOR const char *mango_work_environment_id(const struct mango_work *work)
{
    return work->item.environment_id;
}

DOOR const char *mango_work_session_id(const struct mango_work *work)
{
    return work->item.session_id;
}

DOOR const char *mango_work_type(const struct mango_work *work)
{
    return work->item.type;
}

DOOR const char *mango_work_secret(const struct mango_work *work)
{
    return work->item.secret;
}

DOOR const char *mango_work_json(const struct mango_work *work)
{
    return work->item.json ? work->item.json : "";
}

DOOR const char *mango_worker_version(void)
{
    return MANGO_VERSION;
}
