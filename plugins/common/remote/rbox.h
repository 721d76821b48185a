/* The adapter's side of mango-rbox (common/rbox): the program itself, the arguments of an operation, the frames that come back,
 * and what a result means. How the program gets into a sandbox and is started there is the adapter's. */
#ifndef MANGO_COMMON_REMOTE_RBOX_H
#define MANGO_COMMON_REMOTE_RBOX_H

#include "common/chunk.h"
#include "common/rbox/wire.h"
#include "common/remote/remote.h"
#include "mango/sandbox.h"

enum {
    RBOX_ARGS_MAX = 4096 + 16,      /* arguments of one start */
    RBOX_REQUEST_MAX = 1024 * 1024, /* bytes of all arguments of one start */
    RBOX_RESULT_MAX = 4096,         /* bytes of a result */
    RBOX_PROGRAM_MAX = 16 * 1024 * 1024,
    RBOX_NEW_ID = 20, /* hex digits of an id of our own */
};

/* ---- the program ---- */

struct rbox_program {
    struct mango_buf *bytes;
    char name[32]; /* in ROOT/.mango-run: "box-" and a hash */
};
/* From the setting `variable`, beside the plugin's file, or where it is installed. */
mango_status rbox_load(const struct mango_host *h, const struct mango_call *call, const char *variable,
                       struct rbox_program *ret);
void rbox_unload(const struct mango_host *h, struct rbox_program *p);

/* ---- arguments ---- */

/* A growing list of arguments; bad when memory or a limit was hit. All zero is the empty one. */
struct rbox_args {
    struct text bytes; /* each with its NUL */
    uint64_t n;
    bool encoded; /* "-x": some are no UTF-8 */
    bool too_big;
};
void rbox_arg(struct rbox_args *a, struct mango_sv s);
void rbox_argz(struct rbox_args *a, const char *z);
void rbox_argn(struct rbox_args *a, uint64_t n);
void rbox_args_free(struct rbox_args *a);
/* Goes through what the program is to get, options included, from *pos = 0; out is replaced by each. */
bool rbox_args_next(const struct rbox_args *a, uint64_t *pos, struct text *out);
/* `run` of req in root with env (NAME=value, NULL-terminated) below req's own. offset: bytes of the log that came already;
 * limit_ms 0: none. */
void rbox_run_args(struct rbox_args *a, const char *root, const char *id, const struct mango_exec_req *req,
                   char *const *env, uint64_t offset, uint64_t limit_ms, bool in);
void rbox_new_id(char out[RBOX_NEW_ID + 1]);

/* ---- frames ---- */

struct rbox_frames {
    struct chunk *out, *err; /* get the output; NULL: dropped */
    mango_sink_fn *content;  /* gets a file's content, or NULL */
    void *content_ctx;
    uint64_t bytes, content_bytes;   /* that came: the offset for another try; of content */
    bool began, ended, bad, stopped; /* stopped: content wants no more */
    char result[RBOX_RESULT_MAX];    /* JSON, when ended */
    uint64_t result_len;
    /* the machine's own */
    unsigned char head[RBOX_HEAD];
    uint32_t have, left;
};
/* Any piece of the stream. False: it is no such stream (bad). */
bool rbox_feed(struct rbox_frames *f, const char *p, uint64_t n);

/* ---- results ---- */

bool rbox_is(const struct rbox_frames *f, const char *how);
/* What a command's result means. MANGO_OK when *ret tells how it ended. */
mango_status rbox_exec_result(const struct mango_host *h, const struct mango_call *call, const struct rbox_frames *f,
                              const struct mango_exec_req *req, struct mango_exec_result *ret);
/* A file operation's: MANGO_OK or the error. */
mango_status rbox_file_result(const struct mango_host *h, const struct mango_call *call, const struct rbox_frames *f,
                              struct mango_sv path);
void rbox_unknown(struct mango_exec_result *ret, const struct rbox_frames *f); /* nobody knows how it ended */
void rbox_stat_result(const struct rbox_frames *f, struct mango_stat *ret);
static inline struct mango_sv rbox_result(const struct rbox_frames *f)
{
    return (struct mango_sv){f->result, f->result_len};
}

#endif
