#include "events/hub.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "json/write.h"

/* Concurrency: `inbox` and `n_subs` are shared; everything else belongs to the owner's thread. */

enum {
    REVOKED_MAX =
        256 /* credentials: far more than are revoked within the moment between a look at one and its subscription */
};

enum mail_kind { MAIL_PUBLISH, MAIL_PREVIEW, MAIL_WAKE, MAIL_TICK, MAIL_LOADED, MAIL_REVOKE, MAIL_CALL };

struct mail {
    struct mail *next;
    enum mail_kind kind;
    struct mg_id id; /* session, or the credential of MAIL_REVOKE */
    int64_t head;
    uint64_t token;
    mg_rc rc;
    void (*fn)(void *ctx, struct mg_hub *hub);
    void *ctx;
    int n;
    struct mg_event *events[];
};

/* Events seq ring_lo+1 .. head, without a hole, are in ring[] (a circular array). */
struct topic {
    struct mg_id session;
    int64_t ring_lo, head;
    int64_t known; /* events up to here exist, as far as somebody told us */
    struct mg_event *ring[MG_HUB_RING_EVENTS];
    unsigned first, count; /* of ring */
    size_t bytes;
    uint64_t load_token; /* 0: no load runs */
    bool dirty;          /* a load failed */
    bool loaded_once;
    bool gone;
    struct mg_list subs;
};

struct preview {
    struct mg_list link;
    int64_t after; /* shown when the subscriber has been given events up to here */
    struct mg_event *event;
};

struct mg_sub {
    struct mg_list link; /* topic.subs */
    struct mg_hub *hub;
    struct topic *topic;
    struct mg_sub_opts opts;
    int64_t cursor;
    struct mg_event **page; /* behind the ring: a page from the database */
    int page_n, page_at;
    uint64_t load_token;
    struct mg_list previews;
    int n_previews;
    bool muted; /* no previews until the next event_start */
    bool live;
    bool load_failed;
    enum mg_sub_end end;
};

struct pending {
    struct topic *topic;
    struct mg_sub *sub; /* NULL: a load of the topic itself */
};

struct mg_hub {
    struct mg_hub_opts opts;
    pthread_mutex_t lock; /* of inbox */
    struct mail *inbox, **inbox_tail;
    atomic_int n_subs;
    struct mg_map *topics;  /* session id -> struct topic */
    struct mg_map *pending; /* token bytes -> struct pending */
    uint64_t next_token;
    struct mg_id revoked[REVOKED_MAX]; /* the latest ones: a ring */
    unsigned n_revoked;
};

/* ---- events ---- */

struct mg_event *mg_event_new(int64_t seq, struct mg_sv id, struct mg_sv type, struct mg_sv thread_id,
                              struct mg_sv json)
{
    struct mg_event *e = mg_xmalloc(sizeof(*e) + id.len + type.len + thread_id.len + json.len);
    char *p = (char *)(e + 1);
    struct mg_sv parts[] = {id, type, thread_id, json};
    for (size_t i = 0; i < 4; i++) {
        if (parts[i].len)
            memcpy(p, parts[i].ptr, parts[i].len);
        parts[i].ptr = p;
        p += parts[i].len;
    }
    *e = (struct mg_event){
        .seq = seq, .id = parts[0], .type = parts[1], .thread_id = parts[2], .json = parts[3], .refs = 1};
    return e;
}

struct mg_event *mg_event_ref(struct mg_event *e)
{
    __atomic_add_fetch(&e->refs, 1, __ATOMIC_RELAXED);
    return e;
}

