/* Objects in an S3-compatible store. libcurl signs the requests. What is longer than a part goes up in parts, each of which may be sent again; the object
 * appears with the last answer, and when that answer is lost the store is asked whether it did. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "net/exchange.h"
#include "object/backend.h"

enum {
    PART = 5 * 1024 * 1024, /* bytes: the least that the protocol takes, since this much is held in memory */
    TRIES = 3,              /* of one request whose failure may pass */
    PAUSE_MS = 200,         /* before the second try; four times as long before the third */
    CALL_MS = 60000,        /* of one request */
    READ_IDLE_MS = 30000,
    READ_MS = 3600 * 1000,    /* of a download, whose reader sets the pace */
    ANSWER_MAX = 1024 * 1024, /* bytes of an answer that is not an object */
    ETAG_MAX = 128,
    ID_MAX = 2048, /* bytes of an upload's id, percent-encoded */
    URL_MAX = 4096,
};

struct s3 {
    struct mg_object_backend base;
    struct mg_net *net;
    char *root; /* up to and including the slash before the key */
    char *host; /* the same without the prefix: for lists */
    char *prefix;
    char *scope; /* of the signature */
    char *user;  /* ACCESS:SECRET */
};

struct s3_put {
    struct s3 *s3;
    char key[MG_OBJECT_KEY];
    struct mg_buf part;
    char upload[ID_MAX]; /* "": none was begun */
    struct mg_buf etags; /* the parts as the completion lists them */
    int n_parts;
    int64_t size;
    bool sealed, unsettled;
};

/* ---- requests ---- */

static mg_rc store_fault(struct mg_err *err, const char *what, int status, const char *text)
{
    mg_rc rc = status == 403 || status == 401 ? MG_EIO : MG_EUNAVAIL;
    if (err)
        err->retry_after_s = 1;
    return mg_err_set(err, rc, "the object store does not %s (%s%d)", what, status ? "HTTP " : text, status);
}

static void url_of(const struct s3 *s, const char *key, const char *query, char out[URL_MAX])
{
    (void)snprintf(out, URL_MAX, "%s%s%s%s", s->root, key, query[0] ? "?" : "", query);
}

/* The payload's digest stands in a header of its own, which libcurl signs. */
static struct mg_net_req request(const struct s3 *s, const char *method, const char *url, struct mg_sv body,
                                 char hex[MG_SHA256_HEX], struct mg_net_header headers[2])
{
    mg_sha256_hex(body, hex);
    headers[0] = (struct mg_net_header){MG_SV("x-amz-content-sha256"), mg_sv_of(hex)};
    return (struct mg_net_req){
        .method = mg_sv_of(method),
        .url = mg_sv_of(url),
        .headers = headers,
        .n_headers = 1,
        .body = body,
        .aws_scope = mg_sv_of(s->scope),
        .aws_user = mg_sv_of(s->user),
        .total_ms = CALL_MS,
        .max_bytes = ANSWER_MAX,
    };
}

static bool may_pass(mg_rc rc, int status)
{
    return rc == MG_EIO || rc == MG_ETIMEOUT || status >= 500 || status == 429;
}

static void pause_before(int again)
{
    struct timespec t = {.tv_nsec = PAUSE_MS * 1000000L};
    if (again > 1)
        t = (struct timespec){.tv_nsec = 4L * PAUSE_MS * 1000000L};
    (void)nanosleep(&t, NULL);
}

/* One request, sent again while its failure may pass. *ret_status 0: no answer came at all. */
static mg_rc call(struct s3 *s, const char *method, const char *url, struct mg_sv body, int tries,
                  struct mg_net_answer *ret, int *ret_status, struct mg_err *err)
{
    char hex[MG_SHA256_HEX];
    struct mg_net_header headers[2];
    mg_rc rc = MG_EIO;
    *ret_status = 0;
    for (int i = 0; i < tries; i++) {
        const struct mg_net_req req = request(s, method, url, body, hex, headers);
        if (i)
            pause_before(i);
        mg_net_answer_cleanup(ret);
        *ret = (struct mg_net_answer){.status = 0};
        rc = mg_net_call(s->net, &req, 0, NULL, ret, err);
        *ret_status = rc < 0 ? 0 : ret->status;
        if (!may_pass(rc, *ret_status))
            break;
    }
    return rc;
}

