/* What the table looks like to people: the settings in force, the sample file, the lines of --help. */
#include <stdio.h>

#include "conf/internal.h"

enum { WRAP = 78 /* columns of a comment in the sample */ };

static void put_value(struct mg_buf *out, const struct mg_opt_def *d, const char *text)
{
    if (d->type == MG_CONF_INT || d->type == MG_CONF_BOOL) {
        (void)mg_buf_str(out, text);
        return;
    }
    (void)mg_buf_char(out, '"');
    for (const char *c = text; *c; c++)
        (void)mg_buf_printf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    (void)mg_buf_char(out, '"');
}

mg_rc mg_conf_print(const struct mg_conf *c, struct mg_buf *out)
{
    for (int o = 0; o < MG_OPT_COUNT; o++) {
        const struct mg_opt_def *d = &mg_opt_table[o];
        const struct conf_value *v = &c->values[o];
        (void)mg_buf_printf(out, "%s = ", d->name);
        put_value(out, d, d->secret && *v->text ? "***" : v->text);
        (void)mg_buf_printf(out, "  # %s\n", v->origin);
    }
    for (const struct conf_plugin_value *v = c->plugins; v; v = v->next)
        /* Which settings of a plugin are secret is not known here. */
        (void)mg_buf_printf(out, "plugins.%s.%s = \"***\"\n", v->plugin, v->key);
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}

/* "true or false", "1 to 32", "2s to 5m", or "" */
static void describe(const struct mg_opt_def *d, char out[160])
{
    char low[32], high[32];

    out[0] = '\0';
    switch (d->type) {
    case MG_CONF_STRING:
        break;
    case MG_CONF_BOOL:
        (void)snprintf(out, 160, "true or false");
        break;
    case MG_CONF_INT:
        (void)snprintf(out, 160, "%lld to %lld", (long long)d->min, (long long)d->max);
        break;
    case MG_CONF_DURATION:
        conf_format_duration(d->min, low);
        conf_format_duration(d->max, high);
        (void)snprintf(out, 160, "%s to %s", low, high);
        break;
    case MG_CONF_CHOICE:
        (void)snprintf(out, 160, "one of: %s", d->choices);
        break;
    }
}

/* Words in lines of at most WRAP columns, each led by "# ". */
static void put_comment(struct mg_buf *out, const char *text)
{
    struct mg_sv rest = mg_sv_of(text);
    size_t column = 0;

    while (rest.len) {
        struct mg_sv word = mg_sv_split(&rest, ' ');
        if (column && column + 1 + word.len > WRAP) {
            (void)mg_buf_char(out, '\n');
            column = 0;
        }
        (void)mg_buf_printf(out, "%s%.*s", column ? " " : "# ", MG_SV_ARG(word));
        column += word.len + (column ? 1 : 2);
    }
    (void)mg_buf_char(out, '\n');
}

mg_rc mg_conf_sample(struct mg_buf *out)
{
    char range[160], text[512];

    (void)mg_buf_str(
        out, "# Settings of mangod. Every option is here with its default; remove the # before one to change it.\n"
             "#\n"
             "# The command line (--listen=...) wins over the environment (MANGO_LISTEN), and that over this\n"
             "# file. An empty value counts as unset. Keep secrets in the environment or make this file\n"
             "# readable by the server's user only. `mangod --print-config` shows what is in force.\n");
    for (int o = 0; o < MG_OPT_COUNT; o++) {
        const struct mg_opt_def *d = &mg_opt_table[o];
        if (d->group)
            (void)mg_buf_printf(out, "\n\n# ---- %s ----\n", d->group);
        describe(d, range);
        (void)snprintf(text, sizeof(text), "%s.%s%s%s", d->help, *range ? " (" : "", range, *range ? ")" : "");
        (void)mg_buf_char(out, '\n');
        put_comment(out, text);
        (void)mg_buf_printf(out, "# %s%s\n#%s = ", d->env, d->secret ? "; secret" : "", d->name);
        put_value(out, d, d->fallback);
        (void)mg_buf_str(out, ";\n");
    }
    return mg_buf_str(
        out, "\n\n# ---- Plugins ----\n"
             "\n"
             "# Settings of each plugin, by its name; see the page of the plugin. They may also come from the\n"
             "# environment: base_dir of local is MANGO_LOCAL_BASE_DIR, credentials keep the names that their\n"
             "# service uses.\n"
             "#plugins: {\n"
             "#    local: {\n"
             "#        base_dir = \"/var/lib/mango/workspaces\";\n"
             "#    };\n"
             "#};\n");
}

mg_rc mg_conf_help(struct mg_buf *out)
{
    char name[64], range[160];

    (void)mg_buf_str(out, "Options (each also as MANGO_NAME in the environment and as name in mango.conf):\n");
    for (int o = 0; o < MG_OPT_COUNT; o++) {
        const struct mg_opt_def *d = &mg_opt_table[o];
        (void)snprintf(name, sizeof(name), "%s", d->name);
        for (char *c = name; *c; c++)
            if (*c == '_')
                *c = '-';
        describe(d, range);
        (void)mg_buf_printf(out, "  --%s=%s\n      %s", name, *range ? range : "TEXT", d->help);
        (void)mg_buf_printf(out, *d->fallback ? " [%s]\n" : "\n", d->fallback);
    }
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}
