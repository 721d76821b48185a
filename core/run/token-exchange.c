#include "run/token-exchange.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "crypto/hash.h"
#include "json/json.h"
#include "net/loop.h"

enum {
    FORM_MAX = 128 * 1024, /* bytes: three secrets, each byte as %XX, and the rest */
    SCRUB_MIN = 4,         /* bytes: a shorter secret would take words apart, and nobody recognises it */
    SCRUB_HEAD = 8,        /* bytes of a secret that are known for its beginning */
};

static void field(struct mg_buf *out, const char *name, struct mg_sv value)
{
    if (!value.ptr)
        return;
    (void)mg_buf_printf(out, "%s%s=", out->len ? "&" : "", name);
    (void)mg_buf_percent(out, value);
}

static void write_form(struct mg_buf *out, const struct mg_refresh *r, const struct mg_credential_secret *s)
{
    field(out, "grant_type", MG_SV("refresh_token"));
    field(out, "refresh_token", s->refresh_token);
    if (r->auth != MG_REFRESH_BASIC)
        field(out, "client_id", r->client_id);
    if (r->auth == MG_REFRESH_POST)
        field(out, "client_secret", s->client_secret);
    field(out, "scope", r->scope);
    field(out, "resource", r->resource);
}

/* "Basic ..." of the form-encoded id and secret (RFC 6749, 2.3.1). */
static void write_basic(struct mg_buf *out, const struct mg_refresh *r, const struct mg_credential_secret *s)
{
    mg_auto(secret) struct mg_buf pair = MG_BUF_INIT(FORM_MAX);
    (void)mg_buf_reserve(&pair, FORM_MAX);
    (void)mg_buf_percent(&pair, r->client_id);
    (void)mg_buf_char(&pair, ':');
    (void)mg_buf_percent(&pair, s->client_secret);
    (void)mg_buf_str(out, "Basic ");
    (void)mg_base64_encode(out, mg_buf_view(&pair));
}

/* ---- the answer ---- */

/* A text may be cut anywhere in a secret, so its beginning is enough. */
static void scrub_one(struct mg_sv secret, char *text)
{
    size_t head = secret.len < SCRUB_HEAD ? secret.len : SCRUB_HEAD;
    if (head < SCRUB_MIN)
        return;
    for (char *at = text; (at = memmem(at, strlen(at), secret.ptr, head));)
        for (size_t i = 0; i < secret.len && *at == secret.ptr[i]; i++)
            *at++ = '*';
}

void mg_secret_scrub(const struct mg_credential_secret *s, char *text)
{
    scrub_one(s->token, text);
    scrub_one(s->refresh_token, text);
    scrub_one(s->client_secret, text);
}

static void keep_answer(const struct mg_net_answer *got, const struct mg_buf *body,
                        const struct mg_credential_secret *s, struct mg_token_answer *out)
{
    mg_auto(buf) struct mg_buf clean = MG_BUF_INIT(4 * sizeof(out->text));
    if (!out)
        return;
    struct mg_sv head = mg_buf_view(&got->headers), text = mg_buf_view(body);
    const char *type = memmem(head.ptr, head.len, "content-type: ", 14);
    out->status = got->status;
    if (type)
        (void)snprintf(out->type, sizeof(out->type), "%.*s", (int)strcspn(type + 14, "\n"), type + 14);
    text.len = mg_utf8_floor(text, sizeof(out->text) - 1);
    out->cut = text.len < body->len;
    (void)mg_utf8_clean(&clean, text);
    (void)snprintf(out->text, sizeof(out->text), "%.*s", (int)clean.len, clean.ptr ? clean.ptr : "");
    mg_secret_scrub(s, out->text);
}

/* "invalid_grant: why", as far as the endpoint says so in the words of RFC 6749. */
static void refusal(struct mg_arena *a, const struct mg_json *v, const struct mg_credential_secret *s, char *out,
                    size_t size)
{
    struct mg_sv code = v ? mg_json_get_str(a, v, "error") : MG_SV("");
    struct mg_sv why = v ? mg_json_get_str(a, v, "error_description") : MG_SV("");
    (void)snprintf(out, size, "%s%.*s%s%.*s", code.len ? ": " : "", (int)(code.len < 60 ? code.len : 60), code.ptr,
                   why.len ? ", " : "", (int)mg_utf8_floor(why, 200), why.ptr);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    mg_secret_scrub(s, out);
}

static bool token_ok(struct mg_sv s)
{
    bool good = s.len > 0 && s.len <= MG_CREDENTIAL_TOKEN_MAX;
    for (size_t i = 0; good && i < s.len; i++)
        good = s.ptr[i] > ' ' && s.ptr[i] <= '~';
    return good;
}

