#include "lib/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "events/hub.h"
#include "http/http.h"
#include "run/engine.h"
#include "service/deploy.h"
#include "service/webhook.h"
#include "service/work.h"
#include "store/api-key.h"
#include "store/embedded.h"
#include "store/event-log.h"

/* ---- the hub's owner is the HTTP loop ---- */

void mg_on_hub_mail(void *ctx)
{
    struct mg_server *s = ctx;
    pthread_rwlock_rdlock(&s->http_lock);
    if (s->http)
        mg_http_wake(s->http);
    pthread_rwlock_unlock(&s->http_lock);
}

struct load_job {
    struct mg_server *server;
    struct mg_id session;
    int64_t after;
    int limit;
    size_t max_bytes;
    uint64_t token;
};

static void load_work(void *arg, struct mg_pg *pg)
{
    mg_autofree struct load_job *j = arg;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *r = NULL;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024 * 1024);
    struct mg_event_seen *rows = NULL;
    struct mg_err err = {0};
    int n = 0;
    mg_rc rc =
        mg_events_after(a, pg, mg_id_sv(&j->session), j->after, j->limit, (int64_t)j->max_bytes, &r, &rows, &n, &err);
    struct mg_event **events = mg_arena_alloc(a, sizeof(struct mg_event *) * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        mg_buf_reset(&b);
        (void)mg_event_render(&b, rows[i].body, rows[i].processed_us);
        events[i] = mg_event_new(rows[i].seq, rows[i].id, rows[i].type, rows[i].thread_id, mg_buf_view(&b));
    }
    mg_hub_loaded(j->server->hub, j->token, events, n, rc);
}

void mg_on_hub_load(void *ctx, const struct mg_id *session, int64_t after, int limit, size_t max_bytes, uint64_t token)
{
    struct mg_server *s = ctx;
    struct load_job *j = mg_xmalloc(sizeof(*j));
    *j = (struct load_job){
        .server = s, .session = *session, .after = after, .limit = limit, .max_bytes = max_bytes, .token = token};
    pthread_rwlock_rdlock(&s->http_lock);
    bool taken = s->http && mg_http_run(s->http, load_work, j) == MG_OK;
    pthread_rwlock_unlock(&s->http_lock);
    if (taken)
        return;
    free(j);
    mg_hub_loaded(s->hub, token, NULL, 0, MG_EUNAVAIL); /* the hub asks again at its next tick */
}

/* ---- news from other nodes ---- */

void mg_on_event(void *ctx, struct mg_sv session, int64_t seq)
{
    struct mg_server *s = ctx;
    struct mg_id id;
    if (!mg_id_from(session, &id))
        return;
    mg_hub_wake(s->hub, &id, seq);
    struct mg_engine *e = atomic_load(&s->engine);
    if (e)
        mg_engine_check(e, session);
}

void mg_on_key(void *ctx, struct mg_sv key_id)
{
    struct mg_server *s = ctx;
    mg_key_cache_forget(s->keys, key_id);
    mg_hub_revoke(s->hub, key_id);
    pthread_rwlock_rdlock(&s->http_lock);
    if (s->http)
        mg_http_revoke(s->http, key_id);
    pthread_rwlock_unlock(&s->http_lock);
}

void mg_on_work(void *ctx, struct mg_sv environment)
{
    struct mg_server *s = ctx;
    pthread_rwlock_rdlock(&s->http_lock);
    if (s->http) {
        mg_pollers_news(s->app.pollers, environment); /* before the woken ones look */
        mg_http_unpark(s->http, environment, false);
    }
    pthread_rwlock_unlock(&s->http_lock);
}

void mg_on_second(void *ctx, struct mg_engine *e, struct mg_pg *pg)
{
    const struct mg_server *s = ctx;
    mg_deploys_scan(e, s->sandboxes, pg);
}

void mg_on_webhook(void *ctx)
{
    struct mg_server *s = ctx;
    mg_webhooks_changed(atomic_load(&s->webhooks));
}

void mg_on_gap(void *ctx)
{
    struct mg_server *s = ctx;
    struct mg_engine *e = atomic_load(&s->engine);
    if (e)
        mg_engine_repair(e);
    mg_on_webhook(s);
}

void mg_on_database_down(void *ctx)
{
    struct mg_server *s = ctx;
    struct mg_err err = {0};
    if (s->embedded && mg_embedded_revive(s->embedded, &err) < 0)
        mg_log(MG_ERROR, "the embedded database does not start again", MG_F_STR("error", err.text));
}
