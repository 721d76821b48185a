/* The host services table of one plugin. */
#ifndef MG_PLUGIN_HOST_H
#define MG_PLUGIN_HOST_H

#include "plugin/plugin.h"

/* name is copied. services may be NULL: no settings but those of the environment, no HTTP. */
struct mango_host *mg_host_new(const char *name, const struct mg_plugin_services *services);
/* What the plugin counted, for /metrics. */
struct mg_plugin_counters *mg_host_counters(const struct mango_host *h);
uint64_t mg_host_without(const struct mango_host *h); /* capabilities that init took back */
void mg_host_free(struct mango_host *h);              /* NULL is fine */

#endif
