#include "common/remote/errand-call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/base64.h"
#include "common/remote/errand-link.h"

/* One errand: the request, the tries, the lines of the answer. */

enum {
    TRIES = 6,         /* of one errand; between them the control plane is asked */
    MARGIN_MS = 30000, /* that a command may take beyond what it waits for itself */
    UPLOAD_TRIES = 4,
};

/* ---- the answer ---- */

static void on_line(struct reply *r)
{
    static const char mark[] = ERRAND_MARK;
    char *p = r->line, *end = NULL;
    if (r->len < sizeof(mark) || memcmp(p, mark, sizeof(mark) - 1) != 0)
        return;
    p += sizeof(mark) - 1;
    char kind = *p++;
    if (*p == ' ')
        p++;
    if (kind == 'o' || kind == 'e' || kind == 'd') {
        unsigned long long offset = strtoull(p, &end, 10);
        uint64_t n = 0;
        if (end == p || *end != ' ' || !base64_decode(sv_z(end + 1), end + 1, &n))
            r->bad = true;
        else if (r->on_content)
            r->on_content(r->ctx, kind, offset, end + 1, n);
    } else if (kind == 'b') {
        int stream;
        unsigned long long offset, n;
        if (sscanf(p, "%d %llu %llu", &stream, &offset, &n) != 3 || stream < 1 || stream > 2) /* NOLINT(cert-err34-c) */
            r->bad = true;
        else if (r->on_fetch)
            r->on_fetch(r->ctx, stream, offset, n);
    } else if (strchr(".~!fsk", kind)) {
        r->last = kind;
        snprintf(r->rest, sizeof(r->rest), "%s", p);
    }
}

int32_t reply_feed(void *reply, int32_t stream, const char *p, uint64_t n)
{
    struct reply *r = reply;
    (void)stream;
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] == '\n' || p[i] == '\r') {
            r->line[r->len] = '\0';
            if (!r->skip && r->len > 0 && !r->last)
                on_line(r);
            r->len = 0;
            r->skip = false;
        } else if (r->len + 1 < sizeof(r->line)) {
            r->line[r->len++] = p[i];
        } else {
            r->skip = true;
        }
    }
    return 0;
}

/* ---- the request ---- */

void request_number(struct text *t, uint64_t v)
{
    char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (char)(v >> (8 * i) & 255);
    text_bytes(t, b, sizeof(b));
}

void request_text(struct text *t, struct mango_sv s)
{
    request_number(t, s.len);
    text_sv(t, s);
}

void request_begin(struct text *t, uint64_t op, const struct errands_box *b, char *const *forget, unsigned n_forget)
{
    request_number(t, op);
    request_text(t, sv_z(b->root));
    request_number(t, n_forget);
    for (unsigned i = 0; i < n_forget; i++)
        request_text(t, sv_z(forget[i]));
}

/* ---- names ---- */

void content_name(char name[32])
{
    memcpy(name, "in-", 3);
    random_hex(name + 3, ERRAND_NAME_LEN);
}

char *content_path(const struct errands_box *b, const char *name)
{
    size_t n = strlen(b->root) + strlen(name) + sizeof("/" ERRAND_DIR "/");
    char *z = malloc(n);
    if (z)
        snprintf(z, n, "%s/" ERRAND_DIR "/%s", b->root, name);
    return z;
}

void box_forget(struct errands_box *b, const char *prefix, const char *name)
{
    char z[80];
    snprintf(z, sizeof(z), "%s%s", prefix, name);
    pthread_mutex_lock(&b->lock);
    if (b->n_forget < ERRANDS_FORGET_MAX && (b->forget[b->n_forget] = strdup(z)))
        b->n_forget++; /* with a full list it is left to the sweep */
    pthread_mutex_unlock(&b->lock);
}

/* What the next errand takes along; it is the caller's to free, or to give back. */
static unsigned take_forget(struct errands_box *b, char *list[ERRANDS_FORGET_MAX])
{
    pthread_mutex_lock(&b->lock);
    unsigned n = b->n_forget;
    memcpy(list, b->forget, n * sizeof(*list));
    b->n_forget = 0;
    pthread_mutex_unlock(&b->lock);
    return n;
}

static void free_names(char **list, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        free(list[i]);
}

/* ---- content ---- */

int64_t inflow_read(void *ctx, char *p, uint64_t n)
{
    struct inflow *in = ctx;
    if (in->source) {
        int64_t got = in->source(in->ctx, p, n);
        if (got < 0)
            in->gave_up = (mango_status)got;
        else
            in->bytes += (uint64_t)got;
        return got;
    }
    uint64_t take = in->data.len < n ? in->data.len : n;
    if (take)
        memcpy(p, in->data.ptr, take);
    in->data.ptr += take;
    in->data.len -= take;
    in->bytes += take;
    return (int64_t)take;
}