static mg_rc take(struct mg_arena *a, const struct mg_json *v, struct mg_token_new *ret, struct mg_err *err)
{
    int64_t seconds = 0;
    const struct mg_json *access = mg_json_get(v, "access_token"), *refresh = mg_json_get(v, "refresh_token");
    const struct mg_json *expires = mg_json_get(v, "expires_in");
    *ret = (struct mg_token_new){.expires_us = INT64_MIN};
    if (mg_json_is(access, MG_JSON_STRING))
        ret->access_token = mg_json_str(a, access);
    if (!token_ok(ret->access_token))
        return mg_err_set(err, MG_EAUTH, "the token endpoint answered without an access token");
    if (mg_json_is(refresh, MG_JSON_STRING) && token_ok(mg_json_str(a, refresh)))
        ret->refresh_token = mg_json_str(a, refresh);
    if (expires && mg_json_i64(expires, &seconds) && seconds > 0)
        ret->expires_us = mg_wall_us() + (seconds < MG_TOKEN_EXPIRY_MAX_S ? seconds : MG_TOKEN_EXPIRY_MAX_S) * 1000000;
    return MG_OK;
}

/* ---- the request ---- */

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct mg_buf *body = ctx;
    return mg_buf_append(body, p, n) == MG_OK ? MG_NET_GO : MG_NET_STOP;
}

static mg_rc judge(struct mg_arena *a, const struct mg_buf *body, int status, const struct mg_credential_secret *s,
                   struct mg_token_new *ret, struct mg_err *err)
{
    struct mg_json *v = NULL;
    char why[300] = "";
    bool json = mg_json_parse(a, mg_arena_sv(a, mg_buf_view(body)), &mg_json_raw_limits, &v, NULL) == MG_OK;
    if (status == 200 && json)
        return take(a, v, ret, err);
    refusal(a, json ? v : NULL, s, why, sizeof(why));
    bool later = status >= 500 || status == 429;
    return mg_err_set(err, later ? MG_EUNAVAIL : MG_EAUTH, "the token endpoint answered with status %d%s", status, why);
}

mg_rc mg_token_exchange(struct mg_net *users, struct mg_arena *a, const struct mg_refresh *r,
                        const struct mg_credential_secret *s, struct mg_cancel *cancel, struct mg_token_new *ret,
                        struct mg_token_answer *answer, struct mg_err *err)
{
    mg_auto(secret) struct mg_buf form = MG_BUF_INIT(FORM_MAX), basic = MG_BUF_INIT(2 * FORM_MAX);
    mg_auto(secret) struct mg_buf body = MG_BUF_INIT(MG_TOKEN_ANSWER_MAX);
    mg_auto(net_answer) struct mg_net_answer got = {0};
    struct mg_net_header headers[3] = {
        {MG_SV("content-type"), MG_SV("application/x-www-form-urlencoded")},
        {MG_SV("accept"), MG_SV("application/json")},
    };
    if (mg_buf_reserve(&form, FORM_MAX) < 0 || mg_buf_reserve(&basic, 2 * FORM_MAX) < 0 ||
        mg_buf_reserve(&body, MG_TOKEN_ANSWER_MAX) < 0)
        return mg_err_set(err, MG_EUNAVAIL, "no memory for the exchange of a refresh token");
    write_form(&form, r, s);
    if (r->auth == MG_REFRESH_BASIC) {
        write_basic(&basic, r, s);
        headers[2] = (struct mg_net_header){MG_SV("authorization"), mg_buf_view(&basic)};
    }
    mg_rc rc = mg_net_call(users,
                           &(struct mg_net_req){
                               .method = MG_SV("POST"),
                               .url = r->endpoint,
                               .headers = headers,
                               .n_headers = r->auth == MG_REFRESH_BASIC ? 3 : 2,
                               .body = mg_buf_view(&form),
                               .total_ms = MG_TOKEN_EXCHANGE_MS,
                               .max_bytes = MG_TOKEN_ANSWER_MAX,
                               .fresh = true, /* a token that is good once must not be sent twice */
                               .on_body = on_body,
                               .ctx = &body,
                           },
                           0, cancel, &got, err);
    keep_answer(&got, &body, s, answer);
    if (rc == MG_ECANCELED)
        return rc;
    if (rc < 0)
        return mg_err_wrap(err, MG_EUNAVAIL, "the token endpoint cannot be reached");
    return judge(a, &body, got.status, s, ret, err);
}
