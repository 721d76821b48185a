#include "lib/internal.h"
#include "lib/launcher.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "conf/prices.h"
#include "egress/service.h"
#include "events/hub.h"
#include "events/notify.h"
#include "git/git.h"
#include "http/http.h"
#include "model/model.h"
#include "net/loop.h"
#include "object/object.h"
#include "plugin/net.h"
#include "run/engine.h"
#include "run/server-tools.h"
#include "run/wallet.h"
#include "sandbox/manager.h"
#include "service/webhook.h"
#include "store/api-key.h"
#include "store/deployment.h"
#include "store/embedded.h"
#include "store/migrate.h"
#include "store/vault.h"
#include "store/webhook.h"

/* ---- parts, in the order in which they open ---- */

static mg_rc open_database(struct mg_server *s, struct mg_err *err)
{
    s->conninfo = mg_conf_strn(s->conf, MG_OPT_DATABASE_URL);
    if (s->conninfo)
        return MG_OK;
    mg_rc rc = mg_state_dir_open(mg_conf_str(s->conf, MG_OPT_STATE_DIR), &s->state, err);
    if (rc < 0)
        return rc;
    s->have_state = true;
    rc = mg_embedded_start(&s->state, mg_conf_strn(s->conf, MG_OPT_PG_BINDIR), &s->embedded, err);
    if (rc < 0)
        return rc;
    s->conninfo = mg_embedded_conninfo(s->embedded);
    return MG_OK;
}

static const struct mg_stmt SQL_FORGET_NODES = {"nodes_forget", "DELETE FROM nodes"};

static mg_rc check_keys(struct mg_server *s, struct mg_pg *pg, struct mg_err *err)
{
    bool any = false;
    mg_rc rc = mg_api_key_bootstrap(pg, mg_sv_of(mg_conf_str(s->conf, MG_OPT_API_KEY)), err);
    if (rc == MG_OK)
        rc = mg_api_key_any(pg, &any, err);
    if (rc < 0 || any)
        return rc;
    return mg_err_set(err, MG_ECONFIG, "no API key exists: set MANGO_API_KEY, or make one with `mango api-key create`");
}

/* A credential that could not be opened would be found out in the middle of a session. */
static mg_rc check_keyring(struct mg_server *s, struct mg_pg *pg, struct mg_err *err)
{
    const char *path = mg_conf_strn(s->conf, MG_OPT_VAULT_KEYRING_FILE);
    mg_rc rc = path ? mg_keyring_load(path, &s->keyring, err) : MG_OK;
    return rc < 0 ? rc : mg_vault_check_keyring(pg, s->keyring, err);
}

static mg_rc prepare_database(struct mg_server *s, struct mg_err *err)
{
    struct mg_migrate_report rep = {0};
    struct mg_pg *pg = mg_pg_new(s->conninfo);
    mg_rc rc = mg_pg_check_pooler(s->conninfo, err);
    if (rc == MG_OK)
        rc = mg_migrate(pg, s->opts.migrations_dir, &rep, err);
    if (rc == MG_OK)
        rc = mg_deployment_id(pg, &s->deployment, err);
    if (rc == MG_OK)
        rc = check_keys(s, pg, err);
    if (rc == MG_OK)
        rc = check_keyring(s, pg, err);
    if (rc == MG_OK)
        rc = mg_webhook_settle(pg, err);
    /* The state folder's lock proves that no other node of a private database lives: turns of a killed one go on at once. */
    if (rc == MG_OK && s->embedded)
        rc = mg_pg_exec(pg, &SQL_FORGET_NODES, NULL, 0, NULL, err);
    mg_pg_free(pg);
    if (rc == MG_OK && rep.was != rep.now)
        mg_log(MG_INFO, "database migrated", MG_F_INT("from", rep.was), MG_F_INT("to", rep.now));
    return rc;
}

static mg_rc open_model(struct mg_server *s, struct mg_err *err)
{
    const struct mg_model_opts o = {
        .base_url = mg_conf_strn(s->conf, MG_OPT_MODEL_BASE_URL),
        .api_key = mg_conf_strn(s->conf, MG_OPT_MODEL_API_KEY),
        .bearer = strcmp(mg_conf_str(s->conf, MG_OPT_MODEL_AUTH), "bearer") == 0,
        .ca_file = mg_conf_strn(s->conf, MG_OPT_MODEL_CA_FILE),
        .proxy = mg_conf_strn(s->conf, MG_OPT_MODEL_PROXY),
        .idle_ms = (uint32_t)mg_conf_ms(s->conf, MG_OPT_MODEL_IDLE),
    };
    return mg_model_open(&o, &s->model, err);
}

