/* Credentials: create and update bodies. */
#include <stdio.h>

#include "base/clock.h"
#include "domain/check.h"
#include "domain/metadata.h"
#include "domain/vault.h"
#include "json/write.h"

enum { CLIENT_ID_MAX = 1024, SCOPE_MAX = 4096 /* characters */, AUTH_MAX = 64 * 1024 /* bytes of the public part */ };

static const char *const TYPES[] = {"static_bearer", "mcp_oauth", "environment_variable", NULL};
enum { T_BEARER, T_OAUTH, T_VARIABLE };
static const char *const ENDPOINT_AUTHS[] = {"none", "client_secret_basic", "client_secret_post", NULL};

/* The public part of mcp_oauth while it is put together. */
struct oauth {
    struct mg_sv url;
    int64_t expires_us;
    struct mg_refresh refresh;
};

static mg_rc refuse_variable(struct mg_err *err)
{
    return mg_err_set(err, MG_EINVAL,
                      "auth.type: environment_variable credentials are not part of this build, since nothing would put "
                      "them into requests; use static_bearer or mcp_oauth");
}

/* ---- single values ---- */

mg_rc mg_token_check(struct mg_sv s, const char *place, struct mg_err *err)
{
    bool good = s.len > 0 && s.len <= MG_CREDENTIAL_TOKEN_MAX;
    for (size_t i = 0; good && i < s.len; i++)
        good = s.ptr[i] > ' ' && s.ptr[i] <= '~';
    if (good)
        return MG_OK;
    return mg_err_set(err, MG_EINVAL, "%s: must have 1 to %d printable ASCII characters and no space", place,
                      MG_CREDENTIAL_TOKEN_MAX);
}

/* A token endpoint's secret may hold more than a token. */
static mg_rc check_secret(struct mg_sv s, const char *place, struct mg_err *err)
{
    if (s.len > 0 && s.len <= MG_CREDENTIAL_TOKEN_MAX)
        return MG_OK;
    return mg_err_set(err, MG_EINVAL, "%s: must have 1 to %d bytes", place, MG_CREDENTIAL_TOKEN_MAX);
}

static mg_rc check_url(struct mg_arena *a, struct mg_sv url, const char *place, bool allow_http, struct mg_sv *ret,
                       struct mg_err *err)
{
    if (!mg_server_url_normal(a, url, ret))
        return mg_err_set(err, MG_EINVAL,
                          "%s: must be an https:// URL of at most %d printable ASCII bytes without user, password and "
                          "fragment",
                          place, MG_CREDENTIAL_URL_MAX);
    if (mg_sv_starts(*ret, "http://") && !allow_http)
        return mg_err_set(
            err, MG_EINVAL,
            "%s: must begin with https://, since a secret is sent there; MANGO_MCP_ALLOW_PRIVATE=1 allows "
            "http:// too",
            place);
    return MG_OK;
}

static mg_rc take_expiry(struct mg_arena *a, const struct mg_json *v, int64_t *ret, struct mg_err *err)
{
    *ret = INT64_MIN;
    if (!mg_given(v))
        return MG_OK;
    if (!mg_time_parse(mg_json_str(a, v), ret))
        return mg_err_set(err, MG_EINVAL, "auth.expires_at: must be an RFC 3339 time such as 2026-11-30T07:26:01Z");
    if (*ret <= mg_wall_us())
        return mg_err_set(err, MG_EINVAL, "auth.expires_at: must be in the future");
    return MG_OK;
}

static struct mg_sv optional(struct mg_arena *a, const struct mg_json *v)
{
    struct mg_sv s = mg_given(v) ? mg_json_str(a, v) : mg_sv_n(NULL, 0);
    return s.len ? s : mg_sv_n(NULL, 0);
}

/* ---- the public part ---- */

