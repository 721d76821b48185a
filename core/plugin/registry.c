#include "plugin/registry.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

enum { LOADED_MAX = 32 /* plugins in one process; there are a dozen providers */ };

struct mg_registry {
    const char *dir;
    const struct mg_plugin_services *services;
    pthread_mutex_t lock; /* guards what follows; held across init, so that a plugin is started once */
    struct mg_plugin *loaded[LOADED_MAX];
    unsigned n;
};

struct mg_registry *mg_registry_new(const char *dir, const struct mg_plugin_services *services)
{
    struct mg_registry *r = mg_xcalloc(1, sizeof(*r));
    r->dir = dir;
    r->services = services;
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void mg_registry_free(struct mg_registry *r)
{
    if (!r)
        return;
    while (r->n > 0)
        mg_plugin_close(r->loaded[--r->n]);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static struct mg_plugin *find(struct mg_registry *r, const char *name)
{
    for (unsigned i = 0; i < r->n; i++) {
        if (strcmp(r->loaded[i]->name, name) == 0)
            return r->loaded[i];
    }
    return NULL;
}

static mg_rc get_locked(struct mg_registry *r, const struct mg_plugin_load *load, struct mg_plugin **ret,
                        struct mg_err *err)
{
    *ret = find(r, load->name);
    if (*ret)
        return MG_OK;
    if (r->n == LOADED_MAX)
        return mg_err_set(err, MG_ECONFIG, "%s=%s: %d plugins are loaded, which is the limit", load->variable,
                          load->name, LOADED_MAX);
    mg_rc rc = mg_plugin_open(load, ret, err);
    if (rc == MG_OK)
        r->loaded[r->n++] = *ret;
    return rc;
}

mg_rc mg_registry_get(struct mg_registry *r, const char *name, const char *variable, struct mg_sv config,
                      struct mg_plugin **ret, struct mg_err *err)
{
    struct mg_plugin_load load = {.dir = r->dir,
                                  .name = name,
                                  .variable = variable,
                                  .kind = MANGO_KIND_SANDBOX,
                                  .config = config,
                                  .services = r->services};
    pthread_mutex_lock(&r->lock);
    mg_rc rc = get_locked(r, &load, ret, err);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

void mg_registry_each(struct mg_registry *r, void (*fn)(void *ctx, struct mg_plugin *p), void *ctx)
{
    pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < r->n; i++)
        fn(ctx, r->loaded[i]);
    pthread_mutex_unlock(&r->lock);
}
