/* The plugins of this process by name: the default sandbox backend, those that stored bindings still name, the
 * launcher.
 *
 * Concurrency: mg_registry_get may load at run time (a binding of another backend turns up) and is serialised by the
 * registry's own lock; plugins are never removed before mg_registry_free. */
#ifndef MG_PLUGIN_REGISTRY_H
#define MG_PLUGIN_REGISTRY_H

#include "plugin/plugin.h"

struct mg_registry;

/* dir and services are borrowed for the registry's life. */
struct mg_registry *mg_registry_new(const char *dir, const struct mg_plugin_services *services);
void mg_registry_free(struct mg_registry *r); /* closes all; no call may run any more */

/* Loads name (or gives the one that is loaded) with the sandbox kind. variable: what named it. config: JSON for init,
 * or empty. */
mg_rc mg_registry_get(struct mg_registry *r, const char *name, const char *variable, struct mg_sv config,
                      struct mg_plugin **ret, struct mg_err *err) MG_MUSTCHECK;
/* Visits the loaded plugins; fn must not call the registry. For /metrics and /readyz. */
void mg_registry_each(struct mg_registry *r, void (*fn)(void *ctx, struct mg_plugin *p), void *ctx);

#endif
