#include "object/sigv4.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "crypto/seal.h"

enum { CANONICAL_MAX = 16 * 1024 /* bytes: a URL and three headers */, DAY = 8 /* digits of the date */ };

static const char SIGNED[] = "host;x-amz-content-sha256;x-amz-date";

struct parts {
    struct mg_sv host, path, query;
};

/* The host is what the Host header says: without the port that its scheme has anyway. */
static bool split(struct mg_sv url, struct parts *ret)
{
    const char *at = memmem(url.ptr, url.len, "://", 3);
    if (!at)
        return false;
    const char *own_port = mg_sv_starts(url, "https:") ? ":443" : ":80";
    struct mg_sv rest = mg_sv_from(url, (size_t)(at - url.ptr) + 3);
    size_t end = mg_sv_find(rest, '/'), mark = mg_sv_find(rest, '?');
    *ret = (struct parts){
        .host = mg_sv_n(rest.ptr, end),
        .path = mg_sv_n(rest.ptr + end, mark - end),
        .query = mg_sv_from(rest, mark + 1),
    };
    if (mg_sv_ends(ret->host, own_port))
        ret->host.len -= strlen(own_port);
    return end < rest.len && end < mark;
}

static struct mg_sv bytes(const uint8_t k[MG_SHA256_LEN])
{
    return mg_sv_n((const char *)k, MG_SHA256_LEN);
}

/* The key of a day, a region and the service, by which the text is signed. */
static void sign(const struct mg_sigv4_key *key, struct mg_sv day, struct mg_sv text, char out[2 * MG_SHA256_LEN + 1])
{
    char first[MG_SIGV4_SECRET_MAX + 8];
    uint8_t a[MG_SHA256_LEN], b[MG_SHA256_LEN];
    (void)snprintf(first, sizeof(first), "AWS4%s", key->secret);
    mg_hmac_sha256(mg_sv_of(first), day, a);
    mg_hmac_sha256(bytes(a), mg_sv_of(key->region), b);
    mg_hmac_sha256(bytes(b), MG_SV("s3"), a);
    mg_hmac_sha256(bytes(a), MG_SV("aws4_request"), b);
    mg_hmac_sha256(bytes(b), text, a);
    mg_hex(a, sizeof(a), out);
    mg_wipe(first, sizeof(first));
    mg_wipe(b, sizeof(b));
}

mg_rc mg_sigv4_sign(const struct mg_sigv4_key *key, const struct mg_sigv4_request *r, struct mg_sigv4 *ret,
                    struct mg_err *err)
{
    mg_auto(buf) struct mg_buf canonical = MG_BUF_INIT(CANONICAL_MAX);
    char hash[MG_SHA256_HEX], text[256], signature[2 * MG_SHA256_LEN + 1];
    struct parts u;
    time_t at = (time_t)r->at_s;
    struct tm tm;
    if (!split(r->url, &u) || u.host.len >= sizeof(ret->host))
        return mg_err_set(err, MG_EINVAL, "the object store's URL has no host and path that can be signed");
    (void)snprintf(ret->host, sizeof(ret->host), "%.*s", MG_SV_ARG(u.host));
    (void)strftime(ret->date, sizeof(ret->date), "%Y%m%dT%H%M%SZ", gmtime_r(&at, &tm));
    mg_rc rc =
        mg_buf_printf(&canonical, "%.*s\n%.*s\n%.*s\nhost:%s\nx-amz-content-sha256:%.*s\nx-amz-date:%s\n\n%s\n%.*s",
                      MG_SV_ARG(r->method), MG_SV_ARG(u.path), MG_SV_ARG(u.query), ret->host,
                      MG_SV_ARG(r->payload_sha256), ret->date, SIGNED, MG_SV_ARG(r->payload_sha256));
    if (rc < 0)
        return mg_err_set(err, MG_EINVAL, "a request to the object store is too long to be signed");
    mg_sha256_hex(mg_buf_view(&canonical), hash);
    (void)snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%.*s/%s/s3/aws4_request\n%s", ret->date, DAY, ret->date,
                   key->region, hash);
    sign(key, mg_sv_n(ret->date, DAY), mg_sv_of(text), signature);
    (void)snprintf(ret->authorization, sizeof(ret->authorization),
                   "AWS4-HMAC-SHA256 Credential=%s/%.*s/%s/s3/aws4_request, SignedHeaders=%s, Signature=%s",
                   key->access, DAY, ret->date, key->region, SIGNED, signature);
    return MG_OK;
}
