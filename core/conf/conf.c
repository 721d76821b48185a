/* Loading in the order of precedence, and the getters. */
#include "conf/conf.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "conf/internal.h"

enum { NAME_MAX_BYTES = 64, NEAR_ENOUGH = 4 /* edits */ };

static bool same_name(struct mg_sv given, const char *name)
{
    if (given.len != strlen(name))
        return false;
    for (size_t i = 0; i < given.len; i++)
        if ((given.ptr[i] == '-' ? '_' : given.ptr[i]) != name[i])
            return false;

    return true;
}

enum mg_opt conf_find(struct mg_sv name)
{
    int o = 0;

    while (o < MG_OPT_COUNT && !same_name(name, mg_opt_table[o].name))
        o++;

    return (enum mg_opt)o;
}

/* Levenshtein's distance; both at most NAME_MAX_BYTES long. */
static int distance(struct mg_sv a, struct mg_sv b)
{
    int row[NAME_MAX_BYTES + 1];

    for (size_t j = 0; j <= b.len; j++)
        row[j] = (int)j;
    for (size_t i = 0; i < a.len; i++) {
        int diagonal = row[0];
        row[0] = (int)i + 1;
        for (size_t j = 0; j < b.len; j++) {
            int change = diagonal + (a.ptr[i] != b.ptr[j]);
            diagonal = row[j + 1];
            int step = (row[j] < diagonal ? row[j] : diagonal) + 1;
            row[j + 1] = change < step ? change : step;
        }
    }

    return row[b.len];
}

void conf_nearest(struct mg_sv name, char out[96])
{
    int best = NEAR_ENOUGH + 1;

    out[0] = '\0';
    if (name.len > NAME_MAX_BYTES)
        return;
    for (int o = 0; o < MG_OPT_COUNT; o++) {
        struct mg_sv known = mg_sv_of(mg_opt_table[o].name);
        int d = distance(name, known);
        if (d >= best || (size_t)d * 2 > known.len)
            continue;
        best = d;
        (void)snprintf(out, 96, "; did you mean %s?", known.ptr);
    }
}

/* --- loading --- */

static mg_rc read_argument(struct mg_conf *c, const char *arg, struct mg_err *err)
{
    struct mg_sv value = mg_sv_of(arg), name;
    char near[96], origin[NAME_MAX_BYTES + 8];

    if (!mg_sv_starts(value, "--"))
        return mg_err_set(err, MG_ECONFIG, "'%.100s' is not an option; options look like --listen=127.0.0.1:8080", arg);
    value = mg_sv_from(value, 2);
    bool has_value = mg_sv_find(value, '=') < value.len;
    name = mg_sv_split(&value, '=');
    enum mg_opt o = conf_find(name);
    if (o == MG_OPT_COUNT) {
        conf_nearest(name, near);
        return mg_err_set(err, MG_ECONFIG, "there is no option --%.*s%s", name.len > 64 ? 64 : (int)name.len, name.ptr,
                          near);
    }
    (void)snprintf(origin, sizeof(origin), "--%.*s", MG_SV_ARG(name));
    if (!has_value && mg_opt_table[o].type != MG_CONF_BOOL)
        return mg_err_set(err, MG_ECONFIG, "%s needs a value: %s=VALUE", origin, origin);
    return conf_put(c, o, has_value ? value.ptr : "true", origin, err);
}

static void copy_env(struct mg_conf *c, const char *const *env)
{
    if (!env)
        return;
    while (env[c->n_env])
        c->n_env++;
    c->env = mg_xcalloc(c->n_env + 1, sizeof(*c->env));
    for (size_t i = 0; i < c->n_env; i++)
        c->env[i] = mg_xstrdup(env[i]);
}

const char *conf_env(const struct mg_conf *c, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < c->n_env; i++)
        if (strncmp(c->env[i], name, n) == 0 && c->env[i][n] == '=')
            return c->env[i][n + 1] ? &c->env[i][n + 1] : NULL;

    return NULL;
}

