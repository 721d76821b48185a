#include "service/webhook.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "domain/vault.h"
#include "net/loop.h"
#include "store/webhook.h"

enum {
    LOOK_MS = 500,             /* between two looks for what is due, while a webhook is active */
    PURGE_MS = 10 * 60 * 1000, /* between two looks for what is too old */
    PURGE_MAX = 1000,          /* events of one statement */
    BODY_MAX = 4096,           /* bytes of a notice: a few ids */
    ERROR_MAX = 200,           /* bytes of a kept error */
    SIGNATURE_MAX = 64,        /* bytes of "v1," and a digest as base64: 47 */
};
_Static_assert(MG_WEBHOOK_CLAIM_S * 1000 > 2 * MG_WEBHOOK_SEND_MS, "a claim outlives its try");

struct mg_webhooks {
    struct mg_webhooks_opts opts;
    struct mg_pg *pg;   /* the thread's */
    struct mg_net *net; /* the thread's; opened by the first delivery */
    struct mg_id claim; /* of this process */
    unsigned sending;   /* the thread's: started, and not noted yet */
    uint64_t purge_ns;  /* the thread's */
    bool active;        /* the thread's: there is a webhook that is */
    bool unsure;        /* the thread's: active is to be read again */
    bool failing;       /* the thread's: the log has been told */
    pthread_t thread;
    pthread_mutex_t lock; /* of the following */
    pthread_cond_t changed;
    struct mg_list ended; /* tries */
    bool hooks_changed;   /* the thread has not seen it yet */
    bool stopping;
    atomic_llong n_delivered, n_retried, n_given_up;
};

/* One try. Made and freed by the thread; the loop writes the result, and then puts it into ended. */
struct attempt {
    struct mg_list link;
    struct mg_webhooks *webhooks;
    struct mg_arena *arena;
    struct mg_delivery d; /* in arena */
    mg_rc rc;
    int status;
    char text[ERROR_MAX + 1];
};

mg_rc mg_webhook_url_check(struct mg_sv url, bool allow_private, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_sv normal;
    if (!mg_server_url_normal(a, url, &normal))
        return mg_err_set(err, MG_EINVAL,
                          "the URL must be an https:// URL of at most %d printable ASCII bytes without user, password "
                          "and fragment",
                          MG_CREDENTIAL_URL_MAX);
    if (allow_private)
        return MG_OK;
    if (!mg_sv_starts(normal, "https://"))
        return mg_err_set(err, MG_EINVAL,
                          "the URL must begin with https://: whoever is on the way could read and repeat notices; "
                          "MANGO_WEBHOOK_ALLOW_PRIVATE=1 allows http");
    if (mg_server_url_has_port(normal))
        return mg_err_set(err, MG_EINVAL,
                          "the URL must name port 443 or none; MANGO_WEBHOOK_ALLOW_PRIVATE=1 allows "
                          "others");
    return mg_net_check_url(url, &(struct mg_net_opts){.public_only = true}, err);
}

/* ---- one try; the callbacks run on the loop's thread ---- */

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    (void)ctx;
    (void)p;
    (void)n;
    return MG_NET_DRAIN; /* what it says besides its status is of no interest */
}

