/* Follows one session over WebSocket (mango.v1). Resumes by itself, from the last event seen, after every loss of the connection. */
#ifndef MG_CMD_CLI_WS_H
#define MG_CMD_CLI_WS_H

#include "cmd/cli-client.h"
#include "domain/id.h"

struct mg_cli_stream {
    struct mg_cli *cli;
    const char *session_id;
    char after[MG_ID_MAX]; /* "start", or the id of the last event seen; kept up to date */
    /* One event as it is stored. False: enough, the stream ends well. */
    bool (*on_event)(void *ctx, struct mg_sv event, const struct mg_json *parsed);
    /* The connection is up (lost NULL), or lost for this reason and tried again in wait_ms. */
    void (*on_link)(void *ctx, const char *lost, unsigned wait_ms);
    /* Several times a second. False: the caller wants to leave. */
    bool (*on_tick)(void *ctx);
    void *ctx;
};

/* MG_CLI_OK: on_event ended it, or the session was deleted. MG_CLI_INTERRUPTED: on_tick did. Else the reason was printed. Never tries again where
 * that cannot help: no such session, a refused key, a server that does not speak mango.v1. */
int mg_cli_stream(struct mg_cli_stream *s);
/* Puts the id of the session's newest event into s->after, so that "from now on" survives a loss of the connection. */
int mg_cli_stream_from_now(struct mg_cli_stream *s);
/* Time before the n-th try (from 0) without a success; random spread included. */
unsigned mg_cli_backoff_ms(unsigned n);

#endif