static bool good(int status)
{
    return status >= 200 && status < 300;
}

/* ---- what answers say ---- */

/* The text between <tag> and </tag>, from *at on. */
static bool element(struct mg_sv xml, const char *tag, size_t *at, struct mg_sv *ret)
{
    char open[64], close[64];
    int n = snprintf(open, sizeof(open), "<%s>", tag), m = snprintf(close, sizeof(close), "</%s>", tag);
    const char *from = memmem(xml.ptr + *at, xml.len - *at, open, (size_t)n);
    const char *end = from ? memmem(from, (size_t)(xml.ptr + xml.len - from), close, (size_t)m) : NULL;
    if (!end)
        return false;
    *ret = mg_sv_n(from + n, (size_t)(end - from - n));
    *at = (size_t)(end - xml.ptr) + (size_t)m;
    return true;
}

static bool encode(struct mg_sv s, char out[ID_MAX])
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ID_MAX - 1);
    if (s.len == 0 || mg_buf_percent(&b, s) < 0)
        return false;
    memcpy(out, b.ptr, b.len);
    out[b.len] = '\0';
    return true;
}

static struct mg_sv header_of(const struct mg_net_answer *a, const char *name)
{
    struct mg_sv rest = mg_buf_view(&a->headers);
    while (rest.len) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        size_t colon = mg_sv_find(line, ':');
        if (mg_sv_eqz(mg_sv_n(line.ptr, colon), name))
            return mg_sv_trim(mg_sv_from(line, colon + 1));
    }
    return MG_SV("");
}

/* ---- writing ---- */

static mg_rc s3_put(struct mg_object_backend *b, const char *key, struct mg_object_put **ret, struct mg_err *err)
{
    struct s3_put *p = mg_xcalloc(1, sizeof(*p));
    (void)err;
    p->s3 = (struct s3 *)b;
    p->part = MG_BUF_INIT(PART);
    p->etags = MG_BUF_INIT(ANSWER_MAX);
    (void)snprintf(p->key, sizeof(p->key), "%s", key);
    *ret = (struct mg_object_put *)p;
    return MG_OK;
}

static mg_rc begin_parts(struct s3_put *p, struct mg_err *err)
{
    struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
    char url[URL_MAX];
    struct mg_sv id;
    size_t at = 0;
    int status;
    url_of(p->s3, p->key, "uploads=", url);
    (void)call(p->s3, "POST", url, MG_SV(""), TRIES, &a, &status, err);
    if (!good(status))
        return store_fault(err, "begin an upload", status, "no answer: ");
    if (!element(mg_buf_view(&a.body), "UploadId", &at, &id) || !encode(id, p->upload))
        return store_fault(err, "give an upload an id", status, "");
    return MG_OK;
}

static mg_rc send_part(struct s3_put *p, struct mg_err *err)
{
    struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
    char url[URL_MAX], query[ID_MAX + 64];
    int status;
    mg_rc rc = p->upload[0] ? MG_OK : begin_parts(p, err);
    if (rc < 0)
        return rc;
    (void)snprintf(query, sizeof(query), "partNumber=%d&uploadId=%s", p->n_parts + 1, p->upload);
    url_of(p->s3, p->key, query, url);
    (void)call(p->s3, "PUT", url, mg_buf_view(&p->part), TRIES, &a, &status, err);
    struct mg_sv etag = header_of(&a, "etag");
    if (!good(status) || etag.len == 0 || etag.len > ETAG_MAX)
        return store_fault(err, "take a part of an upload", status, "no answer: ");
    p->n_parts++;
    (void)mg_buf_printf(&p->etags, "<Part><PartNumber>%d</PartNumber><ETag>", p->n_parts);
    for (size_t i = 0; i < etag.len; i++)
        (void)(etag.ptr[i] == '"' ? mg_buf_str(&p->etags, "&quot;") : mg_buf_char(&p->etags, etag.ptr[i]));
    (void)mg_buf_str(&p->etags, "</ETag></Part>");
    mg_buf_reset(&p->part);
    return MG_OK;
}

