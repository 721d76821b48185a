/* The whole server in one process: opens the parts in their order, closes them in reverse. mangod and libmango are thin over this. */
#ifndef MG_LIB_SERVER_H
#define MG_LIB_SERVER_H

#include "base/err.h"
#include "conf/conf.h"

struct mg_server;

struct mg_server_opts {
    const struct mg_conf *conf; /* borrowed for the server's life */
    const char *migrations_dir;
    const char *plugin_dir; /* of the installation; MANGO_PLUGIN_DIR wins */
};

/* MG_ECONFIG: what the operator must mend; MG_ECONFLICT "state_in_use": another server has the state folder. */
mg_rc mg_server_open(const struct mg_server_opts *o, struct mg_server **ret, struct mg_err *err) MG_MUSTCHECK;
int mg_server_port(const struct mg_server *s);
/* Streams are told, running handlers end, turns are handed on. */
void mg_server_close(struct mg_server *s);

#endif