void mg_event_unref(struct mg_event *e)
{
    if (e && __atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(e);
}

/* ---- inbox ---- */

static void mail_send(struct mg_hub *h, struct mail *m)
{
    m->next = NULL;
    pthread_mutex_lock(&h->lock);
    bool was_empty = h->inbox == NULL;
    *h->inbox_tail = m;
    h->inbox_tail = &m->next;
    pthread_mutex_unlock(&h->lock);
    if (was_empty)
        h->opts.wakeup(h->opts.ctx);
}

static struct mail *mail_new(enum mail_kind kind, const struct mg_id *id, struct mg_event **events, int n)
{
    struct mail *m = mg_xcalloc(1, sizeof(*m) + (size_t)n * sizeof(struct mg_event *));
    m->kind = kind;
    if (id)
        m->id = *id;
    m->n = n;
    for (int i = 0; i < n; i++)
        m->events[i] = events[i];
    return m;
}

bool mg_hub_idle(const struct mg_hub *h)
{
    return atomic_load(&h->n_subs) == 0;
}

void mg_hub_publish(struct mg_hub *h, const struct mg_id *session, struct mg_event **events, int n)
{
    /* A subscriber that comes after this look reads the database, where these events already are. */
    if (mg_hub_idle(h)) {
        for (int i = 0; i < n; i++)
            mg_event_unref(events[i]);
        return;
    }
    mail_send(h, mail_new(MAIL_PUBLISH, session, events, n));
}

void mg_hub_preview(struct mg_hub *h, const struct mg_id *session, struct mg_event *e)
{
    if (mg_hub_idle(h))
        mg_event_unref(e);
    else
        mail_send(h, mail_new(MAIL_PREVIEW, session, &e, 1));
}

void mg_hub_wake(struct mg_hub *h, const struct mg_id *session, int64_t head_seq)
{
    if (mg_hub_idle(h))
        return;
    struct mail *m = mail_new(MAIL_WAKE, session, NULL, 0);
    m->head = head_seq;
    mail_send(h, m);
}

void mg_hub_tick(struct mg_hub *h)
{
    if (!mg_hub_idle(h))
        mail_send(h, mail_new(MAIL_TICK, NULL, NULL, 0));
}

void mg_hub_loaded(struct mg_hub *h, uint64_t token, struct mg_event **events, int n, mg_rc rc)
{
    struct mail *m = mail_new(MAIL_LOADED, NULL, events, n);
    m->token = token;
    m->rc = rc;
    mail_send(h, m);
}

void mg_hub_revoke(struct mg_hub *h, struct mg_sv key_id)
{
    struct mail *m = mail_new(MAIL_REVOKE, NULL, NULL, 0);
    if (mg_id_from(key_id, &m->id))
        mail_send(h, m);
    else
        free(m);
}

void mg_hub_call(struct mg_hub *h, void (*fn)(void *ctx, struct mg_hub *hub), void *ctx)
{
    struct mail *m = mail_new(MAIL_CALL, NULL, NULL, 0);
    m->fn = fn;
    m->ctx = ctx;
    mail_send(h, m);
}

/* ---- loads from the database ---- */

static struct mg_sv token_key(const uint64_t *token)
{
    return mg_sv_n((const char *)token, sizeof(*token));
}

static uint64_t load_start(struct mg_hub *h, struct topic *t, struct mg_sub *s, int64_t after)
{
    struct pending *p = mg_xcalloc(1, sizeof(*p));
    *p = (struct pending){.topic = t, .sub = s};
    uint64_t token = ++h->next_token;
    mg_map_put(h->pending, token_key(&token), p);
    if (s)
        h->opts.load(h->opts.ctx, &t->session, after, MG_HUB_SUB_EVENTS, MG_HUB_SUB_BYTES, token);
    else
        h->opts.load(h->opts.ctx, &t->session, after, MG_HUB_PAGE_EVENTS, MG_HUB_PAGE_BYTES, token);
    return token;
}

static void load_forget(struct mg_hub *h, uint64_t token)
{
    if (token)
        free(mg_map_del(h->pending, token_key(&token)));
}

static void topic_load(struct mg_hub *h, struct topic *t)
{
    if (t->load_token == 0 && !t->gone)
        t->load_token = load_start(h, t, NULL, t->head);
}

/* ---- topics ---- */

static struct topic *topic_get(struct mg_hub *h, const struct mg_id *session)
{
    return mg_map_get(h->topics, mg_id_sv(session));
}

static void ring_drop_first(struct topic *t)
{
    struct mg_event *e = t->ring[t->first];
    t->ring_lo = e->seq;
    t->bytes -= e->json.len;
    t->first = (t->first + 1) % MG_HUB_RING_EVENTS;
    t->count--;
    mg_event_unref(e);
}

/* e is the event after head; takes the reference. */
static void ring_push(struct topic *t, struct mg_event *e)
{
    while (t->count && (t->count == MG_HUB_RING_EVENTS || t->bytes + e->json.len > MG_HUB_RING_BYTES))
        ring_drop_first(t);
    t->head = e->seq;
    if (e->json.len > MG_HUB_RING_BYTES) {
        t->ring_lo = e->seq;
        mg_event_unref(e);
        return;
    }
    t->ring[(t->first + t->count) % MG_HUB_RING_EVENTS] = e;
    t->count++;
    t->bytes += e->json.len;
}

static void subs_ready(struct topic *t)
{
    mg_list_each (it, &t->subs) {
        struct mg_sub *s = mg_container_of(it, struct mg_sub, link);
        s->opts.ready(s->opts.ctx);
    }
}

/* Takes the references. True when the topic got something new. */
static bool topic_append(struct topic *t, struct mg_event **events, int n)
{
    bool news = false;
    for (int i = 0; i < n; i++) {
        struct mg_event *e = events[i];
        if (e->seq > t->known)
            t->known = e->seq;
        if (e->seq == t->head + 1 && !t->gone) {
            ring_push(t, e);
            news = true;
        } else {
            mg_event_unref(e);
        }
    }
    return news;
}

static void topic_free(struct mg_hub *h, struct topic *t)
{
    load_forget(h, t->load_token);
    while (t->count)
        ring_drop_first(t);
    mg_map_del(h->topics, mg_id_sv(&t->session));
    free(t);
}

static struct mg_event *event_deleted(const struct topic *t)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024);
    struct mg_jw w = mg_jw_to(&b);
    struct mg_id id = mg_id_new("sevt");
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "id", mg_id_sv(&id));
    mg_jw_kstrz(&w, "type", "session.deleted");
    mg_jw_ktime(&w, "processed_at", mg_wall_us());
    mg_jw_obj_end(&w);
    return mg_event_new(t->head + 1, mg_id_sv(&id), MG_SV("session.deleted"), MG_SV(""), mg_buf_view(&b));
}