static void on_done(void *ctx, const struct mg_net_result *r)
{
    struct attempt *t = ctx;
    struct mg_webhooks *w = t->webhooks;
    t->rc = r->rc;
    t->status = r->status;
    (void)snprintf(t->text, sizeof(t->text), "%s", r->text ? r->text : "");
    pthread_mutex_lock(&w->lock);
    mg_list_add_tail(&w->ended, &t->link);
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void attempt_free(struct attempt *t)
{
    mg_arena_free(t->arena);
    free(t);
}

static struct attempt *attempt_new(struct mg_webhooks *w, const struct mg_delivery *d)
{
    struct attempt *t = mg_xcalloc(1, sizeof(*t));
    t->webhooks = w;
    t->arena = mg_arena_new();
    t->d = *d;
    struct mg_sv *const views[] = {&t->d.webhook, &t->d.seq, &t->d.event.id, &t->d.event.type};
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        *views[i] = mg_arena_sv(t->arena, *views[i]);
    return t;
}

static mg_rc post(struct mg_webhooks *w, const struct mg_delivery *d, struct attempt *t, struct mg_err *err)
{
    mg_auto(secret) struct mg_buf key = MG_BUF_INIT(MG_WEBHOOK_KEY);
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(BODY_MAX), signature = MG_BUF_INIT(SIGNATURE_MAX);
    char timestamp[24];
    int64_t now_s = mg_wall_us() / 1000000;
    mg_rc rc = mg_webhook_url_check(d->url, w->opts.allow_private, err);
    if (rc >= 0)
        rc = mg_delivery_key(w->opts.keyring, d, &key, err);
    if (rc < 0)
        return rc;
    if (mg_webhook_body(&d->event, mg_id_sv(&w->opts.organization), &body) < 0 ||
        mg_webhook_sign(mg_buf_view(&key), d->event.id, now_s, mg_buf_view(&body), &signature) < 0)
        return mg_err_set(err, MG_EINTERNAL, "the notice is too long");
    (void)snprintf(timestamp, sizeof(timestamp), "%" PRId64, now_s);
    const struct mg_net_header headers[] = {
        {MG_SV("content-type"), MG_SV("application/json")},
        {MG_SV("user-agent"), MG_SV("mango-webhook/1")},
        {MG_SV("webhook-id"), d->event.id},
        {MG_SV("webhook-timestamp"), mg_sv_of(timestamp)},
        {MG_SV("webhook-signature"), mg_buf_view(&signature)},
    };
    (void)mg_net_start(w->net, &(struct mg_net_req){
                                   .method = MG_SV("POST"),
                                   .url = d->url,
                                   .headers = headers,
                                   .n_headers = sizeof(headers) / sizeof(headers[0]),
                                   .body = mg_buf_view(&body),
                                   .total_ms = MG_WEBHOOK_SEND_MS,
                                   .on_body = on_body,
                                   .on_done = on_done,
                                   .ctx = t,
                               });
    return MG_OK;
}

/* ---- the thread ---- */

static void note(struct mg_webhooks *w, const struct attempt *t)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_err err = {0};
    bool delivered = t->rc >= 0 && t->status >= 200 && t->status < 300;
    struct mg_sv why = t->rc < 0 ? mg_sv_of(t->text) : mg_arena_printf(a, "it answered with status %d", t->status);
    int tries = (int)t->d.tries + 1;
    bool last = tries >= MG_WEBHOOK_TRIES;
    const struct mg_delivery_end e = {
        .webhook = t->d.webhook,
        .seq = t->d.seq,
        .claim = mg_id_sv(&w->claim),
        .error = delivered ? mg_p_null() : why,
        .retry_ms = mg_webhook_retry_ms(tries),
    };
    mg_hook("webhook.sent");
    if (mg_delivery_done(a, w->pg, &e, &err) < 0) /* its claim runs out, and it is sent once more */
        mg_log(MG_WARN, "what became of a notice cannot be written", MG_F_STR("error", err.text));
    atomic_fetch_add(delivered ? &w->n_delivered : last ? &w->n_given_up : &w->n_retried, 1);
    if (!delivered)
        mg_log(MG_WARN, last ? "a webhook was not told: no try is left" : "a webhook was not told; it is tried again",
               MG_F_SV("webhook", t->d.webhook), MG_F_SV("event", t->d.event.id), MG_F_SV("type", t->d.event.type),
               MG_F_INT("tries", tries), MG_F_SV("error", why));
}

static struct attempt *next_ended(struct mg_webhooks *w)
{
    struct attempt *t = NULL;
    pthread_mutex_lock(&w->lock);
    if (!mg_list_empty(&w->ended)) {
        t = mg_container_of(w->ended.next, struct attempt, link);
        mg_list_del(&t->link);
    }
    pthread_mutex_unlock(&w->lock);
    return t;
}

static void note_ended(struct mg_webhooks *w, bool stopping)
{
    for (struct attempt *t; (t = next_ended(w)); attempt_free(t)) {
        w->sending--;
        if (!stopping || t->rc != MG_ECANCELED)
            note(w, t);
    }
}

static mg_rc open_net(struct mg_webhooks *w, struct mg_err *err)
{
    const struct mg_net_opts o = {
        .name = "mg-webhooks", .ca_file = w->opts.ca_file, .public_only = !w->opts.allow_private};
    return w->net ? MG_OK : mg_net_open(&o, &w->net, err);
}

static mg_rc send_due(struct mg_webhooks *w, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_delivery *due = NULL;
    int n = 0;
    if (w->sending >= MG_WEBHOOK_SENDING_MAX)
        return MG_OK;
    mg_rc rc = mg_deliveries_claim(a, w->pg, mg_id_sv(&w->claim), (int)(MG_WEBHOOK_SENDING_MAX - w->sending), &r, &due,
                                   &n, err);
    if (rc >= 0 && n)
        rc = open_net(w, err);
    for (int i = 0; rc >= 0 && i < n; i++) {
        struct attempt *t = attempt_new(w, &due[i]);
        struct mg_err why = {0};
        mg_hook("webhook.claimed");
        w->sending++;
        mg_rc started = post(w, &due[i], t, &why);
        if (started < 0)
            on_done(t, &(struct mg_net_result){.rc = started, .text = why.text});
    }
    return rc;
}

