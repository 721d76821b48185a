/* Shows events as they come: JSON lines, or text for people with a progress line on a terminal. */
#ifndef MG_CMD_CLI_SHOW_H
#define MG_CMD_CLI_SHOW_H

#include "cmd/cli.h"

struct mg_cli_show {
    const struct mg_cli *cli;
    FILE *out;
    bool colour;
    bool progress;     /* a progress line is wanted: out is a terminal */
    bool line_shown;   /* it stands there now */
    unsigned frame;    /* of the spinner */
    uint64_t since_ns; /* what runs has run so long */
    char doing[96];    /* "" when nothing runs */
    int64_t tokens_in, tokens_out;
};

void mg_cli_show_start(struct mg_cli_show *s, const struct mg_cli *c);
void mg_cli_show_event(struct mg_cli_show *s, struct mg_sv raw, const struct mg_json *event);
void mg_cli_show_tick(struct mg_cli_show *s); /* turns the progress line */
void mg_cli_show_note(struct mg_cli_show *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* on standard error */
void mg_cli_show_end(struct mg_cli_show *s);

/* What an idle, terminated or deleted event means for the exit status; -1: the turn goes on. */
int mg_cli_outcome(struct mg_arena *a, const struct mg_json *event);

#endif
