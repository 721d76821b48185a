/* Counters that plugins keep by metric_add, and what the core counts of its calls into them, as lines of /metrics. */
#ifndef MG_PLUGIN_COUNTERS_H
#define MG_PLUGIN_COUNTERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "plugin/registry.h"

enum {
    MG_COUNTERS_MAX = 64,     /* of one plugin: a series costs memory here and in whatever reads /metrics */
    MG_COUNTER_NAME_MAX = 48, /* bytes with the NUL */
};

/* Of one plugin. Concurrency: any thread; an entry below n never changes its name. */
struct mg_plugin_counters {
    pthread_mutex_t lock; /* taken to add an entry */
    _Atomic unsigned n;
    atomic_bool dropped; /* was said */
    struct {
        char name[MG_COUNTER_NAME_MAX];
        _Atomic uint64_t value;
    } of[MG_COUNTERS_MAX];
};

/* False, once for each plugin: name is not [a-z][a-z_]*, n is not positive, or there is no room; it is not counted. */
bool mg_counters_add(struct mg_plugin_counters *c, const char *name, int64_t n);

/* Of every loaded plugin: its own counters, and calls, errors and time of each operation that was called. */
void mg_registry_metrics(struct mg_registry *r, struct mg_buf *out);

#endif
