#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/errand-call.h"

/* Files. Small ones come in the answer, larger ones through the service's own call for files; the program decides what may be
 * read and gives content its name. */

/* ---- read ---- */

struct reading {
    const struct mango_read_req *req;
    uint64_t given;
    bool full;
};

static void on_content(void *ctx, char kind, uint64_t offset, const char *p, uint64_t n)
{
    struct reading *r = ctx;
    uint64_t at = r->req->offset + r->given;
    if (kind != 'd' || offset > at || offset + n <= at || r->full)
        return; /* of an earlier try */
    p += at - offset;
    n -= at - offset;
    r->given += n;
    r->full = r->req->sink(r->req->sink_ctx, 0, p, n) != 0;
}

static int32_t on_piece(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct reading *r = ctx;
    (void)stream;
    r->given += n;
    r->full = r->req->sink(r->req->sink_ctx, 0, p, n) != 0;
    return r->full;
}

static mango_status fetch(struct errands *e, const struct mango_call *call, struct errands_box *b,
                          const struct reply *a, struct reading *r, int32_t *ret_eof)
{
    char name[40];
    unsigned long long skip, bytes;
    int eof;
    uint64_t got;
    if (sscanf(a->rest, "%39s %llu %llu %d", name, &skip, &bytes, &eof) != 4) /* NOLINT(cert-err34-c) */
        return fail(e->host, call, MANGO_EINTERNAL, "mango-rbox gave an answer that makes no sense");
    *ret_eof = eof;
    if (strcmp(name, "-") == 0)
        return r->given == bytes || r->full ? MANGO_OK
                                            : fail(e->host, call, MANGO_ERETRY, "the file did not come whole");
    mango_status s = content_fetch(e, call, b, name, skip, bytes, on_piece, r, &got);
    if (s == MANGO_OK && got < bytes && !r->full)
        *ret_eof = 1; /* it has become shorter */
    box_forget(b, "", name);
    return s;
}

static mango_status box_read(struct errands *e, const struct mango_call *call, struct errands_box *b,
                             const struct mango_read_req *req, int32_t *ret_eof)
{
    struct reading r = {.req = req};
    struct reply a = {.on_content = on_content, .ctx = &r};
    text_auto struct text body = {0};
    if (e->host->cancelled(e->host, call))
        return fail(e->host, call, MANGO_ECANCELED, "cancelled");
    request_text(&body, req->path);
    request_number(&body, req->offset < INT64_MAX ? req->offset : INT64_MAX);
    request_number(&body, req->max < INT64_MAX ? req->max : INT64_MAX);
    mango_status s = errand_send(e, call, b, ERRAND_READ, &body, 0, &a);
    if (s == MANGO_OK && a.last == '!')
        return errand_refused(e, call, &a, req->path);
    return s < 0 ? s : fetch(e, call, b, &a, &r, ret_eof);
}

mango_status errands_read(struct errands *e, const struct mango_call *call, struct mango_sv id,
                          const struct mango_read_req *req, int32_t *ret_eof)
{
    struct errands_box *b;
    mango_status s = errands_enter(e, call, id, &b);
    if (s < 0)
        return s;
    s = box_read(e, call, b, req, ret_eof);
    errands_leave(e, b);
    return s;
}

/* ---- write ---- */

static mango_status box_write(struct errands *e, const struct mango_call *call, struct errands_box *b,
                              const struct mango_write_req *req)
{
    char name[32];
    uint64_t bytes;
    text_auto struct text body = {0};
    struct reply a = {0};
    if (e->host->cancelled(e->host, call))
        return fail(e->host, call, MANGO_ECANCELED, "cancelled");
    content_name(name);
    mango_status s =
        content_upload(e, call, b, name, req->content, req->source, req->source_ctx, req->source_len, &bytes);
    if (s < 0)
        return s;
    request_text(&body, req->path);
    request_number(&body, req->mode);
    request_text(&body, sv_z(name));
    request_number(&body, bytes);
    s = errand_send(e, call, b, ERRAND_PUT, &body, 0, &a);
    box_forget(b, "", name);
    return s == MANGO_OK && a.last == '!' ? errand_refused(e, call, &a, req->path) : s;
}

mango_status errands_write(struct errands *e, const struct mango_call *call, struct mango_sv id,
                           const struct mango_write_req *req)
{
    struct errands_box *b;
    mango_status s = errands_enter(e, call, id, &b);
    if (s < 0)
        return s;
    s = box_write(e, call, b, req);
    errands_leave(e, b);
    return s;
}

/* ---- stat ---- */

static mango_status box_stat(struct errands *e, const struct mango_call *call, struct errands_box *b,
                             struct mango_sv path, uint32_t flags, struct mango_stat *ret)
{
    text_auto struct text body = {0};
    struct reply a = {0};
    char kind;
    unsigned long long size;
    unsigned mode;
    long long mtime;
    request_text(&body, path);
    request_number(&body, flags & MANGO_STAT_NOFOLLOW ? 1 : 0);
    mango_status s = errand_send(e, call, b, ERRAND_STAT, &body, 0, &a);
    if (s < 0)
        return s;
    if (a.last == '!')
        return errand_refused(e, call, &a, path);
    if (sscanf(a.rest, "%c %llu %o %lld", &kind, &size, &mode, &mtime) != 4) /* NOLINT(cert-err34-c) */
        return fail(e->host, call, MANGO_EINTERNAL, "mango-rbox gave an answer that makes no sense");
    ret->kind = (uint32_t)kind;
    ret->size = size;
    ret->mode = mode;
    ret->mtime_us = mtime;
    return MANGO_OK;
}

mango_status errands_stat(struct errands *e, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                          uint32_t flags, struct mango_stat *ret)
{
    struct errands_box *b;
    mango_status s = errands_enter(e, call, id, &b);
    if (s < 0)
        return s;
    s = box_stat(e, call, b, path, flags, ret);
    errands_leave(e, b);
    return s;
}