/* The session's rows are gone, so another node deleted it: its last event was never stored. */
static void topic_gone(struct topic *t)
{
    if (t->gone)
        return;
    struct mg_event *e = event_deleted(t);
    topic_append(t, &e, 1);
    t->gone = true;
    subs_ready(t);
}

/* ---- mail ---- */

static void on_publish(struct mg_hub *h, struct mail *m)
{
    struct topic *t = topic_get(h, &m->id);
    if (!t) {
        for (int i = 0; i < m->n; i++)
            mg_event_unref(m->events[i]);
        return;
    }
    if (topic_append(t, m->events, m->n))
        subs_ready(t);
    if (t->known > t->head)
        topic_load(h, t); /* publishes came out of order, or another node wrote in between */
}

static void previews_clear(struct mg_sub *s)
{
    mg_list_each (it, &s->previews) {
        struct preview *p = mg_container_of(it, struct preview, link);
        mg_list_del(&p->link);
        mg_event_unref(p->event);
        free(p);
    }
    s->n_previews = 0;
}

static void sub_preview(struct mg_sub *s, struct mg_event *e)
{
    bool start = mg_sv_eqz(e->type, "event_start");
    if (!(e->preview == 1 ? s->opts.deltas_message : s->opts.deltas_thinking))
        return;
    if (start)
        s->muted = false;
    if (s->muted)
        return;
    if (s->n_previews >= MG_HUB_SUB_PREVIEWS) {
        previews_clear(s);
        s->muted = true;
        return;
    }
    struct preview *p = mg_xcalloc(1, sizeof(*p));
    p->after = s->topic->head;
    p->event = mg_event_ref(e);
    mg_list_add_tail(&s->previews, &p->link);
    s->n_previews++;
    s->opts.ready(s->opts.ctx);
}

static void on_preview(struct mg_hub *h, struct mail *m)
{
    struct topic *t = topic_get(h, &m->id);
    if (t) {
        mg_list_each (it, &t->subs)
            sub_preview(mg_container_of(it, struct mg_sub, link), m->events[0]);
    }
    mg_event_unref(m->events[0]);
}

static void on_wake(struct mg_hub *h, struct mail *m)
{
    struct topic *t = topic_get(h, &m->id);
    if (!t)
        return;
    if (m->head > t->known)
        t->known = m->head;
    if (m->head == 0 || t->known > t->head)
        topic_load(h, t);
}

static void sub_loaded(struct mg_sub *s, struct mail *m)
{
    s->load_token = 0;
    if (m->rc == MG_ENOTFOUND) {
        topic_gone(s->topic);
        s->cursor = s->topic->ring_lo; /* what was between is gone with the session */
    } else if (m->rc < 0) {
        s->load_failed = true;
        return;
    }
    free(s->page);
    s->page = mg_xmalloc(sizeof(struct mg_event *) * (size_t)(m->n ? m->n : 1));
    s->page_n = m->n;
    s->page_at = 0;
    for (int i = 0; i < m->n; i++)
        s->page[i] = mg_event_ref(m->events[i]);
    s->opts.ready(s->opts.ctx);
}

