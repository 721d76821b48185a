/* One folder of this machine as a sandbox: what a worker runs its tools in. No boundary of its own: commands have the
 * rights of the process. File operations are confined to the folder and the roots beside it. */
#ifndef MANGO_COMMON_FOLDER_H
#define MANGO_COMMON_FOLDER_H

#include <stdbool.h>

#include "mango/sandbox.h"

struct mango_host;

struct folder_root {
    const char *path; /* absolute; "/" allows everything */
    bool read_only;
};

struct folder_opts {
    const char *path; /* of the workspace: absolute, a folder that is there */
    bool read_only;
    const struct folder_root *roots;
    int n_roots; /* at most FOLDER_ROOTS_MAX */
};
enum { FOLDER_ROOTS_MAX = 33 };

/* The host's settings base_dir (a private folder for temporary files) and runner are asked for. folder_close also ends
 * what runs. */
mango_status folder_open(const struct mango_host *host, const struct mango_call *call, const struct folder_opts *opts,
                         void **ret_ctx);
void folder_close(void *ctx); /* NULL is fine */

extern const struct mango_sandbox_ops folder_ops;

#endif
