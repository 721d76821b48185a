#include "domain/environment.h"

#include "base/buf.h"
#include "base/mem.h"
#include "domain/metadata.h"
#include "json/write.h"

enum {
    CONFIG_MAX = 4 * 1024 * 1024 /* bytes of a resolved config */,
    HOSTS_MAX = 500 /* allowed_hosts */,
    HOST_MAX = 253
};

static const char *const MANAGERS[] = {"apt", "cargo", "gem", "go", "npm", "pip", NULL};
enum { N_MANAGERS = 6 };

/* A cloud config as resolved: lists are JSON text. */
struct cloud {
    bool limited, allow_mcp, allow_managers;
    struct mg_sv hosts;
    struct mg_sv packages[N_MANAGERS];
};

static struct cloud cloud_default(void)
{
    struct cloud c = {.hosts = MG_SV("[]")};
    for (int i = 0; i < N_MANAGERS; i++)
        c.packages[i] = MG_SV("[]");
    return c;
}

/* ---- networking ---- */

/* A bare host, an IPv4 address, or "*." before a host. */
static bool host_ok(struct mg_sv s)
{
    if (mg_sv_starts(s, "*."))
        s = mg_sv_from(s, 2);
    if (s.len == 0 || s.len > HOST_MAX || s.ptr[0] == '.' || s.ptr[0] == '-' || s.ptr[s.len - 1] == '.')
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
        if (!ok || (c == '.' && s.ptr[i - 1] == '.'))
            return false;
    }
    return true;
}

static mg_rc check_hosts(struct mg_arena *a, const struct mg_json *arr, const char *place, struct mg_err *err)
{
    static const struct mg_field_rule HOST = {.type = MG_FT_STRING, .min = 1, .max = HOST_MAX + 2};
    unsigned i = 0;
    char p[MG_PATH_MAX];
    for (const struct mg_json *v = arr->child; v; v = v->next) {
        mg_rc rc = mg_check_value(a, v, mg_place_at(p, place, i++), &HOST, err);
        if (rc < 0)
            return rc;
        if (!host_ok(mg_json_str(a, v)))
            return mg_err_set(
                err, MG_EINVAL,
                "%s: must be a bare host name, an IPv4 address, or \"*.\" and a host name, each without a port", p);
    }
    return MG_OK;
}

