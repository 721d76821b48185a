#include "domain/vault.h"

#include <stdio.h>

#include "domain/check.h"
#include "domain/metadata.h"
#include "json/write.h"

/* ---- vaults ---- */

enum { F_NAME, F_METADATA, N_FIELDS };
static const struct mg_field_rule CREATE_RULES[] = {
    [F_NAME] =
        {.name = "display_name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_VAULT_NAME_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};
static const struct mg_field_rule UPDATE_RULES[] = {
    [F_NAME] = {.name = "display_name", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = MG_VAULT_NAME_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};

static mg_rc apply(struct mg_arena *a, const struct mg_json *const *m, bool create, struct mg_vault *x,
                   struct mg_err *err)
{
    const struct mg_meta_rules meta = {.create = create};
    if (mg_given(m[F_NAME]))
        x->name = mg_json_str(a, m[F_NAME]);
    return mg_metadata_patch(a, x->metadata, m[F_METADATA], &meta, &x->metadata, err);
}

mg_rc mg_vault_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_vault *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    *ret = (struct mg_vault){.metadata = MG_SV("{}")};
    mg_rc rc = mg_check_object(a, body, "", CREATE_RULES, m, err);
    return rc < 0 ? rc : apply(a, m, true, ret, err);
}

mg_rc mg_vault_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_vault *base,
                            struct mg_vault *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    *ret = *base;
    mg_rc rc = mg_check_object(a, body, "", UPDATE_RULES, m, err);
    return rc < 0 ? rc : apply(a, m, false, ret, err);
}

mg_rc mg_vault_ids_parse(struct mg_arena *a, const struct mg_json *v, struct mg_sv *ret, struct mg_sv **ret_ids,
                         int *ret_n, struct mg_err *err)
{
    static const struct mg_field_rule ID = {.type = MG_FT_ID};
    static struct mg_sv none[1];
    *ret = MG_SV("[]");
    *ret_ids = none;
    *ret_n = 0;
    if (!mg_given(v) || v->n == 0)
        return MG_OK;
    struct mg_sv *ids = mg_arena_alloc(a, sizeof(*ids) * v->n);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    struct mg_jw w = mg_jw_to(&b);
    int n = 0;
    mg_jw_arr(&w);
    for (const struct mg_json *x = v->child; x; x = x->next, n++) {
        char place[MG_PATH_MAX];
        mg_rc rc = mg_check_value(a, x, mg_place_at(place, "vault_ids", (unsigned)n), &ID, err);
        if (rc < 0)
            return rc;
        ids[n] = mg_json_str(a, x);
        for (int i = 0; i < n; i++)
            if (mg_sv_eq(ids[i], ids[n]))
                return mg_err_set(err, MG_EINVAL, "%s: the same vault is named twice", place);
        mg_jw_str(&w, ids[n]);
    }
    mg_jw_arr_end(&w);
    *ret = mg_arena_sv(a, mg_buf_view(&b));
    *ret_ids = ids;
    *ret_n = n;
    return MG_OK;
}

/* ---- what is secret, and what it is bound to ---- */

mg_rc mg_credential_secret_write(const struct mg_credential_secret *s, struct mg_buf *out)
{
    mg_rc rc = mg_buf_reserve(out, MG_CREDENTIAL_SECRET_MAX);
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "token", s->token);
    if (s->refresh_token.ptr)
        mg_jw_kstr(&w, "refresh_token", s->refresh_token);
    if (s->client_secret.ptr)
        mg_jw_kstr(&w, "client_secret", s->client_secret);
    mg_jw_obj_end(&w);
    return rc < 0 || mg_buf_ok(out) ? rc : MG_ETOOBIG;
}

static struct mg_sv member(struct mg_arena *a, const struct mg_json *v, const char *name)
{
    const struct mg_json *m = mg_json_get(v, name);
    return mg_json_is(m, MG_JSON_STRING) ? mg_json_str(a, m) : mg_sv_n(NULL, 0);
}