/* Tools that are on by default go only to an endpoint that is known to run them: another one would refuse every request that declares them. */
static enum mg_web_mode web_mode(const struct mg_conf *c)
{
    const char *word = mg_conf_str(c, MG_OPT_MODEL_WEB_TOOLS), *url = mg_conf_strn(c, MG_OPT_MODEL_BASE_URL);
    if (strcmp(word, "auto") != 0)
        return strcmp(word, "on") == 0 ? MG_WEB_ALL : MG_WEB_NONE;
    if (!url)
        return MG_WEB_NONE; /* the offline model reads no web */
    return strncmp(url, "https://api.anthropic.com", strlen("https://api.anthropic.com")) == 0 ? MG_WEB_ALL
                                                                                               : MG_WEB_NAMED;
}

/* A loop of its own: what users name must not hold up models, and may not reach what only this host can. */
static mg_rc open_users(struct mg_server *s, struct mg_err *err)
{
    const struct mg_net_opts o = {
        .name = "mg-users",
        .ca_file = mg_conf_strn(s->conf, MG_OPT_MCP_CA_FILE),
        .public_only = !mg_conf_bool(s->conf, MG_OPT_MCP_ALLOW_PRIVATE),
    };
    mg_rc rc = mg_net_open(&o, &s->users, err);
    if (rc == MG_OK)
        s->wallet =
            mg_wallet_new(&(struct mg_wallet_opts){.keyring = s->keyring, .users = s->users, .conninfo = s->conninfo});
    return rc;
}

/* Without it sessions get no repositories, and are told so; nothing else needs it. */
static mg_rc open_git(struct mg_server *s, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf dir = MG_BUF_INIT(4096);
    (void)mg_buf_printf(&dir, "%s/repositories",
                        s->have_state ? s->state.path : mg_conf_str(s->conf, MG_OPT_STATE_DIR));
    const struct mg_git_opts o = {
        .dir = mg_buf_view(&dir).ptr,
        .ca_file = mg_conf_strn(s->conf, MG_OPT_REPOSITORY_CA_FILE),
        .public_only = !mg_conf_bool(s->conf, MG_OPT_REPOSITORY_ALLOW_PRIVATE),
    };
    if (mg_git_open(&o, &s->git, err) < 0) {
        mg_log(MG_WARN, "repositories of sessions cannot be fetched", MG_F_STR("error", err->text));
        *err = (struct mg_err){0};
    }
    return MG_OK;
}

/* The list that was named, else the installed one, which may be missing. */
static mg_rc open_prices(struct mg_server *s, struct mg_err *err)
{
    const char *path = mg_conf_strn(s->conf, MG_OPT_PRICES_FILE);
    if (!path && access(MANGO_DATADIR "/prices.conf", R_OK) == 0)
        path = MANGO_DATADIR "/prices.conf";
    return mg_prices_load(path, &s->prices, err);
}

/* A folder that cannot be used costs the files, not the server; one that an operator named must be usable. */
static mg_rc open_objects(struct mg_server *s, struct mg_err *err)
{
    const struct mg_conf *c = s->conf;
    const char *dir = mg_conf_strn(c, MG_OPT_OBJECTS_DIR);
    const struct mg_s3_opts s3 = {
        .endpoint = mg_conf_str(c, MG_OPT_S3_ENDPOINT),
        .region = mg_conf_str(c, MG_OPT_S3_REGION),
        .bucket = mg_conf_str(c, MG_OPT_S3_BUCKET),
        .prefix = mg_conf_str(c, MG_OPT_S3_PREFIX),
        .access_key = mg_conf_str(c, MG_OPT_S3_ACCESS_KEY),
        .secret_key = mg_conf_str(c, MG_OPT_S3_SECRET_KEY),
        .ca_file = mg_conf_strn(c, MG_OPT_S3_CA_FILE),
        .path_style = mg_conf_bool(c, MG_OPT_S3_PATH_STYLE),
    };
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(4096);
    if (dir)
        (void)mg_buf_str(&path, dir);
    else if (mkdir(mg_conf_str(s->conf, MG_OPT_STATE_DIR), 0700) == 0 || errno == EEXIST)
        (void)mg_buf_printf(&path, "%s/objects",
                            s->have_state ? s->state.path : mg_conf_str(s->conf, MG_OPT_STATE_DIR));
    const struct mg_objects_opts o = {
        .dir = mg_buf_view(&path).ptr,
        .s3 = s3.bucket[0] ? &s3 : NULL,
        .conninfo = s->conninfo,
        .lease_ms = (unsigned)mg_conf_ms(c, MG_OPT_UPLOAD_LEASE),
        .late_ms = (unsigned)mg_conf_ms(c, MG_OPT_UPLOAD_LATE),
    };
    mg_rc rc = mg_objects_open(&o, &s->objects, err);
    if (rc == MG_OK || dir || o.s3)
        return rc;
    mg_log(MG_WARN, "there is no object store: files cannot be uploaded", MG_F_STR("error", err->text));
    *err = (struct mg_err){0};
    return MG_OK;
}