static mg_rc s3_write(struct mg_object_put *put, struct mg_sv data, struct mg_err *err)
{
    struct s3_put *p = (struct s3_put *)put;
    mg_rc rc = MG_OK;
    while (data.len && rc >= 0) {
        size_t room = PART - p->part.len, n = data.len < room ? data.len : room;
        (void)mg_buf_append(&p->part, data.ptr, n);
        p->size += (int64_t)n;
        data = mg_sv_from(data, n);
        if (p->part.len == PART)
            rc = send_part(p, err);
    }
    return rc;
}

/* Whether the object is there, whole. */
static bool is_there(struct s3_put *p, struct mg_err *err)
{
    struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
    char url[URL_MAX];
    int status;
    int64_t size = -1;
    url_of(p->s3, p->key, "", url);
    (void)call(p->s3, "HEAD", url, MG_SV(""), TRIES, &a, &status, err);
    return good(status) && mg_sv_to_i64(header_of(&a, "content-length"), &size) && size == p->size;
}

/* A 200 may still carry an error: the store answers before it is done. */
static bool completed(const struct mg_net_answer *a, int status)
{
    struct mg_sv body = mg_buf_view(&a->body);
    return good(status) && !memmem(body.ptr, body.len, "<Error>", 7);
}

static mg_rc complete(struct s3_put *p, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf xml = MG_BUF_INIT(ANSWER_MAX + 128);
    char url[URL_MAX], query[ID_MAX + 16];
    int status = 0;
    (void)mg_buf_printf(&xml, "<CompleteMultipartUpload>%.*s</CompleteMultipartUpload>",
                        MG_SV_ARG(mg_buf_view(&p->etags)));
    (void)snprintf(query, sizeof(query), "uploadId=%s", p->upload);
    url_of(p->s3, p->key, query, url);
    for (int i = 0; i < TRIES; i++) {
        struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
        if (i)
            pause_before(i);
        (void)call(p->s3, "POST", url, mg_buf_view(&xml), 1, &a, &status, err);
        if (completed(&a, status))
            return MG_OK;
        p->unsettled |= status == 0 || status >= 500 || good(status);
        if (p->unsettled && is_there(p, err)) /* only the answer was lost */
            return MG_OK;
        if (status >= 400 && status < 500 && status != 429)
            break;
    }
    return store_fault(err, "finish an upload", status, "no answer: ");
}

static mg_rc put_whole(struct s3_put *p, struct mg_err *err)
{
    struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
    char url[URL_MAX];
    int status = 0;
    url_of(p->s3, p->key, "", url);
    for (int i = 0; i < TRIES; i++) {
        if (i)
            pause_before(i);
        (void)call(p->s3, "PUT", url, mg_buf_view(&p->part), 1, &a, &status, err);
        if (good(status))
            return MG_OK;
        p->unsettled |= status == 0 || status >= 500; /* it may still be carried out */
        if (!may_pass(status ? MG_OK : MG_EIO, status))
            break;
    }
    return store_fault(err, "take an object", status, "no answer: ");
}

static mg_rc s3_seal(struct mg_object_put *put, struct mg_err *err)
{
    struct s3_put *p = (struct s3_put *)put;
    mg_rc rc = MG_OK;
    if (!p->upload[0]) {
        rc = put_whole(p, err);
    } else {
        if (p->part.len)
            rc = send_part(p, err);
        if (rc >= 0)
            rc = complete(p, err);
    }
    p->sealed = rc >= 0;
    return rc;
}

static bool s3_end(struct mg_object_put *put)
{
    struct s3_put *p = (struct s3_put *)put;
    bool settled = p->sealed || !p->unsettled;
    mg_buf_done(&p->part);
    mg_buf_done(&p->etags);
    free(p);
    return settled;
}

/* ---- reading ---- */

struct reading {
    mg_object_sink *sink;
    void *ctx;
    int status;
    int64_t left;
    mg_rc rc;
    struct mg_err err;
};

static void on_header(void *ctx, int status, struct mg_sv name, struct mg_sv value)
{
    struct reading *r = ctx;
    (void)name;
    (void)value;
    r->status = status;
}

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct reading *r = ctx;
    if (!good(r->status))
        return MG_NET_GO; /* words about the failure */
    if ((int64_t)n > r->left)
        r->rc = mg_err_code(&r->err, MG_EIO, MG_OBJECT_LOST,
                            "the object store has another number of bytes than were stored");
    else
        r->rc = r->sink(r->ctx, mg_sv_n(p, n), &r->err);
    r->left -= (int64_t)n;
    return r->rc < 0 ? MG_NET_STOP : MG_NET_GO;
}

