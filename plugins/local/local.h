/* Backend `local`: a workspace folder per session on this host. Not an isolation boundary.
 *
 *   BASE/session-LABEL/workspace   the root that commands and file operations see
 *                     /scratch     TMPDIR of the commands
 *                     /staging     files that are being written; swept at attach
 *                     /label, /owner, /identity
 *
 * Concurrency: `lock` of struct local guards the table of boxes; `lock` of a box guards its runner, its counts and
 * `dying`. No lock is held while something blocks, the start of a runner excepted. */
#ifndef MANGO_LOCAL_H
#define MANGO_LOCAL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/confine.h"
#include "common/path-error.h"
#include "mango/plugin.h"

enum {
    LABEL_LEN = 32,         /* hex digits */
    ID_LEN = 8 + LABEL_LEN, /* "session-" and the label */
    IDENTITY_LEN = 32,
    KILL_WAIT_MS = 2000,     /* for everything of a command to be dead after a kill */
    DESTROY_WAIT_MS = 10000, /* for the runner to have ended everything */
};

struct box {
    struct box *next; /* guarded by local.lock */
    struct local *local;
    char id[ID_LEN + 1];
    char identity[IDENTITY_LEN + 1];
    char *root; /* absolute path of the workspace */
    char *scratch;
    int home_fd, root_fd, staging_fd;
    char **env; /* NULL-terminated; documented environment and the spec's additions */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t quiet; /* busy has become 0 */
    int ctl;              /* runner's socket, -1: not started */
    pid_t runner;
    unsigned refs; /* the table, calls in flight, open processes */
    unsigned busy; /* calls in flight */
    bool dying;
};

struct local {
    const struct mango_host *host;
    char *base; /* canonical path */
    int base_fd;
    char *runner; /* path of mango-local-runner */
    pthread_mutex_t lock;
    struct box *boxes; /* guarded by lock */
};

/* ---- util.c ---- */
mango_status fail(const struct local *l, const struct mango_call *call, mango_status s, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* From errno, with the path that the caller gave: "'a/b' does not exist". */
mango_status fail_path(const struct local *l, const struct mango_call *call, int errnum, struct mango_sv path);
bool sv_is(struct mango_sv s, const char *z);
char *sv_dup(struct mango_sv s);           /* NULL when memory is gone or s holds a NUL */
void random_hex(char *out, size_t digits); /* and a NUL */
uint64_t now_ns(const struct local *l);

/* ---- box.c ---- */
mango_status local_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                          struct mango_sandbox_ref *ret);
mango_status local_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
mango_status local_detach(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status local_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label);
mango_status local_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                              void *fn_ctx);
/* Finds an attached box for one call; MANGO_EGONE when it is dying or was never attached. */
mango_status box_enter(struct local *l, const struct mango_call *call, struct mango_sv id, struct box **ret);
void box_leave(struct box *b);
void box_ref(struct box *b);
void box_unref(struct box *b);
void boxes_drop_all(struct local *l);
/* Puts the calls of all boxes to an end and removes what earlier processes left behind. */
void sweep(struct local *l);

/* ---- remove.c ---- */
/* Removes a folder of base with everything below it, whatever its depth; follows no link. 0 or errno. */
int remove_tree(int base_fd, const char *name);

/* Both return a descriptor or -errno; nothing outside of the workspace is ever opened. */
static inline int path_open(const struct box *b, struct mango_sv path, uint64_t flags)
{
    return confine_open(&(struct confine){b->root, b->root_fd}, path, flags);
}
static inline int path_parent(const struct box *b, struct mango_sv path, char name[256])
{
    return confine_parent(&(struct confine){b->root, b->root_fd}, path, name);
}

/* ---- file.c ---- */
/* Removes what processes that are gone left in the middle of a write. Another process may write here at this moment. */
void staging_sweep(const struct box *b);
mango_status local_read(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_read_req *req,
                        int32_t *ret_eof);
mango_status local_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                         const struct mango_write_req *req);
mango_status local_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                        uint32_t flags, struct mango_stat *ret);

/* ---- runner-client.c ---- */
/* A command that has been handed to the runner. */
struct running {
    int status;   /* socket to its reaper */
    int out, err; /* read ends, not blocking; -1 after their end */
    int in;       /* write end, -1: none */
};
enum { NO_STDIN, DATA_STDIN, PIPE_STDIN };
/* Starts the command; the runner too when there is none. On success *ret is the caller's. */
mango_status run_start(struct box *b, const struct mango_call *call, const struct mango_exec_req *req, int stdin_kind,
                       struct running *ret);
void run_close(struct running *r);   /* without a release before it: kills what is left */
void run_release(struct running *r); /* what lives on may go on, its output is drained */
void runner_stop(struct box *b, int ms);

/* ---- exec.c, proc.c ---- */
mango_status local_exec(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_exec_req *req,
                        struct mango_exec_result *ret);
mango_status local_proc_open(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_exec_req *req, mango_proc *ret);
mango_status local_proc_write(void *ctx, const struct mango_call *call, mango_proc proc, struct mango_sv data);
mango_status local_proc_read(void *ctx, const struct mango_call *call, mango_proc proc, mango_sink_fn *sink,
                             void *sink_ctx, int32_t *ret_closed, struct mango_exec_result *ret);
mango_status local_proc_close(void *ctx, const struct mango_call *call, mango_proc proc);

#endif
