/* What plugins get from the settings, as mangod gives it. */
#ifndef MG_CMD_CLI_SERVICES_H
#define MG_CMD_CLI_SERVICES_H

#include "conf/conf.h"
#include "plugin/plugin.h"

/* conf is borrowed by *ret. Ends with mg_cli_services_done, when no plugin is loaded any more. */
mg_rc mg_cli_services(const struct mg_conf *conf, struct mg_plugin_services *ret, struct mg_err *err) MG_MUSTCHECK;
void mg_cli_services_done(struct mg_plugin_services *s);

#endif
