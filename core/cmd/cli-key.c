/* api-key: on the database itself, so that the first key needs no key. */
#include <string.h>

#include "base/clock.h"
#include "cmd/cli-db.h"
#include "json/write.h"
#include "store/api-key.h"

enum { LINE_MAX_BYTES = 8192 };

static const char WORKSPACE[] = "wrkspc_default";
static const char KEY_TITLES[] =
    "ID                                KEY      STATE     CREATED                      ENVIRONMENT   NAME";

static struct mg_sv workspace(const struct mg_cli *c)
{
    return mg_sv_of(mg_cli_has(c, "workspace") ? mg_cli_get(c, "workspace") : WORKSPACE);
}

int mg_cli_key_create(struct mg_cli *c)
{
    struct mg_cli_db db = {0};
    struct mg_id id;
    struct mg_err err = {0};
    char key[MG_API_KEY_TEXT];
    struct mg_sv environment = mg_sv_of(mg_cli_has(c, "environment") ? mg_cli_get(c, "environment") : "");
    int status = MG_CLI_OK;

    if (!mg_cli_db_of(c, &db))
        return MG_CLI_ERROR;
    if (mg_api_key_issue(db.pg, workspace(c), environment, mg_sv_of(c->n_args ? c->args[0] : "key of the command line"),
                         &id, key, &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else
        mg_cli_made(c, "key", id.s, "key", key, "It is shown this once: only its digest is stored.");
    mg_wipe(key, sizeof(key));
    mg_cli_db_close(&db);
    return status;
}

static void print_key(const struct mg_cli *c, const void *row)
{
    const struct mg_api_key *k = row;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(LINE_MAX_BYTES);
    char created[MG_TIME_LEN];
    bool revoked = k->revoked_us != INT64_MIN;

    mg_time_format(k->created_us, created);
    if (c->text) {
        mg_cli_clean(&out, k->name, false);
        printf("%-32.*s  ...%-4.*s  %-8s  %-27s  %-12.*s  %s\n", MG_SV_ARG(k->id), MG_SV_ARG(k->hint),
               revoked ? "revoked" : "active", created, (int)(k->environment.len ? k->environment.len : 1),
               k->environment.len ? k->environment.ptr : "-", out.ptr ? out.ptr : "");
        return;
    }
    struct mg_jw w = mg_jw_to(&out);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "id", k->id);
    mg_jw_kstr(&w, "workspace_id", k->workspace);
    if (k->environment.len)
        mg_jw_kstr(&w, "environment_id", k->environment);
    mg_jw_kstr(&w, "name", k->name);
    mg_jw_kstr(&w, "hint", k->hint);
    mg_jw_kbool(&w, "bootstrap", k->bootstrap);
    mg_jw_ktime(&w, "created_at", k->created_us);
    mg_jw_ktime(&w, "revoked_at", k->revoked_us);
    mg_jw_obj_end(&w);
    puts(out.ptr ? out.ptr : "");
}

int mg_cli_key_list(struct mg_cli *c)
{
    struct mg_cli_db db = {0};
    struct mg_api_key *keys = NULL;
    struct mg_err err = {0};
    int n = 0, status = MG_CLI_OK;
    struct mg_sv of = mg_sv_of(mg_cli_has(c, "workspace") ? mg_cli_get(c, "workspace") : "");

    if (!mg_cli_db_of(c, &db))
        return MG_CLI_ERROR;
    if (mg_api_key_list(db.pg, c->arena, of, &keys, &n, &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else
        mg_cli_rows(c, KEY_TITLES, keys, sizeof(*keys), n, print_key);
    mg_cli_db_close(&db);
    return status;
}

int mg_cli_key_revoke(struct mg_cli *c)
{
    struct mg_cli_db db = {0};
    struct mg_err err = {0};
    int status = MG_CLI_OK;

    if (!mg_cli_db_of(c, &db))
        return MG_CLI_ERROR;
    if (mg_api_key_revoke(db.pg, MG_SV(""), mg_sv_of(c->args[0]), &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else
        printf(c->text ? "revoked %s\n" : "{\"id\":\"%s\",\"revoked\":true}\n", c->args[0]);
    mg_cli_db_close(&db);
    return status;
}
