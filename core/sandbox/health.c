#include "sandbox/health.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "json/write.h"
#include "sandbox/internal.h"

struct mg_backend {
    struct mg_plugin *plugin;
    atomic_ullong seen_ns; /* of the last answer; 0: none yet */
    pthread_mutex_t lock;  /* guards what follows */
    enum mg_health_state state;
    unsigned failures; /* one after another */
    uint64_t next_ns;  /* down: of the next check */
    int64_t since_us;  /* down: wall clock */
    char why[MG_HEALTH_WHY_MAX];
    unsigned long long n_down; /* times that it went down */
};

static const char *const state_names[] = {"up", "down", "trying"};

struct mg_backend *mg_backend_of(struct mg_sandboxes *m, struct mg_plugin *p)
{
    pthread_mutex_lock(&m->lock);
    struct mg_backend *b = mg_map_get(m->backends, mg_sv_of(p->name));
    if (!b) {
        b = mg_xcalloc(1, sizeof(*b));
        b->plugin = p;
        pthread_mutex_init(&b->lock, NULL);
        (void)mg_map_put(m->backends, mg_sv_of(p->name), b);
    }
    pthread_mutex_unlock(&m->lock);
    return b;
}

static void free_backend(void *ctx, struct mg_sv key, void *value)
{
    struct mg_backend *b = value;
    (void)ctx;
    (void)key;
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void mg_backends_free(struct mg_map *all)
{
    mg_map_each(all, free_backend, NULL);
    mg_map_free(all);
}

/* ---- the state ---- */

static void go_down(struct mg_backend *b, const char *why)
{
    uint64_t ms = MG_HEALTH_BACKOFF_MS;
    for (unsigned i = MG_HEALTH_FAILURES_MAX; i < b->failures && ms < MG_HEALTH_BACKOFF_MAX_MS; i++)
        ms *= 2;
    ms = ms < MG_HEALTH_BACKOFF_MAX_MS ? ms : MG_HEALTH_BACKOFF_MAX_MS;
    b->next_ns = mg_now_ns() + (ms / 2 + mg_rng_below(ms / 2 + 1)) * UINT64_C(1000000);
    if (b->state == MG_HEALTH_UP) {
        b->since_us = mg_wall_us();
        b->n_down++;
        mg_log(MG_ERROR, "a sandbox backend is down; its turns wait", MG_F_STR("backend", b->plugin->name),
               MG_F_STR("why", why));
    }
    b->state = MG_HEALTH_DOWN;
    (void)snprintf(b->why, sizeof(b->why), "%s", why);
}

static void go_up(struct mg_backend *b)
{
    if (b->state != MG_HEALTH_UP)
        mg_log(MG_INFO, "a sandbox backend is up again", MG_F_STR("backend", b->plugin->name));
    b->state = MG_HEALTH_UP;
    b->failures = 0;
    b->why[0] = '\0';
}

void mg_backend_note(struct mg_backend *b, bool answered, const char *why)
{
    if (answered) {
        atomic_store(&b->seen_ns, mg_now_ns());
        return; /* only a check closes the circuit: a call may have been on its way when it opened */
    }
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->seen_ns, 0); /* the next wave asks first */
    if (++b->failures >= MG_HEALTH_FAILURES_MAX && b->state == MG_HEALTH_UP)
        go_down(b, why);
    pthread_mutex_unlock(&b->lock);
}

/* One health call; the lock is not held. */
static bool check(struct mg_backend *b)
{
    struct mg_err own = {0};
    struct mg_plugin *p = b->plugin;
    struct mango_call call = mg_plugin_call(mg_now_ns() + MG_SANDBOX_HEALTH_MS * UINT64_C(1000000), NULL, &own);
    struct mg_guard g = mg_guard_enter(p, MG_OP_HEALTH);
    mg_rc rc = mg_plugin_rc(p, MG_OP_HEALTH, mg_guard_leave(&g, p->sandbox->health(p->ctx, &call)), &own);
    pthread_mutex_lock(&b->lock);
    if (rc == MG_OK) {
        atomic_store(&b->seen_ns, mg_now_ns());
        go_up(b);
    } else {
        b->failures = b->failures < MG_HEALTH_FAILURES_MAX ? MG_HEALTH_FAILURES_MAX : b->failures + 1;
        go_down(b, own.text);
    }
    pthread_mutex_unlock(&b->lock);
    return rc == MG_OK;
}

bool mg_backend_fresh(const struct mg_backend *b)
{
    uint64_t seen = atomic_load(&b->seen_ns);
    return seen && mg_now_ns() - seen < MG_HEALTH_FRESH_MS * UINT64_C(1000000);
}