mg_rc mg_credential_secret_read(struct mg_arena *a, struct mg_sv text, struct mg_credential_secret *ret,
                                struct mg_err *err)
{
    struct mg_json *v;
    if (mg_json_parse(a, text, &mg_json_raw_limits, &v, NULL) < 0)
        return mg_err_set(err, MG_EINTERNAL, "the stored secret of a credential cannot be read");
    *ret = (struct mg_credential_secret){
        .token = member(a, v, "token"),
        .refresh_token = member(a, v, "refresh_token"),
        .client_secret = member(a, v, "client_secret"),
    };
    return MG_OK;
}

struct mg_sv mg_credential_associated(struct mg_arena *a, struct mg_sv vault, struct mg_sv id, struct mg_sv server,
                                      struct mg_sv auth)
{
    const struct mg_sv parts[] = {MG_SV("mango/vault-credential/v1"), vault, id, server, auth};
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (i)
            (void)mg_buf_char(&b, '\0');
        (void)mg_buf_sv(&b, parts[i]);
    }
    return mg_arena_sv(a, mg_buf_view(&b));
}

/* ---- URLs ---- */

static bool is_default_port(struct mg_sv scheme, struct mg_sv port)
{
    return port.len == 0 || mg_sv_eqz(port, mg_sv_eqz(scheme, "https") ? "443" : "80");
}

static struct mg_sv lower(struct mg_arena *a, struct mg_sv s)
{
    char *z = mg_arena_strdup(a, s);
    for (size_t i = 0; i < s.len; i++)
        if (z[i] >= 'A' && z[i] <= 'Z')
            z[i] = (char)(z[i] + 32);
    return mg_sv_n(z, s.len);
}

static bool plain(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~' || s.ptr[i] == '#' || s.ptr[i] == '\\')
            return false;
    return true;
}

/* Where the port of an authority begins, behind the brackets of an IPv6 address. */
static size_t port_at(struct mg_sv authority)
{
    const char *bracket = memchr(authority.ptr, ']', authority.len);
    size_t from = bracket ? (size_t)(bracket - authority.ptr) : 0;
    return from + mg_sv_find(mg_sv_from(authority, from), ':');
}

/* Of what stands behind the scheme. */
static struct mg_sv authority_of(struct mg_sv rest)
{
    size_t n = 0;
    while (n < rest.len && rest.ptr[n] != '/' && rest.ptr[n] != '?')
        n++;
    return mg_sv_n(rest.ptr, n);
}

bool mg_server_url_normal(struct mg_arena *a, struct mg_sv url, struct mg_sv *ret)
{
    const char *at = memmem(url.ptr, url.len, "://", 3);
    if (!at || url.len > MG_CREDENTIAL_URL_MAX || !plain(url))
        return false;
    struct mg_sv scheme = lower(a, mg_sv_n(url.ptr, (size_t)(at - url.ptr)));
    struct mg_sv rest = mg_sv_n(at + 3, url.len - scheme.len - 3);
    struct mg_sv authority = authority_of(rest), path = mg_sv_from(rest, authority.len);
    size_t colon = port_at(authority);
    struct mg_sv host = lower(a, mg_sv_n(authority.ptr, colon)), port = mg_sv_from(authority, colon + 1);
    bool good = (mg_sv_eqz(scheme, "https") || mg_sv_eqz(scheme, "http")) && host.len &&
                !memchr(authority.ptr, '@', authority.len);
    if (!good)
        return false;
    bool query = path.len && memchr(path.ptr, '?', path.len);
    while (!query && path.len && path.ptr[path.len - 1] == '/')
        path.len--;
    bool bare = is_default_port(scheme, port);
    *ret = mg_arena_printf(a, "%.*s://%.*s%s%.*s%.*s", MG_SV_ARG(scheme), MG_SV_ARG(host), bare ? "" : ":",
                           bare ? 0 : (int)port.len, port.ptr, MG_SV_ARG(path));
    return true;
}

bool mg_server_url_has_port(struct mg_sv normal)
{
    struct mg_sv authority = authority_of(mg_sv_from(normal, mg_sv_find(normal, '/') + 2));
    return port_at(authority) < authority.len;
}