static mg_rc read_fault(int status, struct mg_err *err)
{
    if (status == 404)
        return mg_err_code(err, MG_EIO, MG_OBJECT_LOST, "the object store does not have these bytes any more");
    return store_fault(err, "give an object", status, "no answer: ");
}

static mg_rc s3_read(struct mg_object_backend *b, const char *key, int64_t size, mg_object_sink *sink, void *ctx,
                     struct mg_cancel *cancel, struct mg_err *err)
{
    struct s3 *s = (struct s3 *)b;
    char url[URL_MAX], hex[MG_SHA256_HEX];
    struct mg_net_header headers[2];
    struct mg_net_result result = {0};
    struct reading r = {.sink = sink, .ctx = ctx, .left = size};
    url_of(s, key, "", url);
    struct mg_net_req req = request(s, "GET", url, MG_SV(""), hex, headers);
    req.on_header = on_header;
    req.on_body = on_body;
    req.ctx = &r;
    req.idle_ms = READ_IDLE_MS;
    req.total_ms = READ_MS;
    req.max_bytes = (size_t)size + ANSWER_MAX;
    mg_rc rc = mg_net_exchange(s->net, &req, 0, cancel, &result, err);
    if (r.rc < 0) {
        if (err)
            *err = r.err;
        return r.rc;
    }
    if (rc < 0 && rc != MG_ECANCELED)
        return store_fault(err, "give an object", 0, "no whole answer: ");
    if (rc < 0)
        return rc;
    if (!good(result.status))
        return read_fault(result.status, err);
    return r.left ? mg_err_set(err, MG_EIO, "the object store gave fewer bytes than were stored") : MG_OK;
}

static mg_rc s3_read_at(struct mg_object_backend *b, const char *key, int64_t at, char *p, size_t n, struct mg_err *err)
{
    struct s3 *s = (struct s3 *)b;
    char url[URL_MAX], hex[MG_SHA256_HEX], range[64];
    struct mg_net_header headers[2];
    mg_rc rc = MG_OK;
    int status = 0;
    url_of(s, key, "", url);
    (void)snprintf(range, sizeof(range), "bytes=%" PRId64 "-%" PRId64, at, at + (int64_t)n - 1);
    for (int i = 0; i < TRIES; i++) {
        struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
        struct mg_net_req req = request(s, "GET", url, MG_SV(""), hex, headers);
        headers[req.n_headers++] = (struct mg_net_header){MG_SV("range"), mg_sv_of(range)};
        req.max_bytes = n + ANSWER_MAX;
        if (i)
            pause_before(i);
        rc = mg_net_call(s->net, &req, 0, NULL, &a, err);
        status = rc < 0 ? 0 : a.status;
        if (status == 206 && a.body.len == n) {
            memcpy(p, a.body.ptr, n);
            return MG_OK;
        }
        if (!may_pass(rc, status))
            break;
    }
    return read_fault(status, err);
}

/* ---- removing ---- */

/* Uploads of the key that were begun and never finished. A store that cannot list them has its own way with them. */
static mg_rc abort_uploads(struct s3 *s, const char *key, struct mg_err *err)
{
    struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
    char url[URL_MAX], query[ID_MAX + 16], id[ID_MAX];
    struct mg_sv upload;
    size_t at = 0;
    int status;
    (void)snprintf(url, sizeof(url), "%s?prefix=%s%s&uploads=", s->host, s->prefix, key);
    (void)call(s, "GET", url, MG_SV(""), TRIES, &a, &status, err);
    if (status == 501 || status == 405)
        return MG_OK;
    if (!good(status))
        return store_fault(err, "list uploads", status, "no answer: ");
    while (element(mg_buf_view(&a.body), "UploadId", &at, &upload)) {
        struct mg_net_answer gone __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
        if (!encode(upload, id))
            continue;
        (void)snprintf(query, sizeof(query), "uploadId=%s", id);
        url_of(s, key, query, url);
        (void)call(s, "DELETE", url, MG_SV(""), TRIES, &gone, &status, err);
        if (!good(status) && status != 404)
            return store_fault(err, "abort an upload", status, "no answer: ");
    }
    return MG_OK;
}

