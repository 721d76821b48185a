#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "docker/plain.h"

/* Files of the workspace: mango-box opens them inside of the container. */

enum { SOURCE_BYTES = 32 * 1024 };

/* One file operation. */
struct op {
    struct docker *docker;
    const struct mango_call *call;
    struct mango_sv path;
    struct mux_chan *chan;
    bool lost; /* the connection went; nothing of a write is there */
};

static mango_status begin(struct box *b, struct op *o, uint8_t kind, const struct mux_file *f)
{
    text_auto struct text payload = {0};
    struct mux *m = NULL;
    if (o->path.len > MUX_PATH_MAX)
        return fail_path(b->docker->host, o->call, ENAMETOOLONG, o->path);
    mango_status s = box_mux(b, o->call, &m);
    if (s < 0)
        return s;
    o->chan = mux_chan_open(m);
    mux_unref(m);
    text_bytes(&payload, (const char *)f, sizeof(*f));
    text_sv(&payload, o->path);
    if (!o->chan || payload.bad)
        return fail(b->docker->host, o->call, MANGO_ERETRY, "out of memory");
    o->lost = !mux_send(o->chan, o->call, kind, text_view(&payload));
    return o->lost ? fail(b->docker->host, o->call, MANGO_ERETRY, "the connection into the container was lost")
                   : MANGO_OK;
}

/* *ret NULL: DATA may be sent. */
static mango_status next(struct op *o, bool want_room, struct frame **ret)
{
    switch (mux_wait(o->chan, o->call, o->call->deadline_ns, want_room, ret)) {
    case MUX_GOT:
    case MUX_ROOM:
        return MANGO_OK;
    case MUX_TIME:
        return fail(o->docker->host, o->call, MANGO_ETIMEOUT, "the sandbox did not answer in time");
    case MUX_CANCEL:
        return MANGO_ECANCELED;
    default:
        o->lost = true;
        return fail(o->docker->host, o->call, MANGO_ERETRY, "the connection into the container was lost");
    }
}

/* From an END frame; frees nothing. */
static mango_status on_end(const struct op *o, const struct frame *f, struct mux_end *ret)
{
    if (f->head.len < sizeof(*ret))
        return fail(o->docker->host, o->call, MANGO_EINTERNAL, "mango-box sent half an answer");
    memcpy(ret, f->data, sizeof(*ret));
    if (ret->error == EPROTO)
        return fail(o->docker->host, o->call, MANGO_EINTERNAL, "mango-box did not understand the request");
    if (ret->error)
        return fail_path_as(o->docker->host, o->call, ret->error, o->path,
                            (struct mango_sv){f->data + sizeof(*ret), f->head.len - sizeof(*ret)});
    return MANGO_OK;
}

static void done(struct op *o)
{
    if (o->chan)
        mux_chan_close(o->chan, o->call);
    o->chan = NULL;
}

/* ---- read ---- */

static mango_status read_once(struct box *b, struct op *o, const struct mango_read_req *req, int32_t *ret_eof,
                              bool *ret_given)
{
    const struct mux_file f = {.offset = req->offset, .max = req->max};
    mango_status s = begin(b, o, MUX_READ, &f);
    bool ended = false;
    while (s == MANGO_OK && !ended) {
        struct frame *fr;
        struct mux_end end = {0};
        s = next(o, false, &fr);
        if (s < 0)
            break;
        if (fr->head.kind == MUX_END) {
            s = on_end(o, fr, &end);
            *ret_eof = s == MANGO_OK && end.eof;
            ended = true;
        } else if (fr->head.kind == MUX_DATA) {
            *ret_given = true;
            ended = req->sink(req->sink_ctx, 0, fr->data, fr->head.len) != 0;
            mux_used(o->chan, o->call, fr->head.len);
        }
        free(fr);
        if (s == MANGO_OK && !ended && b->docker->host->cancelled(b->docker->host, o->call))
            s = MANGO_ECANCELED;
    }
    done(o);
    return s;
}

mango_status docker_read(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_read_req *req,
                         int32_t *ret_eof)
{
    struct docker *d = ctx;
    struct box *b;
    bool given = false;
    struct op o = {.docker = d, .call = call, .path = req->path};
    *ret_eof = 0;
    if (req->offset > INT64_MAX || req->max > INT64_MAX)
        return fail(d->host, call, MANGO_EINVALID, "offset and max must be below 2^63");
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    s = b->plain ? plain_read(b, call, req, ret_eof) : read_once(b, &o, req, ret_eof, &given);
    if (s < 0 && o.lost && !given)
        s = read_once(b, &o, req, ret_eof, &given);
    live_leave(&b->live);
    return s;
}

/* ---- write ---- */