static mg_rc check_together(const struct mg_conf *c, struct mg_err *err)
{
    bool cert = *mg_conf_str(c, MG_OPT_TLS_CERT), key = *mg_conf_str(c, MG_OPT_TLS_KEY);

    if (cert != key)
        return mg_err_set(err, MG_ECONFIG, "%s is set without %s; TLS needs both", cert ? "tls_cert" : "tls_key",
                          cert ? "tls_key" : "tls_cert");
    return MG_OK;
}

/* Lowest precedence first: what comes later replaces what is there. */
static mg_rc load(struct mg_conf *c, const struct mg_conf_source *src, struct mg_err *err)
{
    mg_rc rc = MG_OK;

    for (int o = 0; o < MG_OPT_COUNT && rc == MG_OK; o++)
        rc = conf_put(c, (enum mg_opt)o, mg_opt_table[o].fallback, "default", err);
    if (rc == MG_OK && src->file)
        rc = conf_read_file(c, src->file, src->file_may_be_missing, err);
    for (int o = 0; o < MG_OPT_COUNT && rc == MG_OK; o++) {
        const char *text = conf_env(c, mg_opt_table[o].env);
        if (text)
            rc = conf_put(c, (enum mg_opt)o, text, mg_opt_table[o].env, err);
    }
    for (size_t i = 0; src->args && src->args[i] && rc == MG_OK; i++)
        rc = read_argument(c, src->args[i], err);
    return rc == MG_OK ? check_together(c, err) : rc;
}

mg_rc mg_conf_load(const struct mg_conf_source *src, struct mg_conf **ret, struct mg_err *err)
{
    struct mg_conf *c = mg_xcalloc(1, sizeof(*c));

    c->arena = mg_arena_new();
    copy_env(c, src->env);
    mg_rc rc = load(c, src, err);
    if (rc < 0) {
        mg_conf_free(c);
        return rc;
    }
    *ret = c;
    return MG_OK;
}

static void free_wiped(char *text)
{
    if (text)
        mg_wipe(text, strlen(text));
    free(text);
}

void mg_conf_free(struct mg_conf *c)
{
    if (!c)
        return;
    for (int o = 0; o < MG_OPT_COUNT; o++) {
        free_wiped(c->values[o].text);
        free(c->values[o].origin);
    }
    for (size_t i = 0; i < c->n_env; i++)
        free_wiped(c->env[i]);
    for (struct conf_plugin_value *v = c->plugins; v; v = v->next)
        mg_wipe((char *)v->text, strlen(v->text));
    free(c->env);
    mg_arena_free(c->arena);
    free(c);
}

/* --- getters --- */

const char *mg_conf_str(const struct mg_conf *c, enum mg_opt o)
{
    return c->values[o].text;
}

const char *mg_conf_strn(const struct mg_conf *c, enum mg_opt o)
{
    return *c->values[o].text ? c->values[o].text : NULL;
}

int64_t mg_conf_int(const struct mg_conf *c, enum mg_opt o)
{
    assert(mg_opt_table[o].type == MG_CONF_INT);
    return c->values[o].number;
}

int64_t mg_conf_ms(const struct mg_conf *c, enum mg_opt o)
{
    assert(mg_opt_table[o].type == MG_CONF_DURATION);
    return c->values[o].number;
}

bool mg_conf_bool(const struct mg_conf *c, enum mg_opt o)
{
    assert(mg_opt_table[o].type == MG_CONF_BOOL);
    return c->values[o].number != 0;
}

const char *const *mg_conf_list(const struct mg_conf *c, enum mg_opt o)
{
    assert(mg_opt_table[o].type == MG_CONF_STRING && !mg_opt_table[o].secret);
    return c->values[o].list;
}

bool mg_conf_is_set(const struct mg_conf *c, enum mg_opt o)
{
    return c->values[o].set;
}

const char *mg_conf_origin(const struct mg_conf *c, enum mg_opt o)
{
    return c->values[o].origin;
}