static bool take_changed(struct mg_webhooks *w)
{
    pthread_mutex_lock(&w->lock);
    bool changed = w->hooks_changed;
    w->hooks_changed = false;
    pthread_mutex_unlock(&w->lock);
    return changed;
}

static mg_rc round_of(struct mg_webhooks *w, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    uint64_t now = mg_now_ns();
    mg_rc rc = MG_OK;
    w->unsure |= take_changed(w);
    if (w->unsure)
        rc = mg_webhook_any(w->pg, &w->active, err);
    w->unsure = rc < 0;
    if (rc >= 0 && w->active)
        rc = send_due(w, err);
    if (rc < 0 || now < w->purge_ns)
        return rc;
    w->purge_ns = now + PURGE_MS * UINT64_C(1000000);
    return mg_webhook_purge(a, w->pg, PURGE_MAX, err);
}

/* False: the end. */
static bool wait_turn(struct mg_webhooks *w)
{
    uint64_t look_ns = mg_now_ns() + LOOK_MS * UINT64_C(1000000);
    uint64_t until_ns = w->active || w->failing ? look_ns : w->purge_ns;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping && !w->hooks_changed && mg_list_empty(&w->ended) &&
           mg_cond_wait_until(&w->changed, &w->lock, until_ns))
        ;
    bool stop = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return !stop;
}

static void *webhooks_main(void *arg)
{
    struct mg_webhooks *w = arg;
    (void)pthread_setname_np(pthread_self(), "mango-webhooks");
    do {
        struct mg_err err = {0};
        note_ended(w, false);
        bool failed = round_of(w, &err) < 0;
        if (failed && !w->failing)
            mg_log(MG_WARN, "webhooks are not told for now", MG_F_STR("error", err.text));
        w->failing = failed;
    } while (wait_turn(w));
    mg_net_close(w->net); /* every try has ended then */
    note_ended(w, true);
    struct mg_err err = {0};
    if (mg_deliveries_release(w->pg, mg_id_sv(&w->claim), &err) < 0)
        mg_log(MG_WARN, "claimed notices wait until their claims are over", MG_F_STR("error", err.text));
    return NULL;
}

mg_rc mg_webhooks_start(const struct mg_webhooks_opts *o, struct mg_webhooks **ret, struct mg_err *err)
{
    struct mg_webhooks *w = mg_xcalloc(1, sizeof(*w));
    w->opts = *o;
    w->claim = mg_id_new("claim");
    w->pg = mg_pg_new(o->conninfo);
    pthread_mutex_init(&w->lock, NULL);
    mg_cond_init(&w->changed);
    mg_list_init(&w->ended);
    w->unsure = true;
    int e = mg_thread_start(&w->thread, NULL, webhooks_main, w);
    if (e == 0) {
        *ret = w;
        return MG_OK;
    }
    mg_pg_free(w->pg);
    free(w);
    return mg_err_errno(err, e, "cannot start the thread of the webhooks");
}

void mg_webhooks_changed(struct mg_webhooks *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->hooks_changed = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void mg_webhooks_stop(struct mg_webhooks *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    mg_pg_free(w->pg);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- metrics ---- */

void mg_webhooks_metrics(struct mg_webhooks *w, struct mg_pg *pg, struct mg_buf *out)
{
    int64_t waiting = 0, oldest_s = 0;
    struct mg_err err;
    if (!w)
        return;
    (void)mg_buf_printf(out,
                        "# HELP mango_webhook_tries_total Notices that this node sent, by what became of them.\n"
                        "# TYPE mango_webhook_tries_total counter\n"
                        "mango_webhook_tries_total{result=\"delivered\"} %lld\n"
                        "mango_webhook_tries_total{result=\"retried\"} %lld\n"
                        "mango_webhook_tries_total{result=\"given_up\"} %lld\n",
                        atomic_load(&w->n_delivered), atomic_load(&w->n_retried), atomic_load(&w->n_given_up));
    if (mg_deliveries_waiting(pg, &waiting, &oldest_s, &err) < 0)
        return;
    (void)mg_buf_printf(out,
                        "# HELP mango_webhook_pending Notices that wait, of all nodes.\n"
                        "# TYPE mango_webhook_pending gauge\nmango_webhook_pending %" PRId64 "\n"
                        "# HELP mango_webhook_oldest_pending_seconds Age of the oldest of them.\n"
                        "# TYPE mango_webhook_oldest_pending_seconds gauge\n"
                        "mango_webhook_oldest_pending_seconds %" PRId64 "\n",
                        waiting, oldest_s);
}