static void topic_loaded(struct mg_hub *h, struct topic *t, struct mail *m)
{
    t->load_token = 0;
    if (m->rc == MG_ENOTFOUND) {
        topic_gone(t);
        return;
    }
    t->dirty = m->rc < 0;
    if (m->rc < 0)
        return;
    t->loaded_once = true;
    for (int i = 0; i < m->n; i++)
        mg_event_ref(m->events[i]);
    topic_append(t, m->events, m->n);
    /* A page ends by its bytes or by its count: only an empty one says that there is no more. */
    if (t->known > t->head || m->n > 0)
        topic_load(h, t);
    subs_ready(t); /* also when nothing came: the history is known to be done now */
}

static void on_loaded(struct mg_hub *h, struct mail *m)
{
    struct pending *p = mg_map_del(h->pending, token_key(&m->token));
    if (p && p->sub)
        sub_loaded(p->sub, m);
    else if (p)
        topic_loaded(h, p->topic, m);
    free(p);
    for (int i = 0; i < m->n; i++)
        mg_event_unref(m->events[i]);
}

static void tick_topic(void *ctx, struct mg_sv key, void *value)
{
    (void)key;
    struct topic *t = value;
    if (t->dirty)
        topic_load(ctx, t);
    mg_list_each (it, &t->subs) {
        struct mg_sub *s = mg_container_of(it, struct mg_sub, link);
        if (s->load_failed) {
            s->load_failed = false;
            s->opts.ready(s->opts.ctx); /* its next mg_sub_next asks again */
        }
    }
}

static void revoke_topic(void *ctx, struct mg_sv key, void *value)
{
    (void)key;
    const struct mg_id *id = ctx;
    struct topic *t = value;
    mg_list_each (it, &t->subs) {
        struct mg_sub *s = mg_container_of(it, struct mg_sub, link);
        if (strcmp(s->opts.key_id.s, id->s) == 0) {
            s->end = MG_SUB_REVOKED;
            s->opts.ready(s->opts.ctx);
        }
    }
}

static void mail_handle(struct mg_hub *h, struct mail *m)
{
    switch (m->kind) {
    case MAIL_PUBLISH:
        on_publish(h, m);
        break;
    case MAIL_PREVIEW:
        on_preview(h, m);
        break;
    case MAIL_WAKE:
        on_wake(h, m);
        break;
    case MAIL_TICK:
        mg_map_each(h->topics, tick_topic, h);
        break;
    case MAIL_LOADED:
        on_loaded(h, m);
        break;
    case MAIL_REVOKE:
        h->revoked[h->n_revoked++ % REVOKED_MAX] = m->id;
        mg_map_each(h->topics, revoke_topic, &m->id);
        break;
    case MAIL_CALL:
        m->fn(m->ctx, h);
        break;
    }
}

static struct mail *inbox_take(struct mg_hub *h)
{
    pthread_mutex_lock(&h->lock);
    struct mail *all = h->inbox;
    h->inbox = NULL;
    h->inbox_tail = &h->inbox;
    pthread_mutex_unlock(&h->lock);
    return all;
}

void mg_hub_run(struct mg_hub *h)
{
    for (struct mail *m = inbox_take(h), *next; m; m = next) {
        next = m->next;
        mail_handle(h, m);
        free(m);
    }
}

/* ---- subscribers ---- */

/* A credential that was revoked between the look at it and the subscription. */
static bool is_revoked(const struct mg_hub *h, const struct mg_id *key)
{
    for (unsigned i = 0; i < h->n_revoked && i < REVOKED_MAX; i++) {
        if (strcmp(h->revoked[i].s, key->s) == 0)
            return true;
    }
    return false;
}

struct mg_sub *mg_sub_new(struct mg_hub *h, const struct mg_sub_opts *o)
{
    atomic_fetch_add(&h->n_subs, 1);
    struct topic *t = topic_get(h, &o->session);
    if (!t) {
        t = mg_xcalloc(1, sizeof(*t));
        t->session = o->session;
        t->ring_lo = t->head = t->known = o->after_seq;
        mg_list_init(&t->subs);
        mg_map_put(h->topics, mg_id_sv(&t->session), t);
        /* What was committed between the look at the cursor and now. */
        topic_load(h, t);
    }
    struct mg_sub *s = mg_xcalloc(1, sizeof(*s));
    *s = (struct mg_sub){.hub = h, .topic = t, .opts = *o, .cursor = o->after_seq, .muted = true};
    if (is_revoked(h, &o->key_id))
        s->end = MG_SUB_REVOKED;
    mg_list_init(&s->previews);
    mg_list_add_tail(&t->subs, &s->link);
    if (o->after_seq > t->head) {
        if (o->after_seq > t->known)
            t->known = o->after_seq;
        topic_load(h, t);
    }
    return s;
}