static mg_rc open_engine(struct mg_server *s, struct mg_err *err)
{
    struct mg_engine *e = NULL;
    s->node = mg_id_new("node");
    s->hub = mg_hub_new(&(struct mg_hub_opts){.wakeup = mg_on_hub_mail, .load = mg_on_hub_load, .ctx = s});
    s->keys = mg_key_cache_new();
    s->notify = mg_notify_new(&(struct mg_notify_opts){.conninfo = s->conninfo,
                                                       .node = s->node,
                                                       .on_event = mg_on_event,
                                                       .on_key = mg_on_key,
                                                       .on_work = mg_on_work,
                                                       .on_webhook = mg_on_webhook,
                                                       .on_gap = mg_on_gap,
                                                       .ctx = s});
    const struct mg_engine_opts o = {
        .conninfo = s->conninfo,
        .hub = s->hub,
        .model = s->model,
        .sandboxes = s->sandboxes,
        .objects = s->objects,
        .notify = s->notify,
        .node = s->node,
        .threads = (unsigned)mg_conf_int(s->conf, MG_OPT_ENGINE_THREADS),
        .tool_threads = (unsigned)mg_conf_int(s->conf, MG_OPT_TOOL_THREADS),
        .node_ttl_ms = (unsigned)mg_conf_ms(s->conf, MG_OPT_NODE_TTL),
        .users = s->users,
        .wallet = s->wallet,
        .git = s->git,
        .keyring = s->keyring,
        .mcp_call_ms = (unsigned)mg_conf_ms(s->conf, MG_OPT_MCP_TIMEOUT),
        .tool_grace_ms = (unsigned)mg_conf_ms(s->conf, MG_OPT_TOOL_GRACE),
        .sandbox_wait_ms = mg_conf_ms(s->conf, MG_OPT_SANDBOX_WAIT),
        .model_id = mg_conf_strn(s->conf, MG_OPT_MODEL_ID),
        .max_tokens = (unsigned)mg_conf_int(s->conf, MG_OPT_MODEL_MAX_TOKENS),
        .model_window = mg_conf_int(s->conf, MG_OPT_MODEL_WINDOW),
        .web_tools = web_mode(s->conf),
        .prices = s->prices,
        .call_timeout_ms = mg_conf_ms(s->conf, MG_OPT_CALL_TIMEOUT),
        .work_queued = mg_on_work,
        .database_down = mg_on_database_down,
        .each_second = mg_on_second,
        .ctx = s,
    };
    mg_rc rc = mg_engine_start(&o, &e, err);
    if (rc == MG_OK)
        atomic_store(&s->engine, e);
    return rc;
}

static mg_rc open_webhooks(struct mg_server *s, struct mg_err *err)
{
    const struct mg_webhooks_opts o = {
        .conninfo = s->conninfo,
        .keyring = s->keyring,
        .organization = s->deployment,
        .ca_file = mg_conf_strn(s->conf, MG_OPT_WEBHOOK_CA_FILE),
        .allow_private = mg_conf_bool(s->conf, MG_OPT_WEBHOOK_ALLOW_PRIVATE),
    };
    struct mg_webhooks *w = NULL;
    if (!s->keyring)
        return MG_OK;
    mg_rc rc = mg_webhooks_start(&o, &w, err);
    atomic_store(&s->webhooks, w);
    mg_webhooks_changed(w); /* what was told of before it could be heard */
    return rc;
}

static mg_rc open_http(struct mg_server *s, struct mg_err *err)
{
    struct mg_http *h = NULL;
    s->app = (struct mg_app){
        .conf = s->conf,
        .engine = s->engine,
        .hub = s->hub,
        .model = s->model,
        .sandboxes = s->sandboxes,
        .registry = s->registry,
        .egress = s->egress,
        .objects = s->objects,
        .keys = s->keys,
        .keyring = s->keyring,
        .notify = s->notify,
        .webhooks = s->webhooks,
        .default_cloud = strcmp(mg_conf_str(s->conf, MG_OPT_DEFAULT_ENVIRONMENT), "cloud") == 0,
        .default_model = mg_conf_strn(s->conf, MG_OPT_MODEL_ID),
        .started_us = mg_wall_us(),
    };
    struct mg_http_opts o = {
        .listen = mg_conf_str(s->conf, MG_OPT_LISTEN),
        .tls_cert = mg_conf_strn(s->conf, MG_OPT_TLS_CERT),
        .tls_key = mg_conf_strn(s->conf, MG_OPT_TLS_KEY),
        .hub = s->hub,
        .conninfo = s->conninfo,
        .threads = (unsigned)mg_conf_int(s->conf, MG_OPT_REQUEST_THREADS),
        .origins = mg_conf_list(s->conf, MG_OPT_ORIGINS),
        .node = s->node.s,
        .limits.keepalive_ms = (unsigned)mg_conf_ms(s->conf, MG_OPT_KEEPALIVE),
        .app = &s->app,
    };
    mg_api_setup(&o);
    mg_rc rc = mg_http_start(&o, &h, err);
    if (rc < 0)
        return rc;
    s->app.http = h;
    pthread_rwlock_wrlock(&s->http_lock);
    s->http = h;
    pthread_rwlock_unlock(&s->http_lock);
    mg_http_wake(h); /* whatever was posted to the hub before the loop was known */
    return MG_OK;
}

