#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/content.h"
#include "common/remote/websocket.h"
#include "daytona/daytona.h"

/* The toolbox: one command, one file in, one file out. It merges a command's streams and cannot end it: mango-rbox's lines and
 * its own supervisor need neither. */

enum {
    MARGIN_MS = 10000, /* that an answer may take beyond the command's own time */
    END_TERMINAL_MS = 5000,
};

struct own *own_new(const struct seen *seen)
{
    struct own *own = calloc(1, sizeof(*own));
    if (!own)
        return NULL;
    pthread_mutex_init(&own->lock, NULL);
    memcpy(own->toolbox, seen->toolbox, sizeof(own->toolbox));
    return own;
}

static void own_free(void *p)
{
    struct own *own = p;
    pthread_mutex_destroy(&own->lock);
    free(own);
}

/* Older services tell the address in a call of its own. */
static mango_status ask_address(struct daytona *d, const struct mango_call *call, const char *id, char out[URL_LEN])
{
    char path[ID_MAX + 64];
    struct api_res r;
    snprintf(path, sizeof(path), "/sandbox/%s/toolbox-proxy-url", id);
    mango_status s = api_call(d, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "tell the sandbox's address", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(d, call, &r, "tell the sandbox's address", MANGO_ERETRY);
    else if (s == MANGO_OK && !json_copy(r.body, "url", out, URL_LEN))
        s = fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona told no address of the sandbox");
    api_free(d, &r);
    return s;
}

static mango_status toolbox_look(void *ctx, const struct mango_call *call, struct errands_box *b)
{
    struct daytona *d = ctx;
    struct own *own = b->own;
    struct seen seen = {0};
    mango_status s = sandbox_run(d, call, b->id, &seen);
    if (s < 0 || !seen.toolbox[0])
        return s;
    pthread_mutex_lock(&own->lock);
    memcpy(own->toolbox, seen.toolbox, sizeof(own->toolbox));
    pthread_mutex_unlock(&own->lock);
    return MANGO_OK;
}

struct request {
    struct mango_http_header headers[REMOTE_HEADERS_MAX];
    struct text url;
    struct remote_req req;
    struct remote_res res;
};

static mango_status begin(struct daytona *d, const struct mango_call *call, struct errands_box *b, const char *method,
                          const char *path, const char *what, struct request *q)
{
    struct own *own = b->own;
    char base[URL_LEN];
    *q = (struct request){0};
    pthread_mutex_lock(&own->lock);
    memcpy(base, own->toolbox, sizeof(base));
    pthread_mutex_unlock(&own->lock);
    if (!base[0]) {
        mango_status s = ask_address(d, call, b->id, base);
        if (s < 0)
            return s;
        pthread_mutex_lock(&own->lock);
        memcpy(own->toolbox, base, sizeof(base));
        pthread_mutex_unlock(&own->lock);
    }
    size_t n = strlen(base);
    while (n > 0 && base[n - 1] == '/')
        base[--n] = '\0';
    text_printf(&q->url, "%s/%s%s", base, b->id, path);
    q->req = (struct remote_req){.method = method,
                                 .url = q->url.ptr,
                                 .what = what,
                                 .headers = q->headers,
                                 .n_headers = api_headers(d, q->headers)};
    return q->url.bad ? fail(d->remote.host, call, MANGO_ERETRY, "out of memory") : MANGO_OK;
}

/* A 404 or a 400 of the toolbox or of the proxy before it says nothing about the sandbox: it may be stopped. */
static mango_status run(struct daytona *d, const struct mango_call *call, struct request *q)
{
    mango_status s = remote_call(&d->remote, call, &q->req, &q->res);
    if (s == MANGO_OK && !remote_good(&q->res)) {
        s = remote_fail(&d->remote, call, &q->req, &q->res, MANGO_ERETRY);
        if (q->res.status == 400)
            s = MANGO_ERETRY;
    }
    return s;
}

static void end(struct daytona *d, struct request *q)
{
    remote_free(&d->remote, &q->res);
    text_free(&q->url);
}

static mango_status toolbox_command(void *ctx, const struct mango_call *call, struct errands_box *b, const char *line,
                                    uint32_t ms, mango_sink_fn *sink, void *sink_ctx, struct errands_end *ret)
{
    struct daytona *d = ctx;
    struct request q;
    int64_t code = -1;
    text_auto struct text body = {0}, said = {0};
    mango_status s = begin(d, call, b, "POST", "/process/execute", "run a command", &q);
    text_add(&body, "{\"command\":");
    text_jsonz(&body, line);
    text_printf(&body, ",\"timeout\":%u}", ms / 1000 + 1);
    if (s == MANGO_OK && body.bad)
        s = fail(d->remote.host, call, MANGO_ERETRY, "out of memory");
    if (s == MANGO_OK) {
        q.req.flags = REMOTE_SAFE | REMOTE_JSON; /* errands may come twice */
        q.req.ms = ms + MARGIN_MS;
        q.req.idle_ms = ms + MARGIN_MS;
        q.req.body = text_view(&body);
        s = run(d, call, &q);
        ret->sent = q.res.sent;
    }
    struct mango_sv answer = s == MANGO_OK ? remote_body(&d->remote, &q.res) : no_text();
    if (s == MANGO_OK && (!json_text(json_get(answer, "result"), &said) || said.bad))
        s = fail(d->remote.host, call, MANGO_ERETRY, "the sandbox's answer to a command has no result");
    if (s == MANGO_OK) {
        (void)json_int(answer, "exitCode", &code);
        ret->code = (int)code;
        text_add(&said, "\n");
        (void)sink(sink_ctx, 1, said.ptr, said.len);
    }
    end(d, &q);
    return s;
}

static mango_status toolbox_upload(void *ctx, const struct mango_call *call, struct errands_box *b, const char *path,
                                   mango_source_fn *source, void *source_ctx, int64_t len)
{
    struct daytona *d = ctx;
    struct request q;
    struct form f;
    mango_status s = begin(d, call, b, "POST", "/files/bulk-upload", "take a file", &q);
    form_begin(&f, source, source_ctx);
    form_field(&f, "name=\"files[0].path\"", NULL, path);
    form_file(&f, "name=\"files[0].file\"; filename=\"file\"");
    if (s == MANGO_OK && f.bad)
        s = fail(d->remote.host, call, MANGO_EINVALID, "the workspace's path is too long");
    if (s == MANGO_OK) {
        q.req.flags = REMOTE_SINGLE | REMOTE_STREAM;
        q.req.type = f.type;
        q.req.source = form_read;
        q.req.source_ctx = &f;
        q.req.source_len = form_length(&f, len);
        s = run(d, call, &q);
    }
    end(d, &q);
    return s;
}

static mango_status toolbox_download(void *ctx, const struct mango_call *call, struct errands_box *b, const char *path,
                                     uint64_t offset, uint64_t n, mango_sink_fn *sink, void *sink_ctx)
{
    struct daytona *d = ctx;
    struct request q;
    struct range g;
    text_auto struct text query = {0};
    text_add(&query, "/files/download?path=");
    text_url(&query, sv_z(path));
    range_begin(&g, offset, n, sink, sink_ctx);
    mango_status s = begin(d, call, b, "GET", query.bad ? "" : query.ptr, "give a file", &q);
    if (s == MANGO_OK) {
        remote_header(q.headers, &q.req.n_headers, "Range", g.header);
        q.req.flags = REMOTE_SAFE | REMOTE_STREAM;
        q.req.sink = range_take;
        q.req.sink_ctx = &g;
        q.req.on_header = range_on_header;
        q.req.header_ctx = &g;
        s = run(d, call, &q);
        if (q.res.status == 416) /* nothing is there: the file ends before */
            s = MANGO_OK;
    }
    end(d, &q);
    return s;
}

/* ---- terminals ---- */

static mango_status toolbox_open_terminal(void *ctx, const struct mango_call *call, struct errands_box *b,
                                          const char *name, struct websocket *ret)
{
    struct daytona *d = ctx;
    struct request q;
    text_auto struct text path = {0};
    text_printf(&path, "/process/pty/create-connect?id=%s&cols=80&rows=24", name);
    mango_status s = begin(d, call, b, "GET", path.bad ? "" : path.ptr, "open a terminal", &q);
    if (s == MANGO_OK)
        s = websocket_open(&d->remote, call, &q.req, ret, &q.res);
    end(d, &q);
    return s;
}

static void toolbox_end_terminal(void *ctx, struct errands_box *b, const char *name)
{
    struct daytona *d = ctx;
    struct request q;
    text_auto struct text path = {0};
    struct mango_call call = remote_undo(d->remote.host, END_TERMINAL_MS);
    text_printf(&path, "/process/pty/%s", name);
    mango_status s = begin(d, &call, b, "DELETE", path.bad ? "" : path.ptr, "end a terminal", &q);
    q.req.flags = REMOTE_SINGLE;
    if (s == MANGO_OK)
        (void)run(d, &call, &q);
    end(d, &q);
}

const struct errands_service toolbox_service = {
    .command = toolbox_command,
    .upload = toolbox_upload,
    .download = toolbox_download,
    .look = toolbox_look,
    .open_terminal = toolbox_open_terminal,
    .end_terminal = toolbox_end_terminal,
    .free_own = own_free,
    .slice_ms = 20000,
    .soon_ms = 200,
};
