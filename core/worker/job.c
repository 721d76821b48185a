#include "worker/job.h"

#include <stdatomic.h>

#include "base/thread.h"

struct mg_job {
    struct mg_toolbox *box;
    const struct mg_call *call;
    struct mg_cancel *cancel;
    pthread_t thread;
    pthread_mutex_t lock; /* of tether: an abandoned job must not wake it */
    struct mg_tether *tether;
    atomic_bool done;
    struct mg_tool_result result;
    struct mg_err err;
    mg_rc rc;
};

static void *run(void *arg)
{
    struct mg_job *j = arg;
    pthread_setname_np(pthread_self(), "mg-tool");
    j->rc = mg_toolbox_call(j->box, j->call, j->cancel, &j->result, &j->err);
    atomic_store(&j->done, true);
    pthread_mutex_lock(&j->lock);
    if (j->tether)
        mg_tether_wake(j->tether);
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

struct mg_job *mg_job_start(struct mg_toolbox *b, const struct mg_call *c, struct mg_tether *t)
{
    struct mg_job *j = mg_xcalloc(1, sizeof(*j));
    *j = (struct mg_job){.box = b, .call = c, .tether = t, .cancel = mg_cancel_new()};
    pthread_mutex_init(&j->lock, NULL);
    atomic_init(&j->done, false);
    if (mg_thread_start(&j->thread, NULL, run, j) == 0)
        return j;
    pthread_mutex_destroy(&j->lock);
    mg_cancel_unref(j->cancel);
    free(j);
    return NULL;
}

bool mg_job_done(struct mg_job *j)
{
    return atomic_load(&j->done);
}

void mg_job_cancel(struct mg_job *j)
{
    mg_cancel_fire(j->cancel);
}

mg_rc mg_job_collect(struct mg_job *j, struct mg_tool_result *ret, struct mg_err *err)
{
    pthread_join(j->thread, NULL);
    mg_rc rc = j->rc;
    *ret = j->result;
    *err = j->err;
    pthread_mutex_destroy(&j->lock);
    mg_cancel_unref(j->cancel);
    free(j);
    return rc;
}

void mg_job_abandon(struct mg_job *j)
{
    pthread_mutex_lock(&j->lock);
    j->tether = NULL;
    pthread_mutex_unlock(&j->lock);
    pthread_detach(j->thread);
}
