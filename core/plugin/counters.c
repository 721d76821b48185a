#include "plugin/counters.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "plugin/host.h"

static bool name_ok(const char *name)
{
    size_t i = 0;
    if (!name || name[0] < 'a' || name[0] > 'z')
        return false;
    while (i < MG_COUNTER_NAME_MAX && (name[i] == '_' || (name[i] >= 'a' && name[i] <= 'z')))
        i++;
    return i < MG_COUNTER_NAME_MAX && name[i] == '\0';
}

/* Among the first n. */
static bool add_known(struct mg_plugin_counters *c, unsigned n, const char *name, int64_t value)
{
    for (unsigned i = 0; i < n; i++) {
        if (strcmp(c->of[i].name, name) != 0)
            continue;
        atomic_fetch_add_explicit(&c->of[i].value, (uint64_t)value, memory_order_relaxed);
        return true;
    }
    return false;
}

bool mg_counters_add(struct mg_plugin_counters *c, const char *name, int64_t n)
{
    if (!name_ok(name) || n <= 0)
        return atomic_exchange(&c->dropped, true);
    if (add_known(c, atomic_load_explicit(&c->n, memory_order_acquire), name, n))
        return true;
    pthread_mutex_lock(&c->lock);
    unsigned used = atomic_load(&c->n);
    bool known = add_known(c, used, name, n); /* another thread was first */
    if (!known && used < MG_COUNTERS_MAX) {
        (void)snprintf(c->of[used].name, MG_COUNTER_NAME_MAX, "%s", name);
        atomic_store(&c->of[used].value, (uint64_t)n);
        atomic_store_explicit(&c->n, used + 1, memory_order_release);
        known = true;
    }
    pthread_mutex_unlock(&c->lock);
    return known || atomic_exchange(&c->dropped, true);
}

/* ---- /metrics: the lines of one name stand together ---- */

struct line {
    const char *name, *plugin;
    uint64_t value;
};

struct lines {
    struct line *of;
    size_t n, cap;
};

static void collect(void *ctx, struct mg_plugin *p)
{
    struct lines *l = ctx;
    struct mg_plugin_counters *c = mg_host_counters(p->host);
    unsigned n = atomic_load_explicit(&c->n, memory_order_acquire);
    if (l->n + n > l->cap) {
        l->cap = l->n + n;
        l->of = mg_xrealloc(l->of, l->cap * sizeof(*l->of));
    }
    for (unsigned i = 0; i < n; i++)
        l->of[l->n++] = (struct line){c->of[i].name, p->name, atomic_load(&c->of[i].value)};
}

static int by_name(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    int d = strcmp(x->name, y->name);
    return d ? d : strcmp(x->plugin, y->plugin);
}

static void own_counters(struct mg_registry *r, struct mg_buf *out)
{
    struct lines l = {0};
    mg_registry_each(r, collect, &l);
    if (l.n > 0)
        qsort(l.of, l.n, sizeof(*l.of), by_name);
    for (size_t i = 0; i < l.n; i++) {
        if (i == 0 || strcmp(l.of[i].name, l.of[i - 1].name) != 0)
            (void)mg_buf_printf(out, "# TYPE mango_plugin_%s_total counter\n", l.of[i].name);
        (void)mg_buf_printf(out, "mango_plugin_%s_total{plugin=\"%s\"} %llu\n", l.of[i].name, l.of[i].plugin,
                            (unsigned long long)l.of[i].value);
    }
    free(l.of);
}

struct writer {
    struct mg_buf *out;
    int what; /* row of columns */
};

static const struct {
    const char *name, *type, *help;
} columns[] = {
    {"mango_plugin_op_calls_total", "counter", "Calls into a plugin."},
    {"mango_plugin_op_errors_total", "counter", "Calls that failed."},
    {"mango_plugin_op_seconds_total", "counter", "Time spent in calls."},
    {"mango_plugin_op_busy", "gauge", "Calls that are inside of the plugin."},
};

static double column(const struct mg_plugin_stat *s, int what)
{
    return what == 0   ? (double)atomic_load(&s->calls)
           : what == 1 ? (double)atomic_load(&s->errors)
           : what == 2 ? (double)atomic_load(&s->ns) / 1e9
                       : (double)atomic_load(&s->busy);
}

static void write_ops(void *ctx, struct mg_plugin *p)
{
    const struct writer *w = ctx;
    for (int i = 0; i < MG_OP_COUNT; i++) {
        if (atomic_load(&p->stats[i].calls) == 0 && atomic_load(&p->stats[i].busy) == 0)
            continue;
        (void)mg_buf_printf(w->out, "%s{plugin=\"%s\",op=\"%s\"} %.17g\n", columns[w->what].name, p->name,
                            mg_plugin_op_name((enum mg_plugin_op)i), column(&p->stats[i], w->what));
    }
}

void mg_registry_metrics(struct mg_registry *r, struct mg_buf *out)
{
    own_counters(r, out);
    for (int i = 0; i < (int)(sizeof(columns) / sizeof(columns[0])); i++) {
        struct writer w = {.out = out, .what = i};
        (void)mg_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", columns[i].name, columns[i].help, columns[i].name,
                            columns[i].type);
        mg_registry_each(r, write_ops, &w);
    }
}