/* After a failure of the data plane: whether it is worth another try. */
static mango_status look(struct errands *e, const struct mango_call *call, struct errands_box *b, mango_status s,
                         unsigned try)
{
    if (s != MANGO_ERETRY && s != MANGO_EGONE && s != MANGO_ENOENT)
        return s;
    mango_status there = e->service->look(e->ctx, call, b);
    if (there < 0)
        return there;
    return remote_wait(e->host, call, remote_back_off_ms(try));
}

mango_status content_upload(struct errands *e, const struct mango_call *call, struct errands_box *b, const char *name,
                            struct mango_sv data, mango_source_fn *source, void *source_ctx, int64_t len,
                            uint64_t *ret_bytes)
{
    char *path = content_path(b, name);
    if (!path)
        return fail(e->host, call, MANGO_ERETRY, "out of memory");
    mango_status s;
    for (unsigned try = 1;; try++) {
        struct inflow in = {.data = data, .source = source, .ctx = source_ctx};
        s = e->service->upload(e->ctx, call, b, path, inflow_read, &in, source ? len : (int64_t)data.len);
        *ret_bytes = in.bytes;
        if (in.gave_up < 0)
            s = in.gave_up;
        if (s == MANGO_OK || (source && in.bytes > 0) || in.gave_up < 0 || try == UPLOAD_TRIES)
            break;
        mango_status next = look(e, call, b, s, try);
        if (next < 0) {
            s = next;
            break;
        }
    }
    if (s < 0)
        box_forget(b, "", name);
    free(path);
    return s;
}

struct outflow {
    mango_sink_fn *sink;
    void *ctx;
    uint64_t n, left;
    bool full;
};

static int32_t outflow_take(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct outflow *o = ctx;
    uint64_t take = n < o->left ? n : o->left;
    (void)stream;
    o->n += take;
    o->left -= take;
    if (!o->full && take > 0)
        o->full = o->sink(o->ctx, 0, p, take) != 0;
    return o->full || o->left == 0;
}

mango_status content_fetch(struct errands *e, const struct mango_call *call, struct errands_box *b, const char *name,
                           uint64_t offset, uint64_t n, mango_sink_fn *sink, void *sink_ctx, uint64_t *ret_n)
{
    struct outflow o = {.sink = sink, .ctx = sink_ctx, .left = n};
    char *path = content_path(b, name);
    mango_status s = path ? MANGO_OK : fail(e->host, call, MANGO_ERETRY, "out of memory");
    for (unsigned try = 1; path && o.left > 0 && !o.full; try++) {
        uint64_t before = o.n;
        s = e->service->download(e->ctx, call, b, path, offset + o.n, o.left, outflow_take, &o);
        if (s == MANGO_OK || o.full || o.left == 0 || try >= UPLOAD_TRIES)
            break;
        if (o.n > before)
            try = 1; /* it gets on */
        mango_status next = look(e, call, b, s, try);
        if (next < 0) {
            s = next;
            break;
        }
    }
    if (o.full || o.left == 0)
        s = MANGO_OK;
    *ret_n = o.n;
    free(path);
    return s;
}

/* ---- the program ---- */

static mango_status install_once(struct errands *e, const struct mango_call *call, struct errands_box *b)
{
    char fresh[sizeof("errand-") + ERRANDS_VERSION_LEN];
    text_auto struct text request = {0}, line = {0};
    struct reply r = {0};
    uint64_t sent;
    struct errands_end end = {.code = -1};
    memcpy(fresh, "errand-", 7);
    random_hex(fresh + 7, ERRANDS_VERSION_LEN);
    struct mango_sv program = e->host->buf_view(e->host, e->program);
    mango_status s = content_upload(e, call, b, fresh, program, NULL, NULL, 0, &sent);
    if (s < 0)
        return s;
    request_begin(&request, ERRAND_HELLO, b, NULL, 0);
    request_text(&request, sv_z(e->name));
    /* Sent again after a lost answer, it finds the program under its last name. */
    text_printf(&line, "cd '%s/" ERRAND_DIR "' && { p=%s; [ -e $p ] || p=%s; } && chmod 700 . $p && ./$p errand ",
                b->root, fresh, e->name);
    text_base64(&line, text_view(&request), false);
    text_printf(&line, " </dev/null || (c=$?; rm -f %s; exit $c)", fresh);
    if (request.bad || line.bad)
        return fail(e->host, call, MANGO_ERETRY, "out of memory");
    s = e->service->command(e->ctx, call, b, line.ptr, MARGIN_MS, reply_feed, &r, &end);
    if (s < 0)
        return s;
    if (r.last == 'k')
        return MANGO_OK;
    if (r.last == '!')
        return errand_refused(e, call, &r, sv_z(b->root));
    return fail(
        e->host, call, MANGO_EINTERNAL,
        "mango-rbox cannot run in the sandbox (exit code %d): it needs Linux on the processor of this server, and a "
        "workspace whose files may be executed",
        end.code);
}

