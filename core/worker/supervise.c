#include "worker/supervise.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "crypto/hash.h"
#include "worker/box.h"
#include "worker/poll.h"
#include "worker/retry.h"

struct mg_supervisor {
    struct mg_supervisor_opts opts;
    struct mg_box_kind boxes; /* what all boxes have in common */
    struct mg_remote *remote;
    struct mg_poller *poller;
    struct mg_cancel *stop;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t less;  /* a box has ended, or stop */
    unsigned live;
    unsigned failures; /* boxes that could not be launched or failed at once, one after another */
};

/* ---- names ---- */

static void key_of(const char *domain, const char *a, const char *b, const char *c, char out[MG_SUPERVISE_KEY])
{
    struct mg_sha256 *h = mg_sha256_new();
    const char *parts[] = {domain, a, b, c};
    char hex[MG_SHA256_HEX];

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        mg_sha256_update(h, parts[i], strlen(parts[i]) + 1);
    mg_sha256_final_hex(h, hex);
    memcpy(out, hex, MG_SUPERVISE_KEY - 1);
    out[MG_SUPERVISE_KEY - 1] = '\0';
}

void mg_supervisor_label(const char *base_url, const char *session_id, char out[MG_SUPERVISE_KEY])
{
    key_of("mango-worker-session-v1", base_url, session_id, "", out);
}

/* ---- one box, on a thread of its own ---- */

struct job {
    struct mg_supervisor *s;
    struct mg_work_item item; /* empty for one that was found */
    char *found;              /* the launcher's id, or NULL */
};

static void box_done(struct mg_supervisor *s, mg_rc launched)
{
    pthread_mutex_lock(&s->lock);
    s->live--;
    s->failures = launched == MG_OK ? 0 : s->failures + 1;
    pthread_cond_broadcast(&s->less);
    pthread_mutex_unlock(&s->lock);
}

static void *run_job(void *ctx)
{
    struct job *j = ctx;
    struct mg_supervisor *s = j->s;
    mg_rc rc = j->found ? mg_box_adopt(&s->boxes, j->found) : mg_box_serve(&s->boxes, &j->item);

    mg_work_item_done(&j->item);
    free(j->found);
    free(j);
    box_done(s, rc);
    return NULL;
}

static void start_job(struct mg_supervisor *s, struct job *j)
{
    pthread_t thread;
    pthread_attr_t detached;

    pthread_mutex_lock(&s->lock);
    s->live++;
    pthread_mutex_unlock(&s->lock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int e = mg_thread_start(&thread, &detached, run_job, j);
    pthread_attr_destroy(&detached);
    if (e) {
        mg_log(MG_ERROR, "no thread for a box: it is served before anything else");
        run_job(j);
    }
}

/* ---- what an earlier supervisor left ---- */

static int32_t on_owned(void *ctx, const struct mango_owned *item)
{
    struct mg_supervisor *s = ctx;
    struct job *j = mg_xcalloc(1, sizeof(*j));

    *j = (struct job){.s = s, .found = mg_xstrndup(item->id.ptr, item->id.len)};
    mg_log(MG_INFO, "a box of an earlier supervisor is found", MG_F_STR("box", j->found));
    start_job(s, j);
    return 0;
}

static void adopt(struct mg_supervisor *s)
{
    struct mg_plugin *p = s->opts.launcher;
    struct mg_err err = {0};

    for (unsigned n = 0; mg_plugin_can(p, MANGO_CAP_LAUNCH_LIST) && !mg_cancel_fired(s->stop); n++) {
        struct mango_call call =
            mg_plugin_call(mg_now_ns() + MG_SUPERVISE_LAUNCH_MS * UINT64_C(1000000), s->stop, &err);
        struct mango_sv owner = {s->boxes.owner, strlen(s->boxes.owner)};
        struct mg_guard g = mg_guard_enter(p, MG_OP_LIST);
        mango_status st = mg_guard_leave(&g, p->launcher->list_owned(p->ctx, &call, owner, on_owned, s));
        if (st >= 0)
            return;
        (void)mg_plugin_rc(p, MG_OP_LIST, st, &err);
        mg_log(MG_WARN, "boxes of earlier supervisors cannot be listed", MG_F_STR("error", err.text));
        (void)mg_retry_sleep(mg_retry_delay_ms(n, MG_SUPERVISE_RETRY_MS, MG_SUPERVISE_RETRY_MAX_MS), s->stop);
    }
}

/* ---- the loop ---- */

/* Until there is room; behind launches that fail one after another not at once. False: stop. */
static bool wait_room(struct mg_supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->live >= s->opts.max_boxes && !mg_cancel_fired(s->stop))
        pthread_cond_wait(&s->less, &s->lock);
    unsigned failures = s->failures;
    pthread_mutex_unlock(&s->lock);
    return failures == 0
               ? !mg_cancel_fired(s->stop)
               : mg_retry_sleep(mg_retry_delay_ms(failures - 1, MG_SUPERVISE_RETRY_MS, MG_SUPERVISE_RETRY_MAX_MS),
                                s->stop);
}