/* *ret_ended: END came, the result is its meaning. */
static mango_status hear(struct op *o, bool want_room, bool *ret_ended)
{
    struct frame *f;
    struct mux_end end = {0};
    mango_status s = next(o, want_room, &f);
    if (s < 0 || !f)
        return s;
    if (f->head.kind == MUX_END) {
        *ret_ended = true;
        s = on_end(o, f, &end);
    }
    free(f);
    return s;
}

static mango_status send_all(struct op *o, struct mango_sv data, bool *ret_ended)
{
    mango_status s = MANGO_OK;
    while (s == MANGO_OK && data.len > 0 && !*ret_ended) {
        uint32_t n = mux_take_room(o->chan, data.len < MUX_DATA_MAX ? data.len : MUX_DATA_MAX);
        if (n == 0) {
            s = hear(o, true, ret_ended);
            continue;
        }
        if (!mux_send(o->chan, o->call, MUX_DATA, (struct mango_sv){data.ptr, n})) {
            o->lost = true;
            return fail(o->docker->host, o->call, MANGO_ERETRY, "the connection into the container was lost");
        }
        data = (struct mango_sv){data.ptr + n, data.len - n};
        if (o->docker->host->cancelled(o->docker->host, o->call))
            s = MANGO_ECANCELED;
    }
    return s;
}

static mango_status send_source(struct op *o, const struct mango_write_req *req, bool *ret_ended)
{
    char *piece = malloc(SOURCE_BYTES);
    mango_status s = piece ? MANGO_OK : fail(o->docker->host, o->call, MANGO_ERETRY, "out of memory");
    int64_t total = 0;
    while (s == MANGO_OK && !*ret_ended) {
        int64_t n = req->source(req->source_ctx, piece, SOURCE_BYTES);
        if (n < 0)
            s = (mango_status)n;
        if (n <= 0)
            break;
        total += n;
        s = send_all(o, (struct mango_sv){piece, (uint64_t)n}, ret_ended);
    }
    free(piece);
    if (s == MANGO_OK && !*ret_ended && req->source_len >= 0 && total != req->source_len)
        s = fail(o->docker->host, o->call, MANGO_EINVALID, "the content ended after %lld of %lld bytes",
                 (long long)total, (long long)req->source_len);
    return s;
}

static mango_status write_once(struct box *b, struct op *o, const struct mango_write_req *req)
{
    const struct mux_file f = {.mode = req->mode};
    bool ended = false;
    o->lost = false;
    mango_status s = begin(b, o, MUX_WRITE, &f);
    if (s == MANGO_OK)
        s = req->source ? send_source(o, req, &ended) : send_all(o, req->content, &ended);
    if (s == MANGO_OK && !ended && !mux_send(o->chan, o->call, MUX_EOF, no_text())) {
        o->lost = true;
        s = fail(o->docker->host, o->call, MANGO_ERETRY, "the connection into the container was lost");
    }
    while (s == MANGO_OK && !ended)
        s = hear(o, false, &ended);
    done(o); /* before an END: the write is undone */
    return s;
}

mango_status docker_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_write_req *req)
{
    struct box *b;
    struct op o = {.docker = ctx, .call = call, .path = req->path};
    mango_status s = box_enter(ctx, call, id, &b);
    if (s < 0)
        return s;
    s = b->plain ? plain_write(b, call, req) : write_once(b, &o, req);
    if (s < 0 && o.lost && !req->source) /* the same content once more is the same file */
        s = write_once(b, &o, req);
    live_leave(&b->live);
    return s;
}

/* ---- stat ---- */

static mango_status stat_once(struct box *b, struct op *o, uint32_t flags, struct mango_stat *ret)
{
    const struct mux_file f = {.flags = flags & MANGO_STAT_NOFOLLOW ? MUX_NOFOLLOW : 0};
    struct frame *fr = NULL;
    struct mux_end end = {0};
    mango_status s = begin(b, o, MUX_STAT, &f);
    if (s == MANGO_OK)
        s = next(o, false, &fr);
    if (s == MANGO_OK)
        s = on_end(o, fr, &end);
    if (s == MANGO_OK) {
        ret->kind = end.kind;
        ret->size = end.size;
        ret->mtime_us = end.mtime_us;
        ret->mode = end.mode;
    }
    free(fr);
    done(o);
    return s;
}

mango_status docker_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                         uint32_t flags, struct mango_stat *ret)
{
    struct box *b;
    struct op o = {.docker = ctx, .call = call, .path = path};
    mango_status s = box_enter(ctx, call, id, &b);
    if (s < 0)
        return s;
    s = b->plain ? plain_stat(b, call, path, flags, ret) : stat_once(b, &o, flags, ret);
    if (s < 0 && o.lost)
        s = stat_once(b, &o, flags, ret);
    live_leave(&b->live);
    return s;
}
