#include <errno.h>
#include <string.h>

#include "common/remote/rbox.h"

/* What comes out of a sandbox: frames, and at their end a result. */

static void give(struct rbox_frames *f, const char *p, uint64_t n)
{
    switch (f->head[0]) {
    case RBOX_STDOUT:
        if (f->out)
            chunk_feed(f->out, p, n);
        break;
    case RBOX_STDERR:
        if (f->err)
            chunk_feed(f->err, p, n);
        break;
    case RBOX_CONTENT:
        f->content_bytes += n;
        if (f->content && !f->stopped)
            f->stopped = f->content(f->content_ctx, 0, p, n) != 0;
        break;
    default: /* RBOX_RESULT: its length was looked at */
        memcpy(f->result + f->result_len, p, n);
        f->result_len += n;
        break;
    }
}

static bool begin(struct rbox_frames *f)
{
    f->left = (uint32_t)f->head[1] << 24 | (uint32_t)f->head[2] << 16 | (uint32_t)f->head[3] << 8 | f->head[4];
    switch (f->head[0]) {
    case RBOX_BEGAN:
        f->began = true;
        return f->left == 0;
    case RBOX_RESULT:
        f->result_len = 0;
        return f->left < RBOX_RESULT_MAX;
    case RBOX_STDOUT:
    case RBOX_STDERR:
    case RBOX_CONTENT:
        return f->left <= RBOX_DATA_MAX;
    default:
        return false;
    }
}

bool rbox_feed(struct rbox_frames *f, const char *p, uint64_t n)
{
    while (n > 0 && !f->bad && !f->ended) {
        if (f->have < RBOX_HEAD) {
            f->head[f->have++] = (unsigned char)*p++;
            n--;
            f->bytes++;
            f->bad = f->have == RBOX_HEAD && !begin(f);
        } else {
            uint64_t take = n < f->left ? n : f->left;
            give(f, p, take);
            f->left -= (uint32_t)take;
            f->bytes += take;
            p += take;
            n -= take;
        }
        if (f->have == RBOX_HEAD && f->left == 0) {
            f->have = 0;
            f->ended = f->head[0] == RBOX_RESULT;
        }
    }
    if (f->ended && !json_valid(rbox_result(f)))
        f->bad = true;
    return !f->bad;
}

/* ---- results ---- */

bool rbox_is(const struct rbox_frames *f, const char *how)
{
    return f->ended && !f->bad && json_is(rbox_result(f), "how", how);
}

static uint64_t count(struct mango_sv result, const char *name)
{
    int64_t v = 0;
    return json_int(result, name, &v) && v > 0 ? (uint64_t)v : 0;
}

static void clear(struct mango_exec_result *ret)
{
    uint32_t size = ret->struct_size;
    memset(ret, 0, sizeof(*ret));
    ret->struct_size = size;
}

void rbox_unknown(struct mango_exec_result *ret, const struct rbox_frames *f)
{
    clear(ret);
    ret->unknown = 1;
    ret->stdout_bytes = f->out ? f->out->seen : 0;
    ret->stderr_bytes = f->err ? f->err->seen : 0;
}

/* It did not start. */
static mango_status not_started(const struct mango_host *h, const struct mango_call *call, struct mango_sv result,
                                const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    int e = (int)count(result, "errno");
    if (e == E2BIG)
        return fail(h, call, MANGO_ETOOBIG,
                    "the command's arguments and variables are longer than %d bytes, or one of "
                    "them than %d",
                    RBOX_REQUEST_MAX, RBOX_ARG_MAX);
    if (json_true(result, "cwd"))
        return fail_path(h, call, e, req->cwd);
    /* A program that is not there is an ordinary end, as a shell tells it. */
    if (e != ENOENT && e != EACCES && e != ENOEXEC)
        return fail(h, call, MANGO_EINTERNAL, "the command could not be started: %s", strerror(e));
    ret->exited = 1;
    ret->exit_code = e == ENOENT ? 127 : 126;
    return MANGO_OK;
}

mango_status rbox_exec_result(const struct mango_host *h, const struct mango_call *call, const struct rbox_frames *f,
                              const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    struct mango_sv result = rbox_result(f);
    clear(ret);
    ret->stdout_bytes = count(result, "out");
    ret->stderr_bytes = count(result, "err");
    ret->peak_memory = count(result, "peak_kib") * 1024;
    ret->oom = json_true(result, "oom");
    if (rbox_is(f, RBOX_FAILED))
        return not_started(h, call, result, req, ret);
    if (rbox_is(f, RBOX_EXITED)) {
        ret->exited = 1;
        ret->exit_code = (int32_t)count(result, "code");
    } else if (rbox_is(f, RBOX_SIGNAL)) {
        ret->signal = (int32_t)count(result, "signal");
    } else if (rbox_is(f, RBOX_TIMEOUT)) {
        ret->timed_out = 1;
    } else if (rbox_is(f, RBOX_KILLED)) {
        ret->cancelled = 1;
    } else {
        ret->unknown = 1;
    }
    return MANGO_OK;
}

mango_status rbox_file_result(const struct mango_host *h, const struct mango_call *call, const struct rbox_frames *f,
                              struct mango_sv path)
{
    char text[SHOWN_MAX] = "";
    if (rbox_is(f, RBOX_DONE))
        return MANGO_OK;
    if (!rbox_is(f, RBOX_FAILED))
        return fail(h, call, MANGO_ERETRY, "the sandbox's program was ended from inside of it");
    (void)json_copy(rbox_result(f), "text", text, sizeof(text));
    return fail_path_as(h, call, (int)count(rbox_result(f), "errno"), path, sv_z(text));
}

void rbox_stat_result(const struct rbox_frames *f, struct mango_stat *ret)
{
    char kind[2] = "o";
    int64_t mtime = 0;
    (void)json_copy(rbox_result(f), "kind", kind, sizeof(kind));
    (void)json_int(rbox_result(f), "mtime_us", &mtime);
    ret->kind = (unsigned char)kind[0];
    ret->size = count(rbox_result(f), "size");
    ret->mode = (uint32_t)count(rbox_result(f), "mode");
    ret->mtime_us = mtime;
}