static mg_rc down_error(struct mg_backend *b, struct mg_err *err)
{
    char since[MG_TIME_LEN];
    pthread_mutex_lock(&b->lock);
    mg_time_format(b->since_us, since);
    mg_rc rc = mg_err_code(err, MG_EUNAVAIL, "backend_down",
                           "the sandbox backend '%s' does not answer since %s: %s. The turn goes on when it is back",
                           b->plugin->name, since, b->why);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

mg_rc mg_backend_gate(struct mg_backend *b, struct mg_err *err)
{
    bool look = false;
    pthread_mutex_lock(&b->lock);
    enum mg_health_state state = b->state;
    if (state == MG_HEALTH_UP) {
        look = !mg_backend_fresh(b);
    } else if (state == MG_HEALTH_DOWN && mg_now_ns() >= b->next_ns) {
        b->state = MG_HEALTH_TRYING; /* this caller's check decides */
        look = true;
    }
    pthread_mutex_unlock(&b->lock);
    if (look ? check(b) : state == MG_HEALTH_UP)
        return MG_OK;
    return down_error(b, err);
}

/* ---- all of them ---- */

struct all {
    struct mg_plugin *plugins[MG_PLUGIN_LIST_MAX];
    int n;
};

static void note_plugin(void *ctx, struct mg_plugin *p)
{
    struct all *all = ctx;
    if (p->sandbox && all->n < MG_PLUGIN_LIST_MAX)
        all->plugins[all->n++] = p;
}

static bool is_due(struct mg_backend *b)
{
    uint64_t now = mg_now_ns(), seen = atomic_load(&b->seen_ns);
    pthread_mutex_lock(&b->lock);
    bool due = b->state == MG_HEALTH_UP ? !seen || now - seen >= MG_HEALTH_PERIOD_MS / 2 * UINT64_C(1000000)
                                        : b->state == MG_HEALTH_DOWN && now >= b->next_ns;
    if (due && b->state == MG_HEALTH_DOWN)
        b->state = MG_HEALTH_TRYING;
    pthread_mutex_unlock(&b->lock);
    return due;
}

void mg_health_tick(struct mg_sandboxes *m)
{
    struct all all = {.n = 0};
    if (atomic_exchange(&m->checking, true))
        return;                                            /* the one before waits for a service */
    mg_registry_each(m->opts.registry, note_plugin, &all); /* no call while the registry is locked */
    for (int i = 0; i < all.n; i++) {
        struct mg_backend *b = mg_backend_of(m, all.plugins[i]);
        if (is_due(b))
            (void)check(b);
    }
    atomic_store(&m->checking, false);
}

struct mg_sv *mg_health_rows(struct mg_sandboxes *m, struct mg_arena *a, int *ret_n)
{
    struct all *all = mg_arena_alloc(a, sizeof(*all));
    all->n = 0;
    mg_registry_each(m->opts.registry, note_plugin, all);
    struct mg_sv *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(all->n + 1));
    for (int i = 0; i < all->n; i++) {
        struct mg_backend *b = mg_backend_of(m, all->plugins[i]);
        pthread_mutex_lock(&b->lock);
        const char *state = state_names[b->state == MG_HEALTH_TRYING ? MG_HEALTH_DOWN : b->state];
        pthread_mutex_unlock(&b->lock);
        rows[i] = mg_arena_printf(a, "%s=%s", all->plugins[i]->name, state);
    }
    *ret_n = all->n;
    return rows;
}

void mg_health_json(struct mg_sandboxes *m, struct mg_buf *out)
{
    struct all all = {.n = 0};
    struct mg_jw w = mg_jw_to(out);
    mg_registry_each(m->opts.registry, note_plugin, &all);
    mg_jw_obj(&w);
    for (int i = 0; i < all.n; i++) {
        struct mg_backend *b = mg_backend_of(m, all.plugins[i]);
        pthread_mutex_lock(&b->lock);
        mg_jw_kstrz(&w, b->plugin->name, state_names[b->state]);
        pthread_mutex_unlock(&b->lock);
    }
    mg_jw_obj_end(&w);
}

void mg_health_metrics(struct mg_sandboxes *m, struct mg_buf *out)
{
    struct all all = {.n = 0};
    mg_registry_each(m->opts.registry, note_plugin, &all);
    (void)mg_buf_str(out, "# HELP mango_sandbox_backend_up 1 while the backend answers.\n"
                          "# TYPE mango_sandbox_backend_up gauge\n");
    for (int i = 0; i < all.n; i++) {
        struct mg_backend *b = mg_backend_of(m, all.plugins[i]);
        pthread_mutex_lock(&b->lock);
        (void)mg_buf_printf(out, "mango_sandbox_backend_up{backend=\"%s\"} %d\n", b->plugin->name,
                            b->state == MG_HEALTH_UP);
        pthread_mutex_unlock(&b->lock);
    }
    (void)mg_buf_str(out, "# HELP mango_sandbox_backend_down_total Times that the backend went down.\n"
                          "# TYPE mango_sandbox_backend_down_total counter\n");
    for (int i = 0; i < all.n; i++) {
        struct mg_backend *b = mg_backend_of(m, all.plugins[i]);
        pthread_mutex_lock(&b->lock);
        (void)mg_buf_printf(out, "mango_sandbox_backend_down_total{backend=\"%s\"} %llu\n", b->plugin->name, b->n_down);
        pthread_mutex_unlock(&b->lock);
    }
}

/* ---- handles ---- */

struct mg_sandbox *mg_sandbox_new(struct mg_sandboxes *m, struct mg_sandbox_entry *e, struct mg_plugin *p,
                                  struct mg_buf *id, struct mg_buf *root, struct mg_buf *identity)
{
    struct mg_sandbox *s = mg_xcalloc(1, sizeof(*s));
    *s = (struct mg_sandbox){.manager = m,
                             .backend = mg_backend_of(m, p),
                             .note = mg_backend_note,
                             .entry = e,
                             .plugin = p,
                             .refs = 1,
                             .external_id = mg_buf_steal(id, NULL),
                             .root = mg_buf_steal(root, NULL),
                             .identity = mg_buf_steal(identity, NULL),
                             .serial = !mg_plugin_can(p, MANGO_CAP_CONCURRENT_EXEC)};
    pthread_mutex_init(&s->call_lock, NULL);
    return s;
}