static mg_rc parse_limited(struct mg_arena *a, const struct mg_json *v, const char *place, struct cloud *c,
                           struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "allowed_hosts", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = HOSTS_MAX},
        {.name = "allow_mcp_servers", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
        {.name = "allow_package_managers", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[4];
    char p[MG_PATH_MAX];
    mg_rc rc = mg_check_object(a, v, place, RULES, m, err);
    if (rc >= 0 && mg_given(m[1]))
        rc = check_hosts(a, m[1], mg_place(p, place, "allowed_hosts"), err);
    if (rc < 0)
        return rc;
    if (!c->limited) { /* from unrestricted: nothing is kept */
        c->hosts = MG_SV("[]");
        c->allow_mcp = c->allow_managers = false;
    }
    c->limited = true;
    if (m[1])
        c->hosts = mg_given(m[1]) ? m[1]->raw : MG_SV("[]");
    if (m[2])
        c->allow_mcp = mg_given(m[2]) && m[2]->boolean;
    if (m[3])
        c->allow_managers = mg_given(m[3]) && m[3]->boolean;
    return MG_OK;
}

static mg_rc parse_networking(struct mg_arena *a, const struct mg_json *v, const char *place, struct cloud *c,
                              struct mg_err *err)
{
    static const char *const TYPES[] = {"unrestricted", "limited", NULL};
    static const struct mg_field_rule RULES[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    const struct mg_json *m[1];
    int t = 0;
    mg_rc rc = mg_check_tag(a, v, place, TYPES, &t, err);
    if (rc < 0)
        return rc;
    if (t == 1)
        return parse_limited(a, v, place, c, err);
    rc = mg_check_object(a, v, place, RULES, m, err);
    c->limited = c->allow_mcp = c->allow_managers = false;
    c->hosts = MG_SV("[]");
    return rc;
}

/* ---- packages ---- */

static mg_rc parse_packages(struct mg_arena *a, const struct mg_json *v, const char *place, struct cloud *c,
                            struct mg_err *err)
{
    static const char *const TYPE[] = {"packages", NULL};
    static const struct mg_field_rule RULES[] = {
        {.name = "apt", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_ENV_PACKAGES_MAX},
        {.name = "cargo", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_ENV_PACKAGES_MAX},
        {.name = "gem", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_ENV_PACKAGES_MAX},
        {.name = "go", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_ENV_PACKAGES_MAX},
        {.name = "npm", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_ENV_PACKAGES_MAX},
        {.name = "pip", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_ENV_PACKAGES_MAX},
        {.name = "type", .type = MG_FT_STRING, .one_of = TYPE},
        {.name = NULL},
    };
    static const struct mg_field_rule PACKAGE = {.type = MG_FT_STRING, .min = 1, .max = 256};
    const struct mg_json *m[N_MANAGERS + 1];
    mg_rc rc = mg_check_object(a, v, place, RULES, m, err);
    for (int i = 0; i < N_MANAGERS && rc >= 0; i++) {
        char p[MG_PATH_MAX], q[MG_PATH_MAX];
        unsigned k = 0;
        if (!m[i])
            continue;
        mg_place(p, place, MANAGERS[i]);
        for (const struct mg_json *s = mg_given(m[i]) ? m[i]->child : NULL; s && rc >= 0; s = s->next) {
            rc = mg_check_value(a, s, mg_place_at(q, p, k++), &PACKAGE, err);
            if (rc >= 0 && mg_json_str(a, s).ptr[0] == '-')
                rc = mg_err_set(err, MG_EINVAL, "%s: a package must not begin with '-'", q);
        }
        c->packages[i] = mg_given(m[i]) ? m[i]->raw : MG_SV("[]");
    }
    return rc;
}

static bool has_packages(const struct cloud *c)
{
    for (int i = 0; i < N_MANAGERS; i++)
        if (mg_sv_trim(mg_sv_n(c->packages[i].ptr + 1, c->packages[i].len - 2)).len)
            return true;
    return false;
}

/* ---- config ---- */

static struct mg_sv write_cloud(struct mg_arena *a, const struct cloud *c)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(CONFIG_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "cloud");
    mg_jw_key(&w, "networking");
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", c->limited ? "limited" : "unrestricted");
    if (c->limited) {
        mg_jw_kraw(&w, "allowed_hosts", c->hosts);
        mg_jw_kbool(&w, "allow_mcp_servers", c->allow_mcp);
        mg_jw_kbool(&w, "allow_package_managers", c->allow_managers);
    }
    mg_jw_obj_end(&w);
    mg_jw_key(&w, "packages");
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "packages");
    for (int i = 0; i < N_MANAGERS; i++)
        mg_jw_kraw(&w, MANAGERS[i], c->packages[i]);
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

static mg_rc parse_cloud(struct mg_arena *a, const struct mg_json *v, struct cloud *c, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "networking", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = "packages", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    mg_rc rc = mg_check_object(a, v, "config", RULES, m, err);
    if (rc >= 0 && mg_given(m[1]))
        rc = parse_networking(a, m[1], "config.networking", c, err);
    if (rc >= 0 && mg_given(m[2]))
        rc = parse_packages(a, m[2], "config.packages", c, err);
    if (rc >= 0 && c->limited && !c->allow_managers && has_packages(c))
        return mg_err_set(
            err, MG_EINVAL,
            "config.networking.allow_package_managers: must be true when packages are listed under limited networking");
    return rc;
}

/* base: the stored config of an update, or NULL. */
static mg_rc parse_config(struct mg_arena *a, const struct mg_json *v, const struct mg_environment *base,
                          struct mg_environment *x, struct mg_err *err)
{
    static const char *const TYPES[] = {"cloud", "self_hosted", NULL};
    static const struct mg_field_rule SELF_HOSTED[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    const struct mg_json *m[1];
    struct mg_json *stored;
    int t = 0;
    mg_rc rc = mg_check_tag(a, v, "config", TYPES, &t, err);
    if (rc < 0)
        return rc;
    if (base && base->cloud != (t == 0))
        return mg_err_code(err, MG_EINVAL, "invalid_config_type_change",
                           "config.type: cannot be changed from %s to %s; create another environment",
                           base->cloud ? "cloud" : "self_hosted", TYPES[t]);
    x->cloud = t == 0;
    if (!x->cloud) {
        x->config = MG_SV("{\"type\":\"self_hosted\"}");
        return mg_check_object(a, v, "config", SELF_HOSTED, m, err);
    }
    struct cloud c = cloud_default();
    if (base) {
        rc = mg_json_parse(a, base->config, &mg_json_raw_limits, &stored, err);
        if (rc >= 0)
            rc = parse_cloud(a, stored, &c, err);
        if (rc < 0)
            return mg_err_wrap(err, MG_EINTERNAL, "stored config");
    }
    rc = parse_cloud(a, v, &c, err);
    if (rc >= 0)
        x->config = write_cloud(a, &c);
    return rc;
}

/* ---- bodies ---- */

static const char *const SCOPES[] = {"organization", "account", NULL};
enum { F_NAME, F_CONFIG, F_DESCRIPTION, F_METADATA, F_SCOPE, N_FIELDS };
static const struct mg_field_rule CREATE_RULES[] = {
    [F_NAME] = {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_ENV_NAME_MAX},
    [F_CONFIG] = {.name = "config", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_DESCRIPTION] = {.name = "description", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = MG_ENV_DESCRIPTION_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_SCOPE] = {.name = "scope", .type = MG_FT_STRING, .flags = MG_FF_NULL, .one_of = SCOPES},
    {.name = NULL},
};
static const struct mg_field_rule UPDATE_RULES[] = {
    [F_NAME] = {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = MG_ENV_NAME_MAX},
    [F_CONFIG] = {.name = "config", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_DESCRIPTION] = {.name = "description", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = MG_ENV_DESCRIPTION_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_SCOPE] = {.name = "scope", .type = MG_FT_STRING, .flags = MG_FF_NULL, .one_of = SCOPES},
    {.name = NULL},
};

static mg_rc apply(struct mg_arena *a, const struct mg_json *const *m, const struct mg_environment *base,
                   struct mg_environment *x, struct mg_err *err)
{
    const struct mg_meta_rules meta = {.create = !base, .empty_deletes = base != NULL, .code = "invalid_metadata"};
    if (mg_given(m[F_NAME]))
        x->name = mg_json_str(a, m[F_NAME]);
    if (m[F_DESCRIPTION]) {
        struct mg_sv s = mg_given(m[F_DESCRIPTION]) ? mg_json_str(a, m[F_DESCRIPTION]) : MG_SV("");
        x->description = s.len ? s : mg_sv_n(NULL, 0);
    }
    if (mg_given(m[F_SCOPE])) {
        x->scope = mg_json_str(a, m[F_SCOPE]);
        if (mg_sv_eqz(x->scope, "account"))
            return mg_err_set(err, MG_EINVAL, "scope: this server has no accounts; only \"organization\" is possible");
    }
    mg_rc rc = mg_metadata_patch(a, x->metadata, m[F_METADATA], &meta, &x->metadata, err);
    if (rc >= 0 && mg_given(m[F_CONFIG]))
        rc = parse_config(a, m[F_CONFIG], base, x, err);
    return rc;
}

mg_rc mg_environment_parse_create(struct mg_arena *a, const struct mg_json *body, bool default_cloud,
                                  struct mg_environment *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    const struct cloud c = cloud_default();
    struct mg_environment x = {
        .cloud = default_cloud,
        .config = default_cloud ? write_cloud(a, &c) : MG_SV("{\"type\":\"self_hosted\"}"),
        .metadata = MG_SV("{}"),
        .scope = MG_SV("organization"),
    };
    mg_rc rc = mg_check_object(a, body, "", CREATE_RULES, m, err);
    if (rc >= 0)
        rc = apply(a, m, NULL, &x, err);
    if (rc >= 0)
        *ret = x;
    return rc;
}

mg_rc mg_environment_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_environment *base,
                                  struct mg_environment *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    struct mg_environment x = *base;
    mg_rc rc = mg_check_object(a, body, "", UPDATE_RULES, m, err);
    if (rc >= 0)
        rc = apply(a, m, base, &x, err);
    if (rc >= 0)
        *ret = x;
    return rc;
}
