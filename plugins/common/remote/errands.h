/* Commands and files of a sandbox whose service has its own idea of both: a program of ours in the sandbox does them
 * (common/errand/errand.h), and the service is asked only for three plain things: a short command, a file in, a file out.
 *
 * Every errand may be sent twice: a command is known by its number, a write by the name of its content. So what a cut connection
 * leaves open is asked again, and what was done is not done twice. Nothing here concludes that a sandbox is gone: `look` asks the
 * service's control plane.
 *
 * Threads: any, several for one sandbox too. The lock of struct errands guards the table, that of a box its list; neither is held
 * while something blocks. */
#ifndef MANGO_COMMON_ERRANDS_H
#define MANGO_COMMON_ERRANDS_H

#include <pthread.h>

#include "common/remote/remote.h"
#include "mango/sandbox.h"

enum {
    ERRANDS_PROGRAM_MAX = 16 * 1024 * 1024, /* bytes of mango-rbox */
    ERRANDS_FORGET_MAX = 16,                /* names that one errand takes along for removal */
    ERRANDS_VERSION_LEN = 16,               /* hex digits of the program's hash, in its name */
    ERRANDS_LINE_MAX = 60 * 1024,           /* bytes of a command line; a longer request goes as a file */
};

struct errands;
struct link;
struct websocket;

/* A live sandbox. Counted: errands_enter and errands_leave. */
struct errands_box {
    struct errands_box *next; /* guarded by errands.lock */
    unsigned refs;            /* guarded by errands.lock */
    char *id, *root;
    char **env; /* of the spec; NULL-terminated */
    void *own;  /* the adapter's; freed by service.free_own */

    pthread_mutex_t lock;
    char *forget[ERRANDS_FORGET_MAX]; /* guarded by lock: what the next errand removes */
    unsigned n_forget;
    struct link *link; /* guarded by lock; NULL until the first errand (errand-link.h) */
};

/* How a command line ended. */
struct errands_end {
    int code;  /* as the service tells it; -1: not told */
    bool sent; /* some of the request went out: it may run, or have run */
};

/* What the service does. ctx is the adapter's. Each sets the error when it fails, and tries again by itself only what is as
 * harmless as a read. */
struct errands_service {
    /* Runs a line of shell to its end; sink gets its standard output, in pieces that may be cut anywhere. MANGO_ERETRY: broken
     * off. ms: more than it should take. */
    mango_status (*command)(void *ctx, const struct mango_call *call, struct errands_box *b, const char *line,
                            uint32_t ms, mango_sink_fn *sink, void *sink_ctx, struct errands_end *ret);
    /* Makes or replaces a file with its folders. len -1: not known. */
    mango_status (*upload)(void *ctx, const struct mango_call *call, struct errands_box *b, const char *path,
                           mango_source_fn *source, void *source_ctx, int64_t len);
    /* Gives so many bytes from offset, or fewer when the file ends before. */
    mango_status (*download)(void *ctx, const struct mango_call *call, struct errands_box *b, const char *path,
                             uint64_t offset, uint64_t n, mango_sink_fn *sink, void *sink_ctx);
    /* Something has failed: asks the control plane. MANGO_OK: it is there (and runs again when it was stopped); MANGO_EGONE. */
    mango_status (*look)(void *ctx, const struct mango_call *call, struct errands_box *b);
    /* A terminal in the sandbox, with a shell that waits for a line. NULL: the service has none that is worth it. */
    mango_status (*open_terminal)(void *ctx, const struct mango_call *call, struct errands_box *b, const char *name,
                                  struct websocket *ret);
    /* That was opened under this name, or perhaps not. */
    void (*end_terminal)(void *ctx, struct errands_box *b, const char *name);
    void (*free_own)(void *own);
    uint32_t slice_ms; /* how long one command of the service may stand open */
    uint32_t soon_ms;  /* 0: the service streams; else how soon after output a command ends, so that it is seen */
};

struct errands {
    const struct mango_host *host;
    const struct errands_service *service;
    void *ctx;
    struct mango_buf *program;
    char name[sizeof("errand-") + ERRANDS_VERSION_LEN];
    pthread_mutex_t lock;
    struct errands_box *boxes; /* guarded by lock */
};

/* Reads mango-rbox: beside the plugin's file, else where it is installed. */
mango_status errands_open(struct errands *e, const struct mango_host *h, const struct mango_call *call,
                          const struct errands_service *service, void *ctx);
void errands_close(struct errands *e); /* zeroed memory is fine */

/* Puts the sandbox into the table (or gives it the new environment), and the program into the sandbox. own is taken. */
mango_status errands_enter_new(struct errands *e, const struct mango_call *call, struct mango_sv id, const char *root,
                               const struct mango_sandbox_spec *spec, void *own);
/* MANGO_EINVALID when this process has not attached to it. errands_leave for each. */
mango_status errands_enter(struct errands *e, const struct mango_call *call, struct mango_sv id,
                           struct errands_box **ret);
void errands_leave(struct errands *e, struct errands_box *b);
void errands_drop(struct errands *e, struct mango_sv id); /* forgets it; NULL table entries are fine */

/* The operations of the same names. */
mango_status errands_exec(struct errands *e, const struct mango_call *call, struct mango_sv id,
                          const struct mango_exec_req *req, struct mango_exec_result *ret);
mango_status errands_read(struct errands *e, const struct mango_call *call, struct mango_sv id,
                          const struct mango_read_req *req, int32_t *ret_eof);
mango_status errands_write(struct errands *e, const struct mango_call *call, struct mango_sv id,
                           const struct mango_write_req *req);
mango_status errands_stat(struct errands *e, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                          uint32_t flags, struct mango_stat *ret);

#endif
