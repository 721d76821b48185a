/* The environment of a worker's commands: an allow-list, so that neither the credentials of the worker nor anything else that its operator
 * keeps in variables reaches a command. MANGO_WORKER_PASS_ENV names further ones ("JAVA_HOME,CARGO_*"). */
#ifndef MG_WORKER_TOOL_ENV_H
#define MG_WORKER_TOOL_ENV_H

#include <stdbool.h>

#define MG_TOOL_ENV_VARIABLE "MANGO_WORKER_PASS_ENV"

enum { MG_TOOL_ENV_MAX = 127 /* variables */ };

struct mg_tool_env {
    char *v[MG_TOOL_ENV_MAX + 1]; /* "NAME=value", NULL at the end */
};

void mg_tool_env_init(struct mg_tool_env *e);
void mg_tool_env_done(struct mg_tool_env *e);
/* Whether a variable of this name is passed; pass: the list of MG_TOOL_ENV_VARIABLE, or NULL. */
bool mg_tool_env_passes(const char *name, unsigned long len, const char *pass);

#endif
