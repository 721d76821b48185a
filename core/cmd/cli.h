/* The command line `mango`: what its files share. Single-threaded but for the loop of core/net. */
#ifndef MG_CMD_CLI_H
#define MG_CMD_CLI_H

#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

/* Exit statuses; README and --help name them. */
enum {
    MG_CLI_OK = 0, /* also: the turn ended with end_turn */
    MG_CLI_ERROR = 1,
    MG_CLI_USAGE = 2,
    MG_CLI_ACTION = 3, /* the session waits for a confirmation or a tool result */
    MG_CLI_INTERRUPTED = 4,
    MG_CLI_UNFINISHED = 5, /* refusal, budget reached, retries exhausted */
};

enum {
    MG_CLI_OPTS_MAX = 20,               /* options of one command */
    MG_CLI_ARGS_MAX = 4,                /* plain arguments of one command */
    MG_CLI_BODY_MAX = 64 * 1024 * 1024, /* bytes of an answer */
};

struct mg_cli_opt {
    const char *name; /* without dashes; NULL ends a list */
    const char *arg;  /* what its value is called; NULL: it takes none */
    const char *help;
};

struct mg_cli;
struct mg_cli_command {
    const char *path;  /* "session list" */
    const char *args;  /* "ID [TEXT]" */
    const char *about; /* one line */
    const struct mg_cli_opt *opts;
    int min_args, max_args;
    bool client; /* talks to a server: has --url, --format, --key-file */
    bool conf;   /* reads the server's settings: has --config and takes --OPTION=VALUE of mangod */
    int (*run)(struct mg_cli *c);
    const char *examples; /* lines, or NULL */
};

enum mg_cli_format { MG_CLI_AUTO, MG_CLI_TEXT, MG_CLI_JSON };

struct mg_cli {
    const struct mg_cli_command *command;
    struct mg_arena *arena;             /* of the whole run */
    const char *value[MG_CLI_OPTS_MAX]; /* in the order of command->opts, then of the common ones; "" for a flag */
    const char *args[MG_CLI_ARGS_MAX];
    int n_args;
    const char **conf_args; /* --OPTION=VALUE for core/conf, NULL-terminated */
    int n_conf_args;
    struct mg_net *net; /* opened by the first call */
    char *api_key;
    bool text; /* for people; otherwise JSON lines */
    bool tty;  /* standard output is a terminal */
};

/* cli-args.c */
/* Reads argv behind the command's words. MG_CLI_OK, or MG_CLI_USAGE with why. */
int mg_cli_parse(struct mg_cli *c, int argc, char **argv, struct mg_err *why);
/* Value of an option by its name: NULL when absent, "" for a flag. */
const char *mg_cli_get(const struct mg_cli *c, const char *name);
bool mg_cli_has(const struct mg_cli *c, const char *name);
/* The value as a number from min to max, fallback when absent; false after a message. */
bool mg_cli_int(const struct mg_cli *c, const char *name, int64_t min, int64_t max, int64_t fallback, int64_t *ret);
void mg_cli_help(FILE *out, const struct mg_cli_command *cmd);
/* The command whose words argv starts with, and how many words that are; NULL: none. */
const struct mg_cli_command *mg_cli_find(const struct mg_cli_command *all, int argc, char **argv, int *ret_words);

/* cli-print.c */
/* "mango: text" on standard error; returns MG_CLI_ERROR. */
int mg_cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int mg_cli_usage(const struct mg_cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends JSON without the white space between its tokens: one line. */
void mg_cli_compact(struct mg_buf *out, struct mg_sv json);
/* The same, indented. */
void mg_cli_pretty(struct mg_buf *out, struct mg_sv json);
/* Prints a JSON value: indented for people, else as one line. */
void mg_cli_print(const struct mg_cli *c, struct mg_sv json);
/* What was made, and its secret, which is shown this once: as {"id":ID,"MEMBER":SECRET}; for people the secret alone, with "made KIND ID. ABOUT" on
 * standard error. */
void mg_cli_made(const struct mg_cli *c, const char *kind, const char *id, const char *member, const char *secret,
                 const char *about);
/* n rows of size bytes each, by print; for people with a line of titles above. */
void mg_cli_rows(const struct mg_cli *c, const char *titles, const void *rows, size_t size, int n,
                 void (*print)(const struct mg_cli *c, const void *row));
/* Text of others (titles, model output) without control characters that a terminal obeys; keeps newlines and tabs if lines. */
void mg_cli_clean(struct mg_buf *out, struct mg_sv text, bool lines);

/* cli-commands */
extern const struct mg_cli_command mg_cli_commands[]; /* cli-table.c; ends with path NULL */
int mg_cli_run(struct mg_cli *c);
int mg_cli_session_stream(struct mg_cli *c);
int mg_cli_session_list(struct mg_cli *c);
int mg_cli_session_show(struct mg_cli *c);
int mg_cli_session_send(struct mg_cli *c);
int mg_cli_session_interrupt(struct mg_cli *c);
int mg_cli_session_archive(struct mg_cli *c);
int mg_cli_session_unwedge(struct mg_cli *c); /* cli-waiting.c */
int mg_cli_session_delete(struct mg_cli *c);
int mg_cli_session_events(struct mg_cli *c);

int mg_cli_agent_list(struct mg_cli *c);
int mg_cli_agent_create(struct mg_cli *c);
int mg_cli_environment_list(struct mg_cli *c);
int mg_cli_environment_create(struct mg_cli *c);
int mg_cli_key_create(struct mg_cli *c);
int mg_cli_key_list(struct mg_cli *c);
int mg_cli_key_revoke(struct mg_cli *c);
int mg_cli_vault_new_key(struct mg_cli *c); /* cli-vault.c */
int mg_cli_vault_rekey(struct mg_cli *c);
int mg_cli_webhook_create(struct mg_cli *c); /* cli-webhook.c */
int mg_cli_webhook_list(struct mg_cli *c);
int mg_cli_webhook_disable(struct mg_cli *c);
int mg_cli_webhook_delete(struct mg_cli *c);
int mg_cli_plugin_list(struct mg_cli *c);
int mg_cli_plugin_info(struct mg_cli *c);
int mg_cli_plugin_probe(struct mg_cli *c); /* hidden: the child of list and info */
int mg_cli_conformance(struct mg_cli *c);
int mg_cli_conformance_child(struct mg_cli *c); /* hidden: another process of the suite */
int mg_cli_sandbox_list(struct mg_cli *c);
int mg_cli_sandbox_orphans(struct mg_cli *c);
int mg_cli_sandbox_destroy(struct mg_cli *c);
int mg_cli_doctor(struct mg_cli *c);
int mg_cli_migrate(struct mg_cli *c);
int mg_cli_version(struct mg_cli *c);

#endif
