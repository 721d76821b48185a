#ifndef MG_CMD_CLI_LOOP_H
#define MG_CMD_CLI_LOOP_H

#include <stdbool.h>

/* Whether libwebsockets can start the event loop that mangod needs. In cli-ws.c, the one file here that knows libwebsockets. */
bool mg_cli_loop_ok(void);

#endif
