#include "base/clock.h"
#include "base/mem.h"
#include "run/engine-internal.h"
#include "run/gate.h"

/* The engine's side of the gate: runs that wait for their start, in the order in which they came.
 *
 * Concurrency: pace.lock, a leaf. */

struct waiter {
    struct waiter *next;
    struct mg_run *run;
};

struct mg_pace {
    pthread_mutex_t lock;
    struct mg_gate gate;
    struct waiter *first, **last;
    unsigned n;
};

struct mg_pace *mg_pace_new(void)
{
    struct mg_pace *p = mg_xcalloc(1, sizeof(*p));
    pthread_mutex_init(&p->lock, NULL);
    p->last = &p->first;
    return p;
}

void mg_pace_free(struct mg_pace *p)
{
    if (!p)
        return;
    for (struct waiter *w = p->first, *next; w; w = next) {
        next = w->next;
        mg_run_unref(w->run);
        free(w);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

bool mg_pace_enter(struct mg_pace *p, struct mg_run *r)
{
    if (r->admitted)
        return true;
    struct waiter *w = NULL;
    pthread_mutex_lock(&p->lock);
    r->admitted = p->n == 0 && mg_gate_start(&p->gate, mg_now_ns(), 0);
    if (!r->admitted) {
        w = mg_xmalloc(sizeof(*w));
        *w = (struct waiter){.run = mg_run_ref(r)};
        *p->last = w;
        p->last = &w->next;
        p->n++;
    }
    pthread_mutex_unlock(&p->lock);
    if (w)
        mg_clock_look(r->engine);
    return !w;
}

void mg_pace_answer(struct mg_pace *p, struct mg_run *r, enum mg_model_fail fail)
{
    r->admitted = false;
    if (fail == MG_MODEL_CANCELED)
        return;
    pthread_mutex_lock(&p->lock);
    mg_gate_answer(&p->gate, mg_now_ns(), fail == MG_MODEL_RETRY_RATE || fail == MG_MODEL_RETRY_OVERLOADED);
    pthread_mutex_unlock(&p->lock);
}

static struct mg_run *pop(struct mg_pace *p, uint64_t now)
{
    struct mg_run *r = NULL;
    pthread_mutex_lock(&p->lock);
    struct waiter *w = p->first;
    /* A run that was interrupted meanwhile takes no start. */
    if (w && (mg_cancel_fired(w->run->cancel) || mg_gate_start(&p->gate, now, p->n - 1))) {
        r = w->run;
        p->first = w->next;
        p->last = p->first ? p->last : &p->first;
        p->n--;
        free(w);
    }
    pthread_mutex_unlock(&p->lock);
    return r;
}

void mg_pace_go(struct mg_pace *p)
{
    uint64_t now = mg_now_ns();
    for (struct mg_run *r; (r = pop(p, now));) {
        r->admitted = true;
        mg_run_later(r, mg_run_request);
        mg_run_unref(r);
    }
}

uint64_t mg_pace_next_ns(struct mg_pace *p)
{
    pthread_mutex_lock(&p->lock);
    uint64_t next = p->n ? p->gate.next_ns : UINT64_MAX;
    pthread_mutex_unlock(&p->lock);
    return next;
}

void mg_pace_metrics(struct mg_pace *p, struct mg_buf *out)
{
    pthread_mutex_lock(&p->lock);
    double rate = p->gate.rate;
    unsigned n = p->n;
    pthread_mutex_unlock(&p->lock);
    (void)mg_buf_printf(
        out,
        "# HELP mango_model_paced Requests that wait here since the model endpoint is overloaded\n# TYPE "
        "mango_model_paced gauge\nmango_model_paced %u\n"
        "# HELP mango_model_pace Requests a second that are started meanwhile; 0: no limit\n# TYPE "
        "mango_model_pace gauge\nmango_model_pace %.1f\n",
        n, rate);
}
