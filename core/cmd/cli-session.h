/* Steps that several commands share. Each prints its own failure and returns an exit status. */
#ifndef MG_CMD_CLI_SESSION_H
#define MG_CMD_CLI_SESSION_H

#include "cmd/cli-client.h"

/* An environment of type cloud or self_hosted; an agent with the built-in tools (model NULL: the server's). */
int mg_cli_make_environment(struct mg_cli *c, const char *name, const char *type, const struct mg_json **ret);
int mg_cli_make_agent(struct mg_cli *c, const char *name, const char *model, const char *system,
                      const struct mg_json **ret);
int mg_cli_make_session(struct mg_cli *c, const char *agent, const char *environment, const char *title,
                        const struct mg_json **ret);
/* Sends a user.message, or user.interrupt when text is empty; the stored event's id in the run's arena. */
int mg_cli_send(struct mg_cli *c, const char *session, struct mg_sv text, struct mg_sv *ret_id);
/* TEXT of the command line; "-" reads standard input. False after a message. */
bool mg_cli_text_arg(struct mg_cli *c, const char *arg, struct mg_sv *ret);

/* Ctrl-C: counted instead of ending the program. */
void mg_cli_catch_interrupt(void);
unsigned mg_cli_interrupts(void);

#endif
