#include <stdio.h>

#include "base/clock.h"
#include "mcp/mcp.h"
#include "run/mcp-work.h"

/* Concurrency: links.lock guards the map and each link's refs and times; link.lock is held through a request, so that a cancelled one ends before the
 * next begins. Lock order: links.lock is never held while link.lock is waited for. */

enum {
    KEY_MAX = 1200,  /* bytes: two ids and a name of 255 characters */
    SCAN_BATCH = 64, /* links that one look under the lock collects */
};

struct mg_mcp_links {
    pthread_mutex_t lock;
    struct mg_map *map; /* "SESSION/THREAD/SERVER" -> struct mg_mcp_link */
    struct mg_mcp_host *host;
    atomic_llong n_calls, n_failed_calls, n_lists, n_failed_lists;
};

struct mg_mcp_link {
    struct mg_mcp_links *links;
    struct mg_id session;
    pthread_mutex_t lock;
    struct mg_mcp *mcp;
    unsigned refs; /* the map holds one */
    uint64_t used_ns;
    char key[KEY_MAX];
};

struct mg_mcp_links *mg_mcp_links_new(struct mg_net *net, uint32_t call_ms)
{
    struct mg_mcp_links *l = mg_xcalloc(1, sizeof(*l));
    pthread_mutex_init(&l->lock, NULL);
    l->map = mg_map_new();
    l->host = net ? mg_mcp_host_new(&(struct mg_mcp_host_opts){.net = net, .call_ms = call_ms}) : NULL;
    return l;
}

static void link_unref(struct mg_mcp_link *k)
{
    pthread_mutex_lock(&k->links->lock);
    bool last = --k->refs == 0;
    pthread_mutex_unlock(&k->links->lock);
    if (!last)
        return;
    mg_mcp_free(k->mcp);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* With the lock held. */
static struct mg_mcp_link *link_new(struct mg_mcp_links *l, const struct mg_id *session, const char *key,
                                    struct mg_sv url)
{
    struct mg_mcp_link *k = mg_xcalloc(1, sizeof(*k));
    k->links = l;
    k->session = *session;
    pthread_mutex_init(&k->lock, NULL);
    k->mcp = mg_mcp_new(l->host, url);
    k->refs = 1;
    (void)snprintf(k->key, sizeof(k->key), "%s", key);
    return k;
}

struct mg_mcp_link *mg_mcp_link_lock(struct mg_mcp_links *l, const struct mg_id *session, const struct mg_id *thread,
                                     struct mg_sv server, struct mg_sv url)
{
    char key[KEY_MAX];
    struct mg_mcp_link *old = NULL;
    if (!l->host)
        return NULL;
    (void)snprintf(key, sizeof(key), "%s/%s/%.*s", session->s, thread->s, MG_SV_ARG(server));
    pthread_mutex_lock(&l->lock);
    struct mg_mcp_link *k = mg_map_get(l->map, mg_sv_of(key));
    if (!k || !mg_sv_eq(mg_mcp_url(k->mcp), url)) {
        k = link_new(l, session, key, url);
        old = mg_map_put(l->map, mg_sv_of(key), k);
    }
    k->refs++;
    k->used_ns = mg_now_ns();
    pthread_mutex_unlock(&l->lock);
    if (old)
        link_unref(old);
    pthread_mutex_lock(&k->lock);
    return k;
}

void mg_mcp_link_unlock(struct mg_mcp_link *k)
{
    pthread_mutex_unlock(&k->lock);
    pthread_mutex_lock(&k->links->lock);
    k->used_ns = mg_now_ns();
    pthread_mutex_unlock(&k->links->lock);
    link_unref(k);
}

struct mg_mcp_host *mg_mcp_links_host(struct mg_mcp_links *l)
{
    return l->host;
}

struct mg_mcp *mg_mcp_link_of(struct mg_mcp_link *k)
{
    return k->mcp;
}

struct scan {
    const struct mg_id *session; /* its links, or NULL: those that nobody uses */
    uint64_t before_ns;
    struct mg_mcp_link *found[SCAN_BATCH];
    int n;
};

static void scan_look(void *ctx, struct mg_sv key, void *value)
{
    struct scan *s = ctx;
    struct mg_mcp_link *k = value;
    (void)key;
    bool wanted = s->session ? strcmp(k->session.s, s->session->s) == 0 : k->refs == 1 && k->used_ns <= s->before_ns;
    if (wanted && s->n < SCAN_BATCH)
        s->found[s->n++] = k;
}

static void scan_drop(struct mg_mcp_links *l, struct scan *s)
{
    do {
        s->n = 0;
        pthread_mutex_lock(&l->lock);
        mg_map_each(l->map, scan_look, s);
        for (int i = 0; i < s->n; i++)
            (void)mg_map_del(l->map, mg_sv_of(s->found[i]->key));
        pthread_mutex_unlock(&l->lock);
        for (int i = 0; i < s->n; i++)
            link_unref(s->found[i]); /* the map's */
    } while (s->n == SCAN_BATCH);
}

void mg_mcp_links_drop(struct mg_mcp_links *l, const struct mg_id *session)
{
    scan_drop(l, &(struct scan){.session = session});
}

void mg_mcp_links_drop_idle(struct mg_mcp_links *l, uint64_t idle_ns)
{
    uint64_t now = mg_now_ns();
    scan_drop(l, &(struct scan){.before_ns = now > idle_ns ? now - idle_ns : 0});
}

void mg_mcp_count(struct mg_mcp_links *l, bool call, bool failed)
{
    atomic_fetch_add(call ? &l->n_calls : &l->n_lists, 1);
    if (failed)
        atomic_fetch_add(call ? &l->n_failed_calls : &l->n_failed_lists, 1);
}

void mg_mcp_metrics(struct mg_mcp_links *l, struct mg_buf *out)
{
    const struct {
        const char *name, *help;
        long long value;
    } counters[] = {
        {"mango_mcp_calls_total", "Tool calls made to MCP servers", atomic_load(&l->n_calls)},
        {"mango_mcp_calls_failed_total", "Those that brought no answer", atomic_load(&l->n_failed_calls)},
        {"mango_mcp_lists_total", "Times that an MCP server was asked for its tools", atomic_load(&l->n_lists)},
        {"mango_mcp_lists_failed_total", "Those that failed", atomic_load(&l->n_failed_lists)},
    };
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        (void)mg_buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n%s %lld\n", counters[i].name, counters[i].help,
                            counters[i].name, counters[i].name, counters[i].value);
    pthread_mutex_lock(&l->lock);
    size_t n = mg_map_len(l->map);
    pthread_mutex_unlock(&l->lock);
    (void)mg_buf_printf(
        out, "# HELP mango_mcp_links Live links to MCP servers\n# TYPE mango_mcp_links gauge\nmango_mcp_links %zu\n",
        n);
}

void mg_mcp_links_free(struct mg_mcp_links *l)
{
    mg_mcp_links_drop_idle(l, 0);
    mg_mcp_host_free(l->host);
    mg_map_free(l->map);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
