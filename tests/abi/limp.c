/* The backend `local` as a poor service would offer it: a command cannot be killed, and its output comes as text (bytes that are no UTF-8 are lost).
 * The core's helper has to make up for both. Built by tests/unit/test-conformance.c. */
#include "local-copy.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "common/chunk.h"

enum {
    KEPT_MAX = 1 << 24,
    LOOK_MS = 2,          /* between two looks at the cancel, which wakes nobody */
    ENDS_WAIT_MS = 20000, /* for the commands that still run at the end */
};

/* A command that runs on, whatever its caller does. */
struct job {
    struct boxes *local;
    struct mango_exec_req req; /* with copies of all that it points to */
    struct mango_exec_result result;
    struct mango_sv id;
    mango_status status;
    char *out[2];
    size_t n[2];
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ended;
    bool done, left; /* left: nobody waits for it */
};

static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_ended = PTHREAD_COND_INITIALIZER;
static unsigned n_jobs; /* guarded by jobs_lock */

static struct timespec in_ms(long ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static struct mango_sv copy(struct mango_sv s)
{
    char *p = malloc(s.len + 1);
    if (s.len)
        memcpy(p, s.ptr, s.len);
    return (struct mango_sv){p, s.len};
}

static struct mango_sv *copies(const struct mango_sv *l, uint64_t n)
{
    struct mango_sv *c = calloc(n + 1, sizeof(*c));
    for (uint64_t i = 0; i < n; i++)
        c[i] = copy(l[i]);
    return c;
}

static int32_t on_job_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct job *j = ctx;
    int i = stream == 2;
    size_t take = n < KEPT_MAX - j->n[i] ? (size_t)n : KEPT_MAX - j->n[i];
    for (size_t b = 0; b < take; b++) /* what a text interface makes of bytes */
        j->out[i][j->n[i] + b] = (unsigned char)p[b] < 0x80 ? p[b] : '?';
    j->n[i] += take;
    return 0;
}

static void job_free(struct job *j)
{
    for (uint64_t i = 0; i < j->req.n_argv; i++)
        free((void *)j->req.argv[i].ptr);
    for (uint64_t i = 0; i < j->req.n_env; i++)
        free((void *)j->req.env[i].ptr);
    free((void *)j->req.argv);
    free((void *)j->req.env);
    free((void *)j->req.cwd.ptr);
    free((void *)j->req.stdin_data.ptr);
    free((void *)j->id.ptr);
    free(j->out[0]);
    free(j->out[1]);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->ended);
    free(j);
}

static void *job_main(void *arg)
{
    struct job *j = arg;
    struct mango_call call = {.struct_size = sizeof(call)};
    mango_status s = hostbox_exec(j->local, &call, j->id, &j->req, &j->result);
    pthread_mutex_lock(&j->lock);
    j->status = s;
    j->done = true;
    pthread_cond_signal(&j->ended);
    bool left = j->left;
    pthread_mutex_unlock(&j->lock);
    if (left)
        job_free(j);
    pthread_mutex_lock(&jobs_lock);
    if (--n_jobs == 0)
        pthread_cond_broadcast(&jobs_ended);
    pthread_mutex_unlock(&jobs_lock);
    return NULL;
}

static struct job *job_start(struct boxes *l, struct mango_sv id, const struct mango_exec_req *req)
{
    struct job *j = calloc(1, sizeof(*j));
    pthread_t t;
    *j = (struct job){.local = l, .req = *req, .id = copy(id), .result = {.struct_size = sizeof(j->result)}};
    j->req.argv = copies(req->argv, req->n_argv);
    j->req.env = copies(req->env, req->n_env);
    j->req.cwd = copy(req->cwd);
    j->req.stdin_data = copy(req->stdin_data);
    j->req.sink = on_job_output;
    j->req.sink_ctx = j;
    j->req.limit_ns = j->req.max_output = 0;
    j->out[0] = malloc(KEPT_MAX);
    j->out[1] = malloc(KEPT_MAX);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->ended, NULL);
    pthread_mutex_lock(&jobs_lock);
    n_jobs++;
    pthread_mutex_unlock(&jobs_lock);
    pthread_create(&t, NULL, job_main, j);
    pthread_detach(t);
    return j;
}

static mango_status job_end(const struct mango_call *call, struct job *j, const struct mango_exec_req *req,
                            struct mango_exec_result *ret)
{
    mango_status s = j->status;
    if (s < 0)
        (void)j->local->host->err_set(j->local->host, call, s, "the service refused the command", NULL, 0);
    *ret = j->result;
    for (int i = 0; i < 2; i++) {
        struct chunk c = chunk_to(req->sink, req->sink_ctx, i + 1, req->max_output);
        chunk_feed(&c, j->out[i], j->n[i]);
        chunk_end(&c);
    }
    job_free(j);
    return s;
}

static mango_status limp_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    struct boxes *l = ctx;
    if (l->host->cancelled(l->host, call)) {
        ret->cancelled = 1;
        return MANGO_ECANCELED;
    }
    struct job *j = job_start(l, id, req);
    for (;;) {
        bool cancel = l->host->cancelled(l->host, call) != 0;
        bool late = req->limit_ns && l->host->now_ns(l->host) >= req->limit_ns;
        const struct timespec look = in_ms(LOOK_MS);
        pthread_mutex_lock(&j->lock);
        if (!j->done && !cancel && !late)
            (void)pthread_cond_clockwait(&j->ended, &j->lock, CLOCK_MONOTONIC, &look);
        bool done = j->done;
        j->left = !done && (cancel || late);
        pthread_mutex_unlock(&j->lock);
        if (done)
            return job_end(call, j, req, ret);
        if (cancel || late) { /* it runs on */
            ret->cancelled = cancel;
            ret->timed_out = !cancel;
            return cancel ? MANGO_ECANCELED : MANGO_OK;
        }
    }
}

static void limp_fini(void *ctx)
{
    const struct timespec until = in_ms(ENDS_WAIT_MS);
    pthread_mutex_lock(&jobs_lock);
    while (n_jobs > 0 && pthread_cond_clockwait(&jobs_ended, &jobs_lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        continue;
    pthread_mutex_unlock(&jobs_lock);
    local_fini(ctx);
}

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    copy_local("limp");
    mine.caps = (mine.caps & ~MANGO_CAP_PROC) | MANGO_TRAIT_NO_KILL | MANGO_TRAIT_TEXT_OUTPUT;
    mine.fini = limp_fini;
    mine_ops.exec = limp_exec;
    return &mine;
}