static const char *plugin_dir(const struct mg_server *s)
{
    const char *dir = mg_conf_str(s->conf, MG_OPT_PLUGIN_DIR);
    return *dir ? dir : s->opts.plugin_dir;
}

static mg_rc open_launcher(struct mg_server *s, struct mg_err *err)
{
    struct mg_pg *pg = mg_pg_new(s->conninfo);
    mg_rc rc = mg_launcher_open(s->conf, plugin_dir(s), pg, mg_http_port(s->http), &s->launcher, err);
    mg_pg_free(pg);
    return rc;
}

/* First of all: its supervisors are clients of this server. */
static void close_launcher(struct mg_server *s)
{
    if (!s->launcher)
        return;
    struct mg_pg *pg = mg_pg_new(s->conninfo);
    mg_launcher_close(s->launcher, pg);
    mg_pg_free(pg);
}

mg_rc mg_server_open(const struct mg_server_opts *o, struct mg_server **ret, struct mg_err *err)
{
    static mg_rc (*const parts[])(struct mg_server *, struct mg_err *) = {
        open_database, prepare_database, mg_open_sandbox, open_model,    open_users, open_prices,
        open_objects,  open_git,         open_engine,     open_webhooks, open_http,  open_launcher};
    struct mg_server *s = mg_xcalloc(1, sizeof(*s));
    s->opts = *o;
    s->conf = o->conf;
    pthread_rwlock_init(&s->http_lock, NULL);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        mg_rc rc = parts[i](s, err);
        if (rc < 0) {
            mg_server_close(s);
            return rc;
        }
    }
    *ret = s;
    return MG_OK;
}

int mg_server_port(const struct mg_server *s)
{
    return mg_http_port(s->http);
}

/* The engine stops while the HTTP loop still runs (it owns the hub), and is freed when no handler can reach it any more. */
static void close_http_and_engine(struct mg_server *s)
{
    struct mg_http *h = s->http;
    struct mg_engine *e = atomic_exchange(&s->engine, NULL);
    if (h)
        mg_http_drain(h, (unsigned)mg_conf_ms(s->conf, MG_OPT_DRAIN_TIMEOUT));
    if (e)
        mg_engine_stop(e);
    pthread_rwlock_wrlock(&s->http_lock);
    s->http = NULL;
    pthread_rwlock_unlock(&s->http_lock);
    if (h)
        mg_http_stop(h);
    if (s->notify)
        mg_notify_free(s->notify);
    mg_engine_free(e);
}

static void close_database(struct mg_server *s)
{
    struct mg_err err = {0};
    if (s->embedded && mg_embedded_stop(s->embedded, &err) < 0)
        mg_log(MG_WARN, "the embedded database did not stop", MG_F_STR("error", err.text));
    mg_embedded_free(s->embedded);
    if (s->have_state)
        mg_state_dir_close(&s->state);
}

void mg_server_close(struct mg_server *s)
{
    close_launcher(s);
    close_http_and_engine(s);
    mg_api_done(&s->app);
    if (s->model)
        mg_model_close(s->model);
    mg_webhooks_stop(s->webhooks);
    mg_net_close(s->users);
    mg_wallet_free(s->wallet);
    mg_git_close(s->git);
    mg_keyring_free(s->keyring);
    mg_objects_close(s->objects);
    mg_prices_free(s->prices);
    if (s->sandboxes)
        mg_sandboxes_free(s->sandboxes);
    if (s->registry)
        mg_registry_free(s->registry);
    mg_plugin_net_close(s->plugin_net);
    mg_egress_close(s->egress);
    if (s->keys)
        mg_key_cache_free(s->keys);
    mg_hub_free(s->hub);
    close_database(s);
    pthread_rwlock_destroy(&s->http_lock);
    free(s);
}
