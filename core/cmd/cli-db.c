#include "cmd/cli-db.h"

#include <stdlib.h>
#include <unistd.h>

#include "store/migrate.h"

struct mg_conf *mg_cli_conf(struct mg_cli *c)
{
    const char *file = mg_cli_get(c, "config"), *named = file ? file : secure_getenv("MANGO_CONFIG");
    bool is_named = named && *named;
    struct mg_conf *conf = NULL;
    struct mg_err err = {0};
    const struct mg_conf_source src = {
        .args = c->conf_args,
        .env = (const char *const *)environ,
        .file = is_named ? named : MANGO_SYSCONFDIR "/mango.conf",
        .file_may_be_missing = !is_named,
    };

    if (mg_conf_load(&src, &conf, &err) == MG_OK)
        return conf;
    (void)mg_cli_fail("%s", err.text);
    return NULL;
}

const char *mg_cli_migrations_dir(void)
{
    const char *dir = secure_getenv("MANGO_MIGRATIONS_DIR");

    return dir && *dir ? dir : MANGO_DATADIR "/migrations";
}

mg_rc mg_cli_db_locate(const struct mg_conf *conf, char **ret, struct mg_err *err)
{
    const char *url = mg_conf_strn(conf, MG_OPT_DATABASE_URL);

    if (url) {
        *ret = mg_xstrdup(url);
        return MG_OK;
    }
    return mg_embedded_locate(mg_conf_str(conf, MG_OPT_STATE_DIR), ret, err);
}

static mg_rc start_embedded(const struct mg_conf *conf, struct mg_cli_db *db, struct mg_err *err)
{
    mg_rc rc = mg_state_dir_open(mg_conf_str(conf, MG_OPT_STATE_DIR), &db->state, err);

    if (rc < 0)
        return rc;
    db->own = true;
    return mg_embedded_start(&db->state, mg_conf_strn(conf, MG_OPT_PG_BINDIR), &db->embedded, err);
}

bool mg_cli_db_open(const struct mg_conf *conf, bool migrate, struct mg_cli_db *ret)
{
    struct mg_migrate_report report;
    struct mg_err err = {0};
    mg_rc rc = mg_cli_db_locate(conf, &ret->located, &err);

    if (rc < 0) {
        rc = start_embedded(conf, ret, &err);
        migrate = true;
    }
    if (rc == MG_OK) {
        ret->pg = mg_pg_new(ret->located ? ret->located : mg_embedded_conninfo(ret->embedded));
        rc = mg_pg_connect(ret->pg, &err);
    }
    if (rc == MG_OK && migrate)
        rc = mg_migrate(ret->pg, mg_cli_migrations_dir(), &report, &err);
    if (rc == MG_OK)
        return true;
    const char *diag = ret->pg ? mg_pg_diag(ret->pg) : "";
    (void)mg_cli_fail("%s%s%s", err.text, *diag ? ": " : "", diag);
    mg_cli_db_close(ret);
    return false;
}

bool mg_cli_db_of(struct mg_cli *c, struct mg_cli_db *ret)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);

    return conf && mg_cli_db_open(conf, false, ret);
}

bool mg_cli_keyring(const struct mg_conf *conf, struct mg_keyring **ret)
{
    struct mg_err err = {0};
    const char *path = mg_conf_strn(conf, MG_OPT_VAULT_KEYRING_FILE);

    *ret = NULL;
    if (!path || mg_keyring_load(path, ret, &err) == MG_OK)
        return true;
    (void)mg_cli_fail("%s", err.text);
    return false;
}

void mg_cli_db_close(struct mg_cli_db *db)
{
    struct mg_err err;

    mg_pg_free(db->pg);
    free(db->located);
    if (db->embedded && mg_embedded_stop(db->embedded, &err) < 0)
        (void)mg_cli_fail("the private database did not stop: %s", err.text);
    mg_embedded_free(db->embedded);
    if (db->own)
        mg_state_dir_close(&db->state);
    *db = (struct mg_cli_db){.pg = NULL};
}
