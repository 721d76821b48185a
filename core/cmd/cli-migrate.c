#include "cmd/cli-db.h"
#include "store/migrate.h"

int mg_cli_migrate(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    struct mg_cli_db db = {0};
    struct mg_migrate_report rep = {0};
    struct mg_err err = {0};
    bool check = mg_cli_has(c, "check");

    if (!conf || !mg_cli_db_open(conf, false, &db))
        return MG_CLI_ERROR;
    mg_rc rc = check ? mg_migrate_check(db.pg, mg_cli_migrations_dir(), &rep, &err)
                     : mg_migrate(db.pg, mg_cli_migrations_dir(), &rep, &err);
    mg_cli_db_close(&db);
    if (rc < 0)
        return mg_cli_fail("%s", err.text);
    if (!c->text)
        printf("{\"was\":%d,\"now\":%d,\"newest\":%d}\n", rep.was, rep.now, rep.newest);
    else if (rep.now == rep.was)
        printf("schema version %d%s\n", rep.now, rep.now < rep.newest ? ": older than this program's" : ", up to date");
    else
        printf("schema version %d, from %d\n", rep.now, rep.was);
    return check && rep.now < rep.newest ? MG_CLI_ERROR : MG_CLI_OK;
}

int mg_cli_version(struct mg_cli *c)
{
    puts(c->text ? "mango " MANGO_VERSION : "{\"version\":\"" MANGO_VERSION "\"}");
    return MG_CLI_OK;
}