static struct mg_sv write_bearer(struct mg_arena *a, struct mg_sv url)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(AUTH_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", TYPES[T_BEARER]);
    mg_jw_kstr(&w, "mcp_server_url", url);
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

static void write_refresh(struct mg_jw *w, const struct mg_refresh *r)
{
    mg_jw_key(w, "refresh");
    if (!r->has) {
        mg_jw_null(w);
        return;
    }
    mg_jw_obj(w);
    mg_jw_kstr(w, "client_id", r->client_id);
    mg_jw_kstr(w, "token_endpoint", r->endpoint);
    mg_jw_key(w, "token_endpoint_auth");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", ENDPOINT_AUTHS[r->auth]);
    mg_jw_obj_end(w);
    mg_jw_kstr_or_null(w, "resource", r->resource);
    mg_jw_kstr_or_null(w, "scope", r->scope);
    mg_jw_obj_end(w);
}

static struct mg_sv write_oauth(struct mg_arena *a, const struct oauth *x)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(AUTH_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", TYPES[T_OAUTH]);
    mg_jw_kstr(&w, "mcp_server_url", x->url);
    mg_jw_ktime(&w, "expires_at", x->expires_us);
    write_refresh(&w, &x->refresh);
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

static mg_rc read_auth(struct mg_arena *a, struct mg_sv auth, int *ret_type, struct oauth *ret, struct mg_err *err)
{
    struct mg_json *v;
    if (mg_json_parse(a, auth, &mg_json_raw_limits, &v, NULL) < 0)
        return mg_err_set(err, MG_EINTERNAL, "the stored auth of a credential cannot be read");
    *ret_type = mg_word_index(TYPES, mg_json_get_str(a, v, "type"));
    *ret = (struct oauth){.url = mg_json_get_str(a, v, "mcp_server_url"), .expires_us = INT64_MIN};
    const struct mg_json *e = mg_json_get(v, "expires_at"), *r = mg_json_get(v, "refresh");
    if (mg_given(e))
        (void)mg_time_parse(mg_json_str(a, e), &ret->expires_us);
    if (!mg_given(r))
        return MG_OK;
    int kind = mg_word_index(ENDPOINT_AUTHS, mg_json_get_str(a, mg_json_get(r, "token_endpoint_auth"), "type"));
    ret->refresh = (struct mg_refresh){
        .has = true,
        .endpoint = mg_json_get_str(a, r, "token_endpoint"),
        .client_id = mg_json_get_str(a, r, "client_id"),
        .resource = optional(a, mg_json_get(r, "resource")),
        .scope = optional(a, mg_json_get(r, "scope")),
        .auth = kind < 0 ? MG_REFRESH_NONE : (enum mg_refresh_auth)kind,
    };
    return MG_OK;
}

mg_rc mg_refresh_read(struct mg_arena *a, struct mg_sv auth, struct mg_refresh *ret, struct mg_err *err)
{
    struct oauth x = {0};
    int type;
    mg_rc rc = read_auth(a, auth, &type, &x, err);
    if (rc == MG_OK)
        *ret = x.refresh;
    return rc;
}

mg_rc mg_auth_set_expiry(struct mg_arena *a, struct mg_sv auth, int64_t expires_us, struct mg_sv *ret,
                         struct mg_err *err)
{
    struct oauth x = {0};
    int type;
    mg_rc rc = read_auth(a, auth, &type, &x, err);
    if (rc < 0)
        return rc;
    x.expires_us = expires_us;
    *ret = write_oauth(a, &x);
    return MG_OK;
}

/* ---- create ---- */

static mg_rc create_bearer(struct mg_arena *a, const struct mg_json *v, bool allow_http, struct mg_credential *x,
                           struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "token", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = "mcp_server_url", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    mg_rc rc = mg_check_object(a, v, "auth", RULES, m, err);
    if (rc < 0)
        return rc;
    x->secret.token = mg_json_str(a, m[1]);
    x->auth = write_bearer(a, mg_json_str(a, m[2]));
    rc = mg_token_check(x->secret.token, "auth.token", err);
    return rc < 0 ? rc : check_url(a, mg_json_str(a, m[2]), "auth.mcp_server_url", allow_http, &x->server, err);
}

static mg_rc create_endpoint_auth(struct mg_arena *a, const struct mg_json *v, struct mg_refresh *r,
                                  struct mg_credential_secret *s, struct mg_err *err)
{
    static const char PLACE[] = "auth.refresh.token_endpoint_auth";
    static const struct mg_field_rule NONE[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    static const struct mg_field_rule SECRET[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "client_secret", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    int t = 0;
    mg_rc rc = mg_check_tag(a, v, PLACE, ENDPOINT_AUTHS, &t, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, PLACE, t == MG_REFRESH_NONE ? NONE : SECRET, m, err);
    if (rc < 0)
        return rc;
    r->auth = (enum mg_refresh_auth)t;
    if (t == MG_REFRESH_NONE)
        return MG_OK;
    s->client_secret = mg_json_str(a, m[1]);
    return check_secret(s->client_secret, "auth.refresh.token_endpoint_auth.client_secret", err);
}

static mg_rc create_refresh(struct mg_arena *a, const struct mg_json *v, bool allow_http, struct mg_refresh *r,
                            struct mg_credential_secret *s, struct mg_err *err)
{
    enum { ID, TOKEN, ENDPOINT, AUTH, RESOURCE, SCOPE, N };
    static const struct mg_field_rule RULES[] = {
        [ID] = {.name = "client_id", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = CLIENT_ID_MAX},
        [TOKEN] = {.name = "refresh_token", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        [ENDPOINT] = {.name = "token_endpoint", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        [AUTH] = {.name = "token_endpoint_auth", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
        [RESOURCE] = {.name = "resource", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = MG_CREDENTIAL_URL_MAX},
        [SCOPE] = {.name = "scope", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = SCOPE_MAX},
        {.name = NULL},
    };
    const struct mg_json *m[N];
    struct mg_sv normal;
    mg_rc rc = mg_check_object(a, v, "auth.refresh", RULES, m, err);
    if (rc < 0)
        return rc;
    *r = (struct mg_refresh){
        .has = true,
        .endpoint = mg_json_str(a, m[ENDPOINT]),
        .client_id = mg_json_str(a, m[ID]),
        .resource = optional(a, m[RESOURCE]),
        .scope = optional(a, m[SCOPE]),
    };
    s->refresh_token = mg_json_str(a, m[TOKEN]);
    rc = check_secret(s->refresh_token, "auth.refresh.refresh_token", err);
    if (rc >= 0)
        rc = check_url(a, r->endpoint, "auth.refresh.token_endpoint", allow_http, &normal, err);
    return rc < 0 ? rc : create_endpoint_auth(a, m[AUTH], r, s, err);
}

static mg_rc create_oauth(struct mg_arena *a, const struct mg_json *v, bool allow_http, struct mg_credential *x,
                          struct mg_err *err)
{
    enum { TYPE, TOKEN, URL, EXPIRES, REFRESH, N };
    static const struct mg_field_rule RULES[] = {
        [TYPE] = {.name = "type", .type = MG_FT_STRING},
        [TOKEN] = {.name = "access_token", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        [URL] = {.name = "mcp_server_url", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        [EXPIRES] = {.name = "expires_at", .type = MG_FT_STRING, .flags = MG_FF_NULL},
        [REFRESH] = {.name = "refresh", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[N];
    mg_rc rc = mg_check_object(a, v, "auth", RULES, m, err);
    if (rc < 0)
        return rc;
    struct oauth o = {.url = mg_json_str(a, m[URL])};
    x->secret.token = mg_json_str(a, m[TOKEN]);
    rc = mg_token_check(x->secret.token, "auth.access_token", err);
    if (rc >= 0)
        rc = check_url(a, o.url, "auth.mcp_server_url", allow_http, &x->server, err);
    if (rc >= 0)
        rc = take_expiry(a, m[EXPIRES], &o.expires_us, err);
    if (rc >= 0 && mg_given(m[REFRESH]))
        rc = create_refresh(a, m[REFRESH], allow_http, &o.refresh, &x->secret, err);
    if (rc < 0)
        return rc;
    x->expires_us = o.expires_us;
    x->auth = write_oauth(a, &o);
    return MG_OK;
}

enum { F_AUTH, F_NAME, F_METADATA, N_FIELDS };

mg_rc mg_credential_parse_create(struct mg_arena *a, const struct mg_json *body, bool allow_http,
                                 struct mg_credential *ret, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        [F_AUTH] = {.name = "auth", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
        [F_NAME] = {.name = "display_name", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = MG_VAULT_NAME_MAX},
        [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_meta_rules meta = {.create = true};
    const struct mg_json *m[N_FIELDS];
    int t = 0;
    *ret = (struct mg_credential){.metadata = MG_SV("{}"), .expires_us = INT64_MIN};
    mg_rc rc = mg_check_object(a, body, "", RULES, m, err);
    if (rc >= 0)
        rc = mg_check_tag(a, m[F_AUTH], "auth", TYPES, &t, err);
    if (rc < 0)
        return rc;
    ret->name = optional(a, m[F_NAME]);
    if (t == T_VARIABLE)
        return refuse_variable(err);
    rc = t == T_BEARER ? create_bearer(a, m[F_AUTH], allow_http, ret, err)
                       : create_oauth(a, m[F_AUTH], allow_http, ret, err);
    return rc < 0 ? rc : mg_metadata_patch(a, ret->metadata, m[F_METADATA], &meta, &ret->metadata, err);
}

/* ---- update ---- */

static mg_rc update_bearer(struct mg_arena *a, const struct mg_json *v, struct mg_credential *x, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "token", .type = MG_FT_STRING, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    mg_rc rc = mg_check_object(a, v, "auth", RULES, m, err);
    if (rc < 0 || !mg_given(m[1]))
        return rc;
    x->secret.token = mg_json_str(a, m[1]);
    return mg_token_check(x->secret.token, "auth.token", err);
}

/* The stored type stays, whichever of the two with a secret the body names. */
static mg_rc update_endpoint_auth(struct mg_arena *a, const struct mg_json *v, const struct mg_refresh *r,
                                  struct mg_credential_secret *s, struct mg_err *err)
{
    static const char PLACE[] = "auth.refresh.token_endpoint_auth";
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "client_secret", .type = MG_FT_STRING, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    int t = 0;
    mg_rc rc = mg_check_tag(a, v, PLACE, ENDPOINT_AUTHS, &t, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, PLACE, RULES, m, err);
    if (rc < 0)
        return rc;
    if (t == MG_REFRESH_NONE || r->auth == MG_REFRESH_NONE)
        return mg_err_set(err, MG_EINVAL,
                          "%s: can only replace the secret of client_secret_basic or client_secret_post; make another "
                          "credential to change its kind",
                          PLACE);
    if (!mg_given(m[1]))
        return MG_OK;
    s->client_secret = mg_json_str(a, m[1]);
    return check_secret(s->client_secret, "auth.refresh.token_endpoint_auth.client_secret", err);
}

static mg_rc update_refresh(struct mg_arena *a, const struct mg_json *v, struct mg_refresh *r,
                            struct mg_credential_secret *s, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "refresh_token", .type = MG_FT_STRING, .flags = MG_FF_NULL},
        {.name = "scope", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = SCOPE_MAX},
        {.name = "token_endpoint_auth", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    mg_rc rc = mg_check_object(a, v, "auth.refresh", RULES, m, err);
    if (rc < 0)
        return rc;
    if (!r->has)
        return mg_err_set(err, MG_EINVAL,
                          "auth.refresh: the credential was made without one, and it cannot be added; make another "
                          "credential");
    if (mg_given(m[0])) {
        s->refresh_token = mg_json_str(a, m[0]);
        rc = check_secret(s->refresh_token, "auth.refresh.refresh_token", err);
    }
    if (mg_given(m[1]))
        r->scope = optional(a, m[1]); /* "" clears it */
    return rc < 0 || !mg_given(m[2]) ? rc : update_endpoint_auth(a, m[2], r, s, err);
}

static mg_rc update_oauth(struct mg_arena *a, const struct mg_json *v, struct oauth *o, struct mg_credential *x,
                          struct mg_err *err)
{
    enum { TYPE, TOKEN, EXPIRES, REFRESH, N };
    static const struct mg_field_rule RULES[] = {
        [TYPE] = {.name = "type", .type = MG_FT_STRING},
        [TOKEN] = {.name = "access_token", .type = MG_FT_STRING, .flags = MG_FF_NULL},
        [EXPIRES] = {.name = "expires_at", .type = MG_FT_STRING, .flags = MG_FF_NULL},
        [REFRESH] = {.name = "refresh", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[N];
    mg_rc rc = mg_check_object(a, v, "auth", RULES, m, err);
    if (rc >= 0 && m[EXPIRES])
        rc = take_expiry(a, m[EXPIRES], &o->expires_us, err);
    if (rc >= 0 && mg_given(m[TOKEN])) {
        x->secret.token = mg_json_str(a, m[TOKEN]);
        rc = mg_token_check(x->secret.token, "auth.access_token", err);
    }
    if (rc >= 0 && mg_given(m[REFRESH]))
        rc = update_refresh(a, m[REFRESH], &o->refresh, &x->secret, err);
    if (rc < 0)
        return rc;
    x->expires_us = o->expires_us;
    x->auth = write_oauth(a, o);
    return MG_OK;
}

static mg_rc update_auth(struct mg_arena *a, const struct mg_json *v, struct mg_credential *x, struct mg_err *err)
{
    struct oauth o = {0};
    int t = 0, stored = 0;
    mg_rc rc = mg_check_tag(a, v, "auth", TYPES, &t, err);
    if (rc >= 0)
        rc = read_auth(a, x->auth, &stored, &o, err);
    if (rc < 0)
        return rc;
    if (t == T_VARIABLE)
        return refuse_variable(err);
    if (t != stored)
        return mg_err_set(err, MG_EINVAL, "auth.type: cannot be changed from %s to %s; make another credential",
                          TYPES[stored < 0 ? 0 : stored], TYPES[t]);
    return t == T_BEARER ? update_bearer(a, v, x, err) : update_oauth(a, v, &o, x, err);
}

mg_rc mg_credential_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_credential *base,
                                 struct mg_credential *ret, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        [F_AUTH] = {.name = "auth", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        [F_NAME] = {.name = "display_name", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = MG_VAULT_NAME_MAX},
        [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_meta_rules meta = {.create = false};
    const struct mg_json *m[N_FIELDS];
    *ret = *base;
    mg_rc rc = mg_check_object(a, body, "", RULES, m, err);
    if (rc >= 0 && mg_given(m[F_AUTH]))
        rc = update_auth(a, m[F_AUTH], ret, err);
    if (rc < 0)
        return rc;
    if (m[F_NAME])
        ret->name = optional(a, m[F_NAME]);
    return mg_metadata_patch(a, base->metadata, m[F_METADATA], &meta, &ret->metadata, err);
}
