/* mango: finds the command, reads its options, runs it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/cli-client.h"
#include "cmd/cli.h"

static const char *const HIDDEN[] = {"plugin probe", "plugin conformance-child"};

static bool is_hidden(const char *path)
{
    for (size_t i = 0; i < sizeof(HIDDEN) / sizeof(HIDDEN[0]); i++)
        if (strcmp(path, HIDDEN[i]) == 0)
            return true;
    return false;
}

/* Commands whose path starts with prefix ("" all). */
static void list_commands(FILE *out, const char *prefix)
{
    for (const struct mg_cli_command *cmd = mg_cli_commands; cmd->path; cmd++) {
        char left[64];
        if (strncmp(cmd->path, prefix, strlen(prefix)) != 0 || is_hidden(cmd->path))
            continue;
        (void)snprintf(left, sizeof(left), "%s%s%s", cmd->path, *cmd->args ? " " : "", cmd->args);
        fprintf(out, "  %-28s %s\n", left, cmd->about);
    }
}

static int print_overview(FILE *out, int status)
{
    fputs("mango: the command line of Mango, a control plane for AI agents\n\nUsage: mango COMMAND "
          "[OPTIONS]\n\nCommands:\n",
          out);
    list_commands(out, "");
    fputs("\nmango COMMAND --help shows options and examples. MANGO_BASE_URL names the server, MANGO_API_KEY holds the "
          "key.\n",
          out);
    return status;
}

static bool is_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

/* "session", "session --help", "session nonsense": the commands of that family. */
static int print_family(int argc, char **argv)
{
    char prefix[64];
    bool family = false, help = argc > 1 && is_help(argv[1]);

    (void)snprintf(prefix, sizeof(prefix), "%s ", argv[0]);
    for (const struct mg_cli_command *cmd = mg_cli_commands; cmd->path; cmd++)
        family = family || strncmp(cmd->path, prefix, strlen(prefix)) == 0;
    if (!family) {
        (void)mg_cli_fail("there is no command %s; mango --help lists them", argv[0]);
        return MG_CLI_USAGE;
    }
    if (argc > 1 && !help)
        (void)mg_cli_fail("there is no command %s %s", argv[0], argv[1]);
    fprintf(help ? stdout : stderr, "Commands:\n");
    list_commands(help ? stdout : stderr, prefix);
    return help ? MG_CLI_OK : MG_CLI_USAGE;
}

/* text or json: as told, else text for a terminal. */
static bool choose_format(struct mg_cli *c)
{
    const char *format = mg_cli_get(c, "format");

    c->tty = isatty(STDOUT_FILENO) && !(getenv("TERM") && strcmp(getenv("TERM"), "dumb") == 0);
    c->text = format ? strcmp(format, "text") == 0 : c->tty || !(c->command->client || c->command->conf);
    if (!format || c->text || strcmp(format, "json") == 0)
        return true;
    (void)mg_cli_usage(c, "--format must be text or json; got %s", format);
    return false;
}

static int run(const struct mg_cli_command *cmd, int argc, char **argv)
{
    struct mg_cli c = {.command = cmd, .arena = mg_arena_new()};
    struct mg_err why = {0};
    int status = mg_cli_parse(&c, argc, argv, &why);

    if (status != MG_CLI_OK)
        (void)mg_cli_usage(&c, "%s", why.text);
    else
        status = choose_format(&c) ? cmd->run(&c) : MG_CLI_USAGE;
    mg_cli_close(&c);
    mg_arena_free(c.arena);
    if (fflush(stdout) == EOF && status == MG_CLI_OK)
        status = MG_CLI_ERROR;
    return status;
}

int main(int argc, char **argv)
{
    static char version[] = "version";
    const struct mg_cli_command *cmd;
    int words = 0;

    argc--;
    argv++;
    mg_log_setup(MG_ERROR, false); /* what plugins and the store say on the way is for a server's log */
    if (argc == 0)
        return print_overview(stderr, MG_CLI_USAGE);
    if (is_help(argv[0]))
        return print_overview(stdout, MG_CLI_OK);
    if (strcmp(argv[0], "--version") == 0)
        argv[0] = version;
    bool help = strcmp(argv[0], "help") == 0;
    if (help && argc == 1)
        return print_overview(stdout, MG_CLI_OK);
    argc -= help;
    argv += help;
    cmd = mg_cli_find(mg_cli_commands, argc, argv, &words);
    if (!cmd)
        return print_family(argc, argv);
    for (int i = words; i < argc && strcmp(argv[i], "--") != 0; i++)
        help = help || is_help(argv[i]);
    if (help) {
        mg_cli_help(stdout, cmd);
        return MG_CLI_OK;
    }
    return run(cmd, argc - words, argv + words);
}
