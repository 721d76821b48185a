/* webhook: who is told of what; on the database itself, as the API has no endpoints for them. */
#include <string.h>

#include "base/clock.h"
#include "cmd/cli-db.h"
#include "json/write.h"
#include "service/webhook.h"
#include "store/webhook.h"

enum { LINE_MAX_BYTES = 16384 /* of one webhook: its URL and its types */ };

static const char TITLES[] = "ID                              STATE     PENDING  FAILED  URL";

static void print_types(struct mg_jw *w, struct mg_sv types)
{
    mg_jw_key(w, "event_types");
    mg_jw_arr(w);
    while (types.len)
        mg_jw_str(w, mg_sv_split(&types, ','));
    mg_jw_arr_end(w);
}

static int create(struct mg_cli *c, const struct mg_conf *conf, const struct mg_keyring *k)
{
    struct mg_cli_db db = {0};
    struct mg_err err = {0};
    struct mg_sv *types, url = mg_sv_of(c->args[0]);
    struct mg_id id;
    char secret[MG_WEBHOOK_SECRET_MAX];
    int n = 0, status = MG_CLI_OK;
    struct mg_sv in = mg_sv_of(mg_cli_has(c, "workspace") ? mg_cli_get(c, "workspace") : "wrkspc_default");
    struct mg_sv list = mg_sv_of(mg_cli_has(c, "types") ? mg_cli_get(c, "types") : "");

    if (mg_webhook_types_parse(c->arena, list, &types, &n, &err) < 0)
        return mg_cli_usage(c, "--types: %s", err.text);
    if (mg_webhook_url_check(url, mg_conf_bool(conf, MG_OPT_WEBHOOK_ALLOW_PRIVATE), &err) < 0)
        return mg_cli_usage(c, "%s", err.text);
    if (!mg_cli_db_open(conf, false, &db))
        return MG_CLI_ERROR;
    if (mg_webhook_create(c->arena, db.pg, k, in, url, types, n, &id, secret, &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else
        mg_cli_made(c, "webhook", id.s, "signing_secret", secret, "Its signing secret is shown this once.");
    mg_wipe(secret, sizeof(secret));
    mg_cli_db_close(&db);
    return status;
}

int mg_cli_webhook_create(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    struct mg_keyring *k = NULL;

    if (!conf || !mg_cli_keyring(conf, &k))
        return MG_CLI_ERROR;
    int status = k ? create(c, conf, k)
                   : mg_cli_fail("MANGO_VAULT_KEYRING_FILE is not set: signing keys are kept sealed; make a keyring "
                                 "with mango vault new-key, and start mangod with it");
    mg_keyring_free(k);
    return status;
}

static void print_one(const struct mg_cli *c, const void *row)
{
    const struct mg_webhook_row *x = row;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(LINE_MAX_BYTES);
    bool disabled = x->disabled_us != INT64_MIN;

    if (c->text) {
        printf("%-30.*s  %-8s  %7lld  %6lld  %.*s\n    %.*s\n", MG_SV_ARG(x->id), disabled ? "disabled" : "active",
               (long long)x->pending, (long long)x->failed, MG_SV_ARG(x->url), MG_SV_ARG(x->types));
        if (x->last_error.ptr) {
            mg_cli_clean(&out, x->last_error, false);
            printf("    last error: %s\n", out.ptr ? out.ptr : "");
        }
        return;
    }
    struct mg_jw w = mg_jw_to(&out);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "id", x->id);
    mg_jw_kstr(&w, "workspace_id", x->workspace);
    mg_jw_kstr(&w, "url", x->url);
    print_types(&w, x->types);
    mg_jw_ktime(&w, "created_at", x->created_us);
    mg_jw_ktime(&w, "disabled_at", x->disabled_us);
    mg_jw_kint(&w, "pending", x->pending);
    mg_jw_kint(&w, "failed", x->failed);
    mg_jw_kstr_or_null(&w, "last_error", x->last_error);
    mg_jw_obj_end(&w);
    puts(out.ptr ? out.ptr : "");
}

int mg_cli_webhook_list(struct mg_cli *c)
{
    struct mg_cli_db db = {0};
    struct mg_webhook_row *rows = NULL;
    struct mg_err err = {0};
    int n = 0, status = MG_CLI_OK;
    struct mg_sv of = mg_sv_of(mg_cli_has(c, "workspace") ? mg_cli_get(c, "workspace") : "");

    if (!mg_cli_db_of(c, &db))
        return MG_CLI_ERROR;
    if (mg_webhook_list(c->arena, db.pg, of, &rows, &n, &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else
        mg_cli_rows(c, TITLES, rows, sizeof(*rows), n, print_one);
    mg_cli_db_close(&db);
    return status;
}

static int end(struct mg_cli *c, mg_rc (*fn)(struct mg_pg *pg, struct mg_sv id, struct mg_err *err), const char *what)
{
    struct mg_cli_db db = {0};
    struct mg_err err = {0};
    int status = MG_CLI_OK;

    if (!mg_cli_db_of(c, &db))
        return MG_CLI_ERROR;
    if (fn(db.pg, mg_sv_of(c->args[0]), &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else if (c->text)
        printf("%s %s\n", what, c->args[0]);
    else
        printf("{\"id\":\"%s\",\"%s\":true}\n", c->args[0], what);
    mg_cli_db_close(&db);
    return status;
}

int mg_cli_webhook_disable(struct mg_cli *c)
{
    return end(c, mg_webhook_disable, "disabled");
}

int mg_cli_webhook_delete(struct mg_cli *c)
{
    return end(c, mg_webhook_delete, "deleted");
}
