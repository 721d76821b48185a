/* What plugins get from the settings, as mangod gives it. */
#ifndef MG_CMD_CLI_SERVICES_H
#define MG_CMD_CLI_SERVICES_H

#include "conf/conf.h"
#include "plugin/plugin.h"

/* conf is borrowed by *ret. */
void mg_cli_services(const struct mg_conf *conf, struct mg_plugin_services *ret);

#endif