static mg_rc s3_remove(struct mg_object_backend *b, const char *key, bool partial, struct mg_err *err)
{
    struct s3 *s = (struct s3 *)b;
    struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
    char url[URL_MAX];
    int status;
    mg_rc rc = partial ? abort_uploads(s, key, err) : MG_OK;
    if (rc < 0)
        return rc;
    url_of(s, key, "", url);
    (void)call(s, "DELETE", url, MG_SV(""), TRIES, &a, &status, err);
    return good(status) || status == 404 ? MG_OK : store_fault(err, "delete an object", status, "no answer: ");
}

/* ---- the store ---- */

static void s3_close(struct mg_object_backend *b)
{
    struct s3 *s = (struct s3 *)b;
    mg_net_close(s->net);
    if (s->user)
        mg_wipe(s->user, strlen(s->user));
    free(s->root);
    free(s->host);
    free(s->prefix);
    free(s->scope);
    free(s->user);
    free(s);
}

static const struct mg_object_ops S3_OPS = {
    .put = s3_put,
    .write = s3_write,
    .seal = s3_seal,
    .end = s3_end,
    .read = s3_read,
    .read_at = s3_read_at,
    .remove = s3_remove,
    .close = s3_close,
};

static char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *text(const char *fmt, ...)
{
    char line[URL_MAX / 2];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    return mg_xstrdup(line);
}

static mg_rc check_words(const struct mg_s3_opts *o, struct mg_err *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/";
    if (strspn(o->bucket, plain) != strlen(o->bucket) || strchr(o->bucket, '/') || strlen(o->bucket) > 63)
        return mg_err_set(err, MG_ECONFIG, "MANGO_S3_BUCKET: must be the name of a bucket");
    if (strspn(o->prefix, plain) != strlen(o->prefix) || o->prefix[0] == '/' || strlen(o->prefix) > 512)
        return mg_err_set(
            err, MG_ECONFIG,
            "MANGO_S3_PREFIX: letters, digits, '-', '.', '_' and '/' only, at most 512, not a slash first");
    if (!o->access_key[0] || !o->secret_key[0] || strchr(o->access_key, ':'))
        return mg_err_set(err, MG_ECONFIG,
                          "MANGO_S3_ACCESS_KEY and MANGO_S3_SECRET_KEY: both are needed for MANGO_S3_BUCKET");
    return MG_OK;
}

mg_rc mg_object_s3_open(const struct mg_s3_opts *o, struct mg_object_backend **ret, struct mg_err *err)
{
    mg_rc rc = check_words(o, err);
    if (rc < 0)
        return rc;
    struct s3 *s = mg_xcalloc(1, sizeof(*s));
    mg_autofree char *endpoint =
        o->endpoint[0] ? text("%s", o->endpoint) : text("https://s3.%s.amazonaws.com", o->region);
    size_t n = strlen(endpoint);
    while (n && endpoint[n - 1] == '/')
        endpoint[--n] = '\0';
    const char *scheme = strstr(endpoint, "://");
    s->base.ops = &S3_OPS;
    if (!scheme || o->path_style)
        s->host = text("%s/%s/", endpoint, o->bucket);
    else
        s->host = text("%.*s://%s.%s/", (int)(scheme - endpoint), endpoint, o->bucket, scheme + 3);
    s->root = text("%s%s", s->host, o->prefix);
    s->prefix = mg_xstrdup(o->prefix);
    s->scope = text("aws:amz:%s:s3", o->region);
    s->user = text("%s:%s", o->access_key, o->secret_key);
    (void)snprintf(s->base.identity, sizeof(s->base.identity), "s3:%.100s/%.63s/%.80s", endpoint, o->bucket, o->prefix);
    const struct mg_net_opts net = {.name = "mg-objects", .ca_file = o->ca_file};
    rc = mg_net_check_url(mg_sv_of(s->root), &net, err);
    if (rc >= 0)
        rc = mg_net_open(&net, &s->net, err);
    if (rc < 0) {
        s3_close(&s->base);
        return mg_err_wrap(err, MG_ECONFIG, "MANGO_S3_ENDPOINT");
    }
    *ret = &s->base;
    return MG_OK;
}