static void wait_empty(struct mg_supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->live > 0)
        pthread_cond_wait(&s->less, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static mg_rc serve(struct mg_supervisor *s, struct mg_err *err)
{
    mg_rc rc = MG_OK;

    while (rc == MG_OK && wait_room(s)) {
        struct job *j = mg_xcalloc(1, sizeof(*j));
        j->s = s;
        rc = mg_poller_next(s->poller, &j->item, err);
        if (rc == MG_OK)
            start_job(s, j);
        else
            free(j);
    }
    return rc == MG_ECANCELED || rc == MG_ENOTFOUND ? MG_OK : rc;
}

mg_rc mg_supervisor_run(struct mg_supervisor *s, struct mg_err *err)
{
    adopt(s);
    mg_rc rc = serve(s, err);
    if (rc < 0)
        mg_log(MG_ERROR, "no further item can be claimed; the boxes go on to their end", MG_F_STR("error", err->text),
               MG_F_INT("boxes", mg_supervisor_boxes(s)));
    wait_empty(s);
    return rc;
}

void mg_supervisor_stop(struct mg_supervisor *s)
{
    mg_cancel_fire(s->stop);
    mg_poller_cancel(s->poller);
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->less);
    pthread_mutex_unlock(&s->lock);
}

unsigned mg_supervisor_boxes(struct mg_supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    unsigned n = s->live;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- making it ---- */

static char *copy(const char *z)
{
    return z && *z ? mg_xstrdup(z) : NULL;
}

static void take_boxes(struct mg_supervisor *s, const struct mg_supervisor_opts *o)
{
    struct mg_box_kind *k = &s->boxes;

    *k = (struct mg_box_kind){.launcher = o->launcher,
                              .net = o->net,
                              .stop = s->stop,
                              .base_url = mg_xstrdup(o->base_url),
                              .box_base_url = mg_xstrdup(o->box_base_url ? o->box_base_url : o->base_url),
                              .environment_id = mg_xstrdup(o->environment_id),
                              .image = copy(o->image),
                              .memory_bytes = o->memory_bytes,
                              .disk_bytes = o->disk_bytes,
                              .cpu_millis = o->cpu_millis,
                              .pids = o->pids,
                              .grace_ms = o->grace_ms ? o->grace_ms : MG_SUPERVISE_GRACE_MS};
    for (size_t i = 0; o->pass && o->pass[i] && k->n_pass < MG_BOX_PASS_MAX; i++)
        k->pass[k->n_pass++] = mg_xstrdup(o->pass[i]);
    for (size_t i = 0; o->worker_args && o->worker_args[i] && k->n_args < MG_BOX_ARGS_MAX; i++)
        k->args[k->n_args++] = mg_xstrdup(o->worker_args[i]);
    key_of("mango-supervisor-v1", o->base_url, o->environment_id, o->name ? o->name : "", k->owner);
}

mg_rc mg_supervisor_new(const struct mg_supervisor_opts *o, struct mg_supervisor **ret, struct mg_err *err)
{
    struct mg_supervisor *s = mg_xcalloc(1, sizeof(*s));
    struct mg_poller_opts poll = {.environment_id = o->environment_id,
                                  .worker_id = o->worker_id,
                                  .drain = o->drain,
                                  .reclaim_older_than_ms = -1,
                                  .gap_min_ms = o->gap_ms,
                                  .gap_max_ms = o->gap_ms};

    s->opts = *o;
    s->opts.max_boxes = o->max_boxes ? o->max_boxes : MG_SUPERVISE_BOXES;
    s->stop = mg_cancel_new();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->less, NULL);
    take_boxes(s, o);
    s->remote = mg_remote_new(o->net, o->base_url, o->environment_key, "environments-work-poller");
    mg_rc rc = mg_poller_open(s->remote, &poll, &s->poller, err);
    if (rc < 0) {
        mg_supervisor_free(s);
        return rc;
    }
    *ret = s;
    return MG_OK;
}

void mg_supervisor_free(struct mg_supervisor *s)
{
    if (!s)
        return;
    mg_poller_close(s->poller);
    mg_remote_free(s->remote);
    free(s->boxes.base_url);
    free(s->boxes.box_base_url);
    free(s->boxes.environment_id);
    free(s->boxes.image);
    for (size_t i = 0; i < s->boxes.n_pass; i++)
        free(s->boxes.pass[i]);
    for (size_t i = 0; i < s->boxes.n_args; i++)
        free(s->boxes.args[i]);
    mg_cancel_unref(s->stop);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->less);
    free(s);
}