void mg_sub_free(struct mg_sub *s)
{
    if (!s)
        return;
    struct mg_hub *h = s->hub;
    load_forget(h, s->load_token);
    previews_clear(s);
    for (int i = s->page_at; i < s->page_n; i++)
        mg_event_unref(s->page[i]);
    free(s->page);
    mg_list_del(&s->link);
    if (mg_list_empty(&s->topic->subs))
        topic_free(h, s->topic);
    atomic_fetch_sub(&h->n_subs, 1);
    free(s);
}

static struct mg_event *next_preview(struct mg_sub *s)
{
    if (mg_list_empty(&s->previews))
        return NULL;
    struct preview *p = mg_container_of(s->previews.next, struct preview, link);
    if (p->after > s->cursor)
        return NULL;
    struct mg_event *e = p->event;
    mg_list_del(&p->link);
    free(p);
    s->n_previews--;
    return e;
}

static struct mg_event *next_from_page(struct mg_sub *s)
{
    while (s->page_at < s->page_n) {
        struct mg_event *e = s->page[s->page_at++];
        if (e->seq == s->cursor + 1)
            return e;
        mg_event_unref(e);
    }
    free(s->page);
    s->page = NULL;
    s->page_n = s->page_at = 0;
    return NULL;
}

static struct mg_event *next_from_ring(const struct mg_sub *s)
{
    const struct topic *t = s->topic;
    if (s->cursor < t->ring_lo || s->cursor >= t->head)
        return NULL;
    unsigned at = t->first + (unsigned)(s->cursor - t->ring_lo);
    return mg_event_ref(t->ring[at % MG_HUB_RING_EVENTS]);
}

static bool topic_settled(const struct topic *t)
{
    return t->gone || (t->loaded_once && t->load_token == 0 && !t->dirty && t->known <= t->head);
}

struct mg_event *mg_sub_next(struct mg_sub *s, bool *ret_live, enum mg_sub_end *ret_end)
{
    struct mg_event *e = s->end ? NULL : next_preview(s);
    if (!e && !s->end) {
        e = next_from_page(s);
        if (!e)
            e = next_from_ring(s);
        if (e)
            s->cursor = e->seq;
        else if (s->cursor < s->topic->ring_lo && s->load_token == 0 && !s->load_failed)
            s->load_token = load_start(s->hub, s->topic, s, s->cursor);
    }
    if (s->cursor >= s->topic->head && topic_settled(s->topic))
        s->live = true;
    *ret_live = s->live;
    *ret_end = e ? 0 : s->end;
    if (e && e->seq && mg_sv_eqz(e->type, "session.deleted"))
        s->end = MG_SUB_DELETED;
    return e;
}

enum mg_sub_end mg_sub_ended(const struct mg_sub *s)
{
    return s->end;
}

struct each {
    void (*fn)(void *ctx, const struct mg_id *session, int64_t head);
    void *ctx;
};

static void each_topic(void *ctx, struct mg_sv key, void *value)
{
    (void)key;
    const struct each *e = ctx;
    const struct topic *t = value;
    e->fn(e->ctx, &t->session, t->head);
}

void mg_hub_each_topic(struct mg_hub *h, void (*fn)(void *ctx, const struct mg_id *session, int64_t head), void *ctx)
{
    mg_map_each(h->topics, each_topic, &(struct each){.fn = fn, .ctx = ctx});
}

struct mg_hub *mg_hub_new(const struct mg_hub_opts *o)
{
    struct mg_hub *h = mg_xcalloc(1, sizeof(*h));
    h->opts = *o;
    pthread_mutex_init(&h->lock, NULL);
    h->inbox_tail = &h->inbox;
    h->topics = mg_map_new();
    h->pending = mg_map_new();
    return h;
}

void mg_hub_free(struct mg_hub *h)
{
    if (!h)
        return;
    for (struct mail *m = inbox_take(h), *next; m; m = next) {
        next = m->next;
        for (int i = 0; i < m->n; i++)
            mg_event_unref(m->events[i]);
        free(m);
    }
    mg_map_free(h->topics);
    mg_map_free(h->pending);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
