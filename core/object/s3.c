/* Objects in an S3-compatible store. What is longer than a part goes up in parts, each of which may be sent again; the object
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
#include "object/sigv4.h"

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
    char *region, *access, *secret; /* the last one is wiped */
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
    bool stray; /* an upload may have been begun whose id never came */
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

/* A request with its signature; it points into itself. */
struct signed_req {
    struct mg_net_req net;
    struct mg_net_header headers[5]; /* the last one is free */
    char sha256[MG_SHA256_HEX];
    struct mg_sigv4 signature;
};

/* Signed now: each try is made anew. */
static mg_rc request(const struct s3 *s, const char *method, const char *url, struct mg_sv body, struct signed_req *r,
                     struct mg_err *err)
{
    const struct mg_sigv4_key key = {.region = s->region, .access = s->access, .secret = s->secret};
    mg_sha256_hex(body, r->sha256);
    const struct mg_sigv4_request what = {.method = mg_sv_of(method),
                                          .url = mg_sv_of(url),
                                          .payload_sha256 = mg_sv_of(r->sha256),
                                          .at_s = mg_wall_us() / 1000000};
    mg_rc rc = mg_sigv4_sign(&key, &what, &r->signature, err);
    if (rc < 0)
        return rc;
    r->headers[0] = (struct mg_net_header){MG_SV("host"), mg_sv_of(r->signature.host)};
    r->headers[1] = (struct mg_net_header){MG_SV("x-amz-content-sha256"), mg_sv_of(r->sha256)};
    r->headers[2] = (struct mg_net_header){MG_SV("x-amz-date"), mg_sv_of(r->signature.date)};
    r->headers[3] = (struct mg_net_header){MG_SV("authorization"), mg_sv_of(r->signature.authorization)};
    r->net = (struct mg_net_req){
        .method = mg_sv_of(method),
        .url = mg_sv_of(url),
        .headers = r->headers,
        .n_headers = 4,
        .body = body,
        .body_borrowed = true, /* a part is large, and calls wait */
        .total_ms = CALL_MS,
        .max_bytes = ANSWER_MAX,
        .fresh = strcmp(method, "POST") == 0, /* beginning or finishing twice must not go unseen */
    };
    return MG_OK;
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
    struct signed_req req;
    mg_rc rc = MG_EIO;
    *ret_status = 0;
    for (int i = 0; i < tries; i++) {
        if (i)
            pause_before(i);
        mg_net_answer_cleanup(ret);
        *ret = (struct mg_net_answer){.status = 0};
        rc = request(s, method, url, body, &req, err);
        if (rc >= 0)
            rc = mg_net_call(s->net, &req.net, 0, NULL, ret, err);
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
    int status = 0;
    url_of(p->s3, p->key, "uploads=", url);
    for (int i = 0; i < TRIES; i++) {
        if (i)
            pause_before(i);
        (void)call(p->s3, "POST", url, MG_SV(""), 1, &a, &status, err);
        bool again = may_pass(status ? MG_OK : MG_EIO, status);
        p->stray |= again;
        if (!again)
            break;
    }
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

static mg_rc abort_uploads(struct s3 *s, const char *key, struct mg_err *err);

static mg_rc s3_seal(struct mg_object_put *put, struct mg_err *err)
{
    struct mg_err unheard;
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
    if (p->sealed && p->stray) /* one that cannot be removed now costs room in the store, no more */
        (void)!abort_uploads(p->s3, p->key, &unheard);
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
    char url[URL_MAX];
    struct signed_req req;
    struct mg_net_result result = {0};
    struct reading r = {.sink = sink, .ctx = ctx, .left = size};
    url_of(s, key, "", url);
    mg_rc rc = request(s, "GET", url, MG_SV(""), &req, err);
    if (rc < 0)
        return rc;
    req.net.on_header = on_header;
    req.net.on_body = on_body;
    req.net.ctx = &r;
    req.net.idle_ms = READ_IDLE_MS;
    req.net.total_ms = READ_MS;
    req.net.max_bytes = (size_t)size + ANSWER_MAX;
    rc = mg_net_exchange(s->net, &req.net, 0, cancel, &result, err);
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
    char url[URL_MAX], range[64];
    struct signed_req req;
    mg_rc rc = MG_OK;
    int status = 0;
    url_of(s, key, "", url);
    (void)snprintf(range, sizeof(range), "bytes=%" PRId64 "-%" PRId64, at, at + (int64_t)n - 1);
    for (int i = 0; i < TRIES; i++) {
        struct mg_net_answer a __attribute__((cleanup(mg_net_answer_cleanup))) = {.status = 0};
        if (i)
            pause_before(i);
        rc = request(s, "GET", url, MG_SV(""), &req, err);
        if (rc < 0)
            return rc;
        req.headers[req.net.n_headers++] = (struct mg_net_header){MG_SV("range"), mg_sv_of(range)};
        req.net.max_bytes = n + ANSWER_MAX;
        rc = mg_net_call(s->net, &req.net, 0, NULL, &a, err);
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
    mg_auto(buf) struct mg_buf name = MG_BUF_INIT(URL_MAX / 2);
    (void)mg_buf_percent(&name, mg_sv_of(s->prefix)); /* its slashes too: a signed query has none */
    (void)snprintf(url, sizeof(url), "%s?prefix=%s%s&uploads=", s->host, mg_buf_view(&name).ptr, key);
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
    if (s->secret)
        mg_wipe(s->secret, strlen(s->secret));
    free(s->root);
    free(s->host);
    free(s->prefix);
    free(s->region);
    free(s->access);
    free(s->secret);
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
    if (!o->access_key[0] || !o->secret_key[0])
        return mg_err_set(err, MG_ECONFIG,
                          "MANGO_S3_ACCESS_KEY and MANGO_S3_SECRET_KEY: both are needed for MANGO_S3_BUCKET");
    if (strlen(o->access_key) > MG_SIGV4_ACCESS_MAX || strlen(o->secret_key) > MG_SIGV4_SECRET_MAX ||
        strlen(o->region) > MG_SIGV4_REGION_MAX)
        return mg_err_set(err, MG_ECONFIG,
                          "MANGO_S3_ACCESS_KEY, MANGO_S3_SECRET_KEY, MANGO_S3_REGION: at most %d, %d and %d characters",
                          MG_SIGV4_ACCESS_MAX, MG_SIGV4_SECRET_MAX, MG_SIGV4_REGION_MAX);
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
    s->region = mg_xstrdup(o->region);
    s->access = mg_xstrdup(o->access_key);
    s->secret = mg_xstrdup(o->secret_key);
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