mango_status errand_install(struct errands *e, const struct mango_call *call, struct errands_box *b)
{
    mango_status s = MANGO_OK;
    for (unsigned try = 1; try <= TRIES; try++) {
        s = install_once(e, call, b);
        if (s != MANGO_ERETRY && s != MANGO_EGONE && s != MANGO_ENOENT)
            return s;
        mango_status next = look(e, call, b, s, try);
        if (next < 0)
            return next;
    }
    return s;
}

/* ---- one errand ---- */

/* A request that is too long for a command line goes in as a file, which the program removes. */
static mango_status make_line(struct errands *e, const struct mango_call *call, struct errands_box *b,
                              const struct text *coded, struct text *line)
{
    text_printf(line, "'%s/" ERRAND_DIR "/%s' errand ", b->root, e->name);
    mango_status s = MANGO_OK;
    if (coded->len <= ERRANDS_LINE_MAX) {
        text_sv(line, text_view(coded));
    } else {
        char name[32];
        uint64_t sent;
        content_name(name);
        s = content_upload(e, call, b, name, text_view(coded), NULL, NULL, 0, &sent);
        text_printf(line, "-f '%s/" ERRAND_DIR "/%s'", b->root, name);
    }
    text_add(line, " </dev/null");
    return s == MANGO_OK && line->bad ? fail(e->host, call, MANGO_ERETRY, "out of memory") : s;
}

/* Over the line that is open, else as a request. */
static mango_status carry(struct errands *e, const struct mango_call *call, struct errands_box *b, uint64_t op,
                          const struct text *coded, uint32_t ms, struct reply *r, struct errands_end *ret)
{
    const struct reply fresh = *r;
    text_auto struct text line = {0};
    bool sent = false;
    if (op != ERRAND_HELLO && coded->len <= ERRANDS_LINE_MAX && link_errand(e, call, b, coded, ms, r, &sent))
        return MANGO_OK;
    *r = fresh;
    mango_status s = make_line(e, call, b, coded, &line);
    if (s == MANGO_OK)
        s = e->service->command(e->ctx, call, b, line.ptr, ms + MARGIN_MS, reply_feed, r, ret);
    ret->sent |= sent;
    return s;
}

static mango_status send_once(struct errands *e, const struct mango_call *call, struct errands_box *b, uint64_t op,
                              const struct text *body, uint32_t ms, struct reply *r, struct errands_end *ret)
{
    char *forget[ERRANDS_FORGET_MAX];
    text_auto struct text request = {0}, coded = {0};
    unsigned n = take_forget(b, forget);
    request_begin(&request, op, b, forget, n);
    text_sv(&request, text_view(body));
    text_base64(&coded, text_view(&request), false);
    mango_status s = MANGO_OK;
    if (request.bad || coded.bad)
        s = fail(e->host, call, MANGO_ERETRY, "out of memory");
    else
        s = carry(e, call, b, op, &coded, ms, r, ret);
    if (!r->last) { /* it may not have come: once more */
        for (unsigned i = 0; i < n; i++)
            box_forget(b, "", forget[i]);
    }
    free_names(forget, n);
    return s;
}

mango_status errand_send(struct errands *e, const struct mango_call *call, struct errands_box *b, uint64_t op,
                         const struct text *body, uint32_t ms, struct reply *r)
{
    const struct reply fresh = {.on_content = r->on_content, .on_fetch = r->on_fetch, .ctx = r->ctx};
    bool installed = false, sent = false;
    mango_status s = MANGO_OK;
    for (unsigned try = 1; try <= TRIES; try++) {
        struct errands_end end = {.code = -1};
        *r = fresh;
        s = send_once(e, call, b, op, body, ms, r, &end);
        sent |= end.sent;
        r->sent = sent;
        if (r->last && !r->bad)
            return MANGO_OK;                                /* whole, whatever became of the connection behind it */
        if (s == MANGO_OK && end.code != 0 && !installed) { /* a new disk, or a new server: the program is not there */
            installed = true;
            s = errand_install(e, call, b);
            if (s < 0)
                return s;
            continue;
        }
        if (s == MANGO_OK)
            s = fail(e->host, call, MANGO_ERETRY, "the sandbox's answer was cut off");
        mango_status next = look(e, call, b, s, try);
        if (next < 0)
            return next;
    }
    return s;
}

mango_status errand_refused(const struct errands *e, const struct mango_call *call, const struct reply *r,
                            struct mango_sv path)
{
    char *end;
    int errnum = (int)strtol(r->rest, &end, 10);
    while (*end == ' ')
        end++;
    return fail_path_as(e->host, call, errnum, path, sv_z(end));
}
