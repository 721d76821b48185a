/* Options: --name VALUE, --name=VALUE, --flag, -- for the end. Tables say what each command takes. */
#include <stdlib.h>
#include <string.h>

#include "cmd/cli.h"

static const struct mg_cli_opt CLIENT_OPTS[] = {
    {"url", "URL", "the server (default: MANGO_BASE_URL, else http://127.0.0.1:8080)"},
    {"key-file", "FILE", "file with the API key (default: MANGO_API_KEY)"},
    {"format", "FORMAT", "text or json (default: text on a terminal, else JSON lines)"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt CONF_OPTS[] = {
    {"config", "FILE", "the server's configuration file (default: MANGO_CONFIG)"},
    {"format", "FORMAT", "text or json (default: text on a terminal, else JSON lines)"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt NONE[] = {{NULL, NULL, NULL}};

static const struct mg_cli_opt *common(const struct mg_cli_command *cmd)
{
    return cmd->client ? CLIENT_OPTS : cmd->conf ? CONF_OPTS : NONE;
}

static const struct mg_cli_opt *own(const struct mg_cli_command *cmd)
{
    return cmd->opts ? cmd->opts : NONE;
}

/* Position of the option in c->value, or -1. */
static int find(const struct mg_cli_command *cmd, struct mg_sv name, const struct mg_cli_opt **ret)
{
    int at = 0;

    for (const struct mg_cli_opt *o = own(cmd); o->name; o++, at++)
        if (mg_sv_eqz(name, o->name)) {
            *ret = o;
            return at;
        }
    for (const struct mg_cli_opt *o = common(cmd); o->name; o++, at++)
        if (mg_sv_eqz(name, o->name)) {
            *ret = o;
            return at;
        }
    return -1;
}

const char *mg_cli_get(const struct mg_cli *c, const char *name)
{
    const struct mg_cli_opt *o = NULL;
    int at = find(c->command, mg_sv_of(name), &o);

    return at < 0 ? NULL : c->value[at];
}

bool mg_cli_has(const struct mg_cli *c, const char *name)
{
    return mg_cli_get(c, name) != NULL;
}

bool mg_cli_int(const struct mg_cli *c, const char *name, int64_t min, int64_t max, int64_t fallback, int64_t *ret)
{
    const char *v = mg_cli_get(c, name);

    *ret = fallback;
    if (!v || (mg_sv_to_i64(mg_sv_of(v), ret) && *ret >= min && *ret <= max))
        return true;
    (void)mg_cli_usage(c, "--%s must be a number from %lld to %lld; got %s", name, (long long)min, (long long)max, v);
    return false;
}

/* One option at argv[*i]; may take the next argument too. */
static mg_rc take_option(struct mg_cli *c, int argc, char **argv, int *i, struct mg_err *why)
{
    struct mg_sv rest = mg_sv_of(argv[*i] + 2), name = mg_sv_split(&rest, '=');
    bool has_value = strchr(argv[*i], '=') != NULL;
    const struct mg_cli_opt *o = NULL;
    int at = find(c->command, name, &o);

    if (at < 0 && c->command->conf && has_value) {
        c->conf_args[c->n_conf_args++] = argv[*i];
        return MG_OK;
    }
    if (at < 0)
        return mg_err_set(why, MG_EINVAL, "there is no option --%.*s", MG_SV_ARG(name));
    if (!o->arg && has_value)
        return mg_err_set(why, MG_EINVAL, "--%s takes no value", o->name);
    if (o->arg && !has_value && *i + 1 >= argc)
        return mg_err_set(why, MG_EINVAL, "--%s needs a value: %s", o->name, o->arg);
    if (c->value[at])
        return mg_err_set(why, MG_EINVAL, "--%s is given twice", o->name);
    c->value[at] = !o->arg ? "" : has_value ? rest.ptr : argv[++*i];
    return MG_OK;
}

int mg_cli_parse(struct mg_cli *c, int argc, char **argv, struct mg_err *why)
{
    bool options = true;
    mg_rc rc = MG_OK;

    c->conf_args = mg_arena_alloc(c->arena, sizeof(*c->conf_args) * ((size_t)argc + 1));
    for (int i = 0; i < argc && rc == MG_OK; i++) {
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (options && strncmp(argv[i], "--", 2) == 0)
            rc = take_option(c, argc, argv, &i, why);
        else if (options && argv[i][0] == '-' && argv[i][1])
            rc = mg_err_set(why, MG_EINVAL, "there is no option %s; use -- in front of a text that starts with a dash",
                            argv[i]);
        else if (c->n_args == c->command->max_args)
            rc = mg_err_set(why, MG_EINVAL, "%s is one argument too many; put a text with spaces in quotes", argv[i]);
        else
            c->args[c->n_args++] = argv[i];
    }
    if (rc == MG_OK && c->n_args < c->command->min_args)
        rc = mg_err_set(why, MG_EINVAL, "an argument is missing: mango %s %s", c->command->path, c->command->args);
    return rc == MG_OK ? MG_CLI_OK : MG_CLI_USAGE;
}

static void print_opts(FILE *out, const struct mg_cli_opt *o)
{
    for (; o->name; o++) {
        char left[64];
        (void)snprintf(left, sizeof(left), "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        fprintf(out, "  %-22s %s\n", left, o->help);
    }
}

void mg_cli_help(FILE *out, const struct mg_cli_command *cmd)
{
    fprintf(out, "mango %s: %s\n\nUsage: mango %s%s%s%s\n", cmd->path, cmd->about, cmd->path, *cmd->args ? " " : "",
            cmd->args, own(cmd)->name || common(cmd)->name ? " [OPTIONS]" : "");
    if (own(cmd)->name || common(cmd)->name)
        fputs("\nOptions:\n", out);
    print_opts(out, own(cmd));
    print_opts(out, common(cmd));
    if (cmd->conf)
        fputs("  --OPTION=VALUE         any setting of mangod (see mangod --help)\n", out);
    if (cmd->examples)
        fprintf(out, "\nExamples:\n%s", cmd->examples);
}

/* Words of path that argv starts with, or 0. */
static int match(const char *path, int argc, char **argv)
{
    struct mg_sv rest = mg_sv_of(path);
    int n = 0;

    while (rest.len) {
        struct mg_sv word = mg_sv_split(&rest, ' ');
        if (n >= argc || !mg_sv_eqz(word, argv[n]))
            return 0;
        n++;
    }
    return n;
}

const struct mg_cli_command *mg_cli_find(const struct mg_cli_command *all, int argc, char **argv, int *ret_words)
{
    const struct mg_cli_command *best = NULL;

    *ret_words = 0;
    for (; all->path; all++) {
        int n = match(all->path, argc, argv);
        if (n > *ret_words) {
            *ret_words = n;
            best = all;
        }
    }
    return best;
}
