/* vault: the keys that credentials are sealed with; on the database itself, with mangod running or not. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/cli-db.h"
#include "store/deploy-token.h"
#include "store/repository.h"
#include "store/vault.h"
#include "store/webhook.h"

/* A new file beside the old one, moved over it when it is whole. */
static int write_file(const char *path, struct mg_sv text)
{
    char *temp = NULL;
    int status = MG_CLI_ERROR;

    if (asprintf(&temp, "%s.new", path) < 0)
        return mg_cli_fail("no memory");
    mg_autofd int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        status = mg_cli_fail("%s: %s", temp, strerror(errno));
    else if (write(fd, text.ptr, text.len) != (ssize_t)text.len || write(fd, "\n", 1) != 1 || fsync(fd) < 0 ||
             rename(temp, path) < 0)
        status = mg_cli_fail("%s: %s", path, strerror(errno));
    else
        status = MG_CLI_OK;
    if (status != MG_CLI_OK && fd >= 0)
        (void)unlink(temp);
    free(temp);
    return status;
}

/* The id that was given, or today's date. */
static struct mg_sv new_id(struct mg_cli *c)
{
    char *text = mg_arena_alloc(c->arena, 32);
    time_t now = time(NULL);
    struct tm tm;

    if (c->n_args)
        return mg_sv_of(c->args[0]);
    (void)strftime(text, 32, "%Y-%m-%d", gmtime_r(&now, &tm));
    return mg_sv_of(text);
}

int mg_cli_vault_new_key(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    mg_auto(secret) struct mg_buf text = MG_BUF_INIT(MG_KEYRING_FILE_MAX);
    struct mg_keyring *k = NULL;
    struct mg_err err = {0};
    const char *path = conf ? mg_conf_strn(conf, MG_OPT_VAULT_KEYRING_FILE) : NULL;

    if (!conf)
        return MG_CLI_ERROR;
    if (path && access(path, F_OK) == 0 && !mg_cli_keyring(conf, &k))
        return MG_CLI_ERROR;
    struct mg_sv id = new_id(c);
    int status = MG_CLI_OK;
    if (mg_keyring_extend(k, id, &text, &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else if (!path)
        puts(text.ptr);
    else
        status = write_file(path, mg_buf_view(&text));
    mg_keyring_free(k);
    if (status == MG_CLI_OK && path)
        fprintf(stderr, "mango: key %.*s is the active one of %s; restart every mangod, then run mango vault rekey\n",
                MG_SV_ARG(id), path);
    return status;
}

int mg_cli_vault_rekey(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    struct mg_cli_db db = {0};
    struct mg_keyring *k = NULL;
    struct mg_err err = {0};
    int64_t n = 0;
    int status = MG_CLI_OK;

    if (!conf || !mg_cli_keyring(conf, &k))
        return MG_CLI_ERROR;
    if (!k)
        return mg_cli_fail(
            "MANGO_VAULT_KEYRING_FILE is not set: name the file that holds the old keys and the new one");
    if (!mg_cli_db_open(conf, false, &db)) {
        mg_keyring_free(k);
        return MG_CLI_ERROR;
    }
    if (mg_vault_rekey(db.pg, k, &n, &err) < 0 || mg_webhook_rekey(db.pg, k, &n, &err) < 0 ||
        mg_repositories_rekey(db.pg, k, &n, &err) < 0 || mg_deploys_rekey(db.pg, k, &n, &err) < 0)
        status = mg_cli_fail("%s (%lld done before; run it again when this is mended)", err.text, (long long)n);
    else if (c->text)
        printf("%lld credentials and signing keys are sealed anew with key %.*s; keys that are not active can be "
               "removed\n",
               (long long)n, MG_SV_ARG(mg_keyring_active(k)));
    else
        printf("{\"resealed\":%lld,\"active_key_id\":\"%.*s\"}\n", (long long)n, MG_SV_ARG(mg_keyring_active(k)));
    mg_keyring_free(k);
    mg_cli_db_close(&db);
    return status;
}
