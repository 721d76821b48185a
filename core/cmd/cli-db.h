/* The server's settings and database, for commands that work beside the server. */
#ifndef MG_CMD_CLI_DB_H
#define MG_CMD_CLI_DB_H

#include "cmd/cli.h"
#include "conf/conf.h"
#include "store/embedded.h"
#include "store/keyring.h"
#include "store/pg.h"

struct mg_cli_db {
    struct mg_pg *pg;
    char *located; /* connection string of an embedded database that a server runs */
    struct mg_state_dir state;
    struct mg_embedded *embedded; /* started by us for this command alone */
    bool own;
};

/* Settings as mangod reads them: --OPTION=VALUE, environment, file. NULL after a message. */
struct mg_conf *mg_cli_conf(struct mg_cli *c);
const char *mg_cli_migrations_dir(void);
/* Opens the database of these settings. Where it is the private one and no server runs it, it is started for the time of this command; migrate: and
 * brought to this program's schema. False after a message. */
bool mg_cli_db_open(const struct mg_conf *conf, bool migrate, struct mg_cli_db *ret);
/* The same, of the settings of this command, and not migrated. */
bool mg_cli_db_of(struct mg_cli *c, struct mg_cli_db *ret);
void mg_cli_db_close(struct mg_cli_db *db);
/* Connection string of a database that runs already; malloc memory. */
mg_rc mg_cli_db_locate(const struct mg_conf *conf, char **ret, struct mg_err *err) MG_MUSTCHECK;
/* The keyring of these settings, for mg_keyring_free; *ret NULL: none is named. False after a message. */
bool mg_cli_keyring(const struct mg_conf *conf, struct mg_keyring **ret);

#endif
