#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/envd/envd.h"

/* Files of the workspace: mango-rbox opens them, so that no path and no link leads out. */

struct file {
    struct box *b;
    struct mango_sv path;
    uint64_t offset, max;
    uint32_t mode, flags;
    char id[RBOX_NEW_ID + 1];
};

static void begin(const struct file *f, struct rbox_args *a, const char *what)
{
    rbox_argz(a, what);
    rbox_argz(a, f->b->root);
    rbox_argz(a, f->id);
}

static void read_args(void *ctx, struct rbox_args *a, const struct rbox_frames *fr)
{
    const struct file *f = ctx;
    begin(f, a, "read");
    rbox_argn(a, f->offset + fr->content_bytes);
    rbox_argn(a, f->max - fr->content_bytes);
    rbox_arg(a, f->path);
}

static void put_args(void *ctx, struct rbox_args *a, const struct rbox_frames *fr)
{
    const struct file *f = ctx;
    (void)fr;
    begin(f, a, "put");
    rbox_argn(a, f->mode);
    rbox_arg(a, f->path);
}

static void stat_args(void *ctx, struct rbox_args *a, const struct rbox_frames *fr)
{
    const struct file *f = ctx;
    (void)fr;
    begin(f, a, "stat");
    rbox_argn(a, (f->flags & MANGO_STAT_NOFOLLOW) == 0);
    rbox_arg(a, f->path);
}

static mango_status enter(struct envd *e, const struct mango_call *call, struct mango_sv id, struct file *f)
{
    enum { PATH_LEN_MAX = 4095 };
    if (f->path.len > PATH_LEN_MAX)
        return fail_path(e->host, call, ENAMETOOLONG, f->path);
    if (f->path.len > 0 && memchr(f->path.ptr, '\0', f->path.len))
        return fail_path(e->host, call, EINVAL, f->path);
    mango_status s = box_enter(e, call, id, &f->b);
    if (s < 0)
        return s;
    rbox_new_id(f->id);
    s = box_touch(f->b, call);
    if (s < 0)
        box_leave(f->b);
    return s;
}

static void own_path(const struct file *f, const char *behind, struct text *out)
{
    text_printf(out, "%s/" RBOX_DIR "/%s%s", f->b->root, f->id, behind);
}

/* ---- read ---- */

static uint64_t number(const struct rbox_frames *f, const char *name)
{
    int64_t v = 0;
    return json_int(rbox_result(f), name, &v) && v > 0 ? (uint64_t)v : 0;
}

/* Too much for a stream of JSON: it has a second name now, under which it is fetched as it is. */
static mango_status fetch(struct file *f, const struct mango_call *call, const struct rbox_frames *fr,
                          const struct mango_read_req *req, int32_t *ret_eof)
{
    text_auto struct text path = {0};
    uint64_t base = number(fr, "base"), want = number(fr, "size"), got = 0;
    own_path(f, ".out", &path);
    if (path.bad)
        return envd_no_memory(f->b->e, call);
    mango_status s = data_download(f->b, call, path.ptr, req->offset + fr->content_bytes - base, want, req->sink,
                                   req->sink_ctx, &got);
    *ret_eof = json_true(rbox_result(fr), "eof") || (s == MANGO_OK && got < want); /* it has become shorter */
    data_remove(f->b, call, path.ptr);
    return s;
}

mango_status envd_read(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_read_req *req,
                       int32_t *ret_eof)
{
    struct envd *e = ctx;
    struct file f = {.path = req->path, .offset = req->offset, .max = req->max};
    struct start st = {
        .args = read_args, .ctx = &f, .what = "read a file", .f = {.content = req->sink, .content_ctx = req->sink_ctx}};
    *ret_eof = 0;
    if (req->offset > INT64_MAX || req->max > INT64_MAX)
        return fail(e->host, call, MANGO_EINVALID, "offset and max must be below 2^63");
    mango_status s = enter(e, call, id, &f);
    if (s < 0 || !f.b)
        return s;
    s = envd_start(f.b, call, &st);
    if (s == MANGO_OK && !st.f.stopped)
        s = rbox_file_result(e->host, call, &st.f, req->path);
    if (s == MANGO_OK && !st.f.stopped && json_true(rbox_result(&st.f), "staged"))
        s = fetch(&f, call, &st.f, req, ret_eof);
    else if (s == MANGO_OK)
        *ret_eof = json_true(rbox_result(&st.f), "eof");
    box_leave(f.b);
    return s;
}

/* ---- write and stat ---- */

mango_status envd_write(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_write_req *req)
{
    struct envd *e = ctx;
    struct file f = {.path = req->path, .mode = req->mode};
    struct start st = {.args = put_args, .ctx = &f, .what = "write a file"};
    text_auto struct text path = {0};
    mango_status s = enter(e, call, id, &f);
    if (s < 0 || !f.b)
        return s;
    own_path(&f, ".in", &path);
    s = path.bad ? envd_no_memory(e, call)
                 : data_upload(f.b, call, path.ptr, req->content, req->source, req->source_ctx, req->source_len);
    if (s == MANGO_OK)
        s = envd_start(f.b, call, &st);
    else if (!path.bad && s != MANGO_EGONE)
        data_remove(f.b, call, path.ptr);
    if (s == MANGO_OK)
        s = rbox_file_result(e->host, call, &st.f, req->path);
    box_leave(f.b);
    return s;
}

mango_status envd_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                       uint32_t flags, struct mango_stat *ret)
{
    struct envd *e = ctx;
    struct file f = {.path = path, .flags = flags};
    struct start st = {.args = stat_args, .ctx = &f, .what = "look at a file"};
    mango_status s = enter(e, call, id, &f);
    if (s < 0 || !f.b)
        return s;
    s = envd_start(f.b, call, &st);
    if (s == MANGO_OK)
        s = rbox_file_result(e->host, call, &st.f, path);
    if (s == MANGO_OK)
        rbox_stat_result(&st.f, ret);
    box_leave(f.b);
    return s;
}
