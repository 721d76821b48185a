/* A handle on a sandbox that nobody manages: no database, no binding, no circuit. What a worker has. */
#ifndef MG_SANDBOX_DIRECT_H
#define MG_SANDBOX_DIRECT_H

#include "plugin/plugin.h"
#include "sandbox/manager.h"

/* p (borrowed) has made id already; its table of operations is mg_sandbox_ops's. */
struct mg_sandbox *mg_sandbox_direct(struct mg_plugin *p, const char *id, const char *root);
void mg_sandbox_direct_free(struct mg_sandbox *s); /* detaches nothing */

#endif
