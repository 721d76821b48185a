/* A sandbox for the tests of the tools: a temporary folder of this host, commands by posix_spawn, files by openat2 beneath the folder. */
#ifndef MG_TESTS_HOST_BOX_H
#define MG_TESTS_HOST_BOX_H

#include "tools/tools.h"

struct host_box {
    char root[64];
    int fd;           /* the folder */
    const char *path; /* PATH of commands; NULL: /usr/bin:/bin */
    unsigned execs, procs;
};

/* Both abort on failure: a test without a box means nothing. */
struct host_box *host_box_new(void);
/* Kills every process that was started in it and removes the folder. Returns how many processes were left. */
int host_box_free(struct host_box *b);
/* Processes of the box that are alive. */
int host_box_processes(const struct host_box *b);
void host_box_put(struct host_box *b, const char *name, const void *p, size_t n);
void host_box_puts(struct host_box *b, const char *name, const char *text);

extern const struct mg_tool_ops host_box_ops;          /* with a persistent process */
extern const struct mg_tool_ops host_box_ops_one_shot; /* without */

#endif
