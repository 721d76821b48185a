/* Settings of plugins: the environment first, then their section of the file. */
#include <ctype.h>
#include <stdio.h>

#include "base/utf8.h"
#include "conf/internal.h"

enum { VAR_MAX = 128, JSON_NAME_MAX = 64 };

static bool all_capitals(const char *name)
{
    for (const char *c = name; *c; c++)
        if (!isupper((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
            return false;

    return *name;
}

/* "MANGO_LOCAL_BASE_DIR" of local and base_dir; with name "" the prefix "MANGO_LOCAL_". False when it is too long. */
static bool variable_of(const char *plugin, const char *name, char out[VAR_MAX])
{
    int n = snprintf(out, VAR_MAX, "MANGO_%s_%s", plugin, name);

    for (char *c = out; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return n > 0 && n < VAR_MAX;
}

/* The server's own variables are not a plugin's to read. */
static bool is_servers_own(const char *variable)
{
    if (strncmp(variable, "PG", 2) == 0)
        return true;
    for (int o = 0; o < MG_OPT_COUNT; o++)
        if (strcmp(mg_opt_table[o].env, variable) == 0)
            return true;

    return false;
}

/* key of the file, name in capitals: the same, or lower case, or lower case without the plugin's own name before it. */
static bool names_secret(const char *key, const char *plugin, const char *name)
{
    size_t n = strlen(plugin);

    if (strcasecmp(key, name) == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        if ((plugin[i] == '-' ? '_' : plugin[i]) != tolower((unsigned char)name[i]))
            return false;

    return name[n] == '_' && strcasecmp(key, name + n + 1) == 0;
}

const char *mg_conf_plugin(const struct mg_conf *c, const char *plugin, const char *name)
{
    bool capitals = all_capitals(name);
    char variable[VAR_MAX];
    const char *text = NULL;

    if (capitals && strncmp(name, "MANGO_", 6) != 0 && !is_servers_own(name))
        text = conf_env(c, name);
    else if (!capitals && variable_of(plugin, name, variable) && !is_servers_own(variable))
        text = conf_env(c, variable);
    for (const struct conf_plugin_value *v = c->plugins; v && !text; v = v->next)
        if (strcmp(v->plugin, plugin) == 0 && *v->text &&
            (capitals ? names_secret(v->key, plugin, name) : strcmp(v->key, name) == 0))
            text = v->text;

    return text;
}

static void put_json_string(struct mg_buf *out, struct mg_sv s)
{
    (void)mg_buf_char(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char ch = (unsigned char)s.ptr[i];
        if (ch == '"' || ch == '\\')
            (void)mg_buf_printf(out, "\\%c", ch);
        else if (ch < ' ')
            (void)mg_buf_printf(out, "\\u%04x", ch);
        else
            (void)mg_buf_char(out, (char)ch);
    }
    (void)mg_buf_char(out, '"');
}

static void put_member(struct mg_buf *out, const char *key, const char *text, bool quoted)
{
    mg_auto(buf) struct mg_buf clean = MG_BUF_INIT(1 << 22);

    if (mg_buf_view(out).ptr[out->len - 1] != '{')
        (void)mg_buf_char(out, ',');
    put_json_string(out, mg_sv_of(key));
    (void)mg_buf_char(out, ':');
    if (!quoted) {
        (void)mg_buf_str(out, text);
        return;
    }
    (void)mg_utf8_clean(&clean, mg_sv_of(text));
    put_json_string(out, mg_buf_view(&clean));
}

/* A variable NAME=VALUE of this plugin: its setting's name in lower case. */
static bool setting_of(const char *entry, const char *prefix, char ret_key[JSON_NAME_MAX], const char **ret_text)
{
    struct mg_sv s = mg_sv_of(entry), name;
    char variable[VAR_MAX];

    if (!mg_sv_starts(s, prefix))
        return false;
    name = mg_sv_split(&s, '=');
    size_t skip = strlen(prefix);
    if (name.len == skip || name.len - skip >= JSON_NAME_MAX || name.len >= VAR_MAX || !s.len)
        return false;
    (void)snprintf(variable, sizeof(variable), "%.*s", MG_SV_ARG(name));
    if (is_servers_own(variable))
        return false;
    for (size_t i = skip; i < name.len; i++)
        ret_key[i - skip] = (char)tolower((unsigned char)name.ptr[i]);
    ret_key[name.len - skip] = '\0';
    *ret_text = s.ptr;
    return true;
}

static bool in_file(const struct mg_conf *c, const char *plugin, const char *key)
{
    for (const struct conf_plugin_value *v = c->plugins; v; v = v->next)
        if (strcmp(v->plugin, plugin) == 0 && strcmp(v->key, key) == 0)
            return true;

    return false;
}

mg_rc mg_conf_plugin_json(const struct mg_conf *c, const char *plugin, struct mg_buf *out)
{
    char prefix[VAR_MAX], key[JSON_NAME_MAX];
    const char *text;

    (void)mg_buf_char(out, '{');
    for (const struct conf_plugin_value *v = c->plugins; v && mg_buf_ok(out); v = v->next) {
        if (strcmp(v->plugin, plugin) != 0)
            continue;
        char variable[VAR_MAX];
        const char *over =
            variable_of(plugin, v->key, variable) && !is_servers_own(variable) ? conf_env(c, variable) : NULL;
        put_member(out, v->key, over ? over : v->text, over ? true : v->quoted);
    }
    if (variable_of(plugin, "", prefix))
        for (size_t i = 0; i < c->n_env && mg_buf_ok(out); i++)
            if (setting_of(c->env[i], prefix, key, &text) && !in_file(c, plugin, key))
                put_member(out, key, text, true);
    return mg_buf_char(out, '}');
}
