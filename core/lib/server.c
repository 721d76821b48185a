#include "lib/server.h"
#include "lib/launcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/app.h"
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
#include "plugin/registry.h"
#include "run/engine.h"
#include "run/server-tools.h"
#include "run/wallet.h"
#include "sandbox/manager.h"
#include "service/deploy.h"
#include "service/webhook.h"
#include "service/work.h"
#include "store/api-key.h"
#include "store/deployment.h"
#include "store/embedded.h"
#include "store/event-log.h"
#include "store/migrate.h"
#include "store/node.h"
#include "store/sandbox.h"
#include "store/state-dir.h"
#include "store/vault.h"
#include "store/webhook.h"

struct mg_server {
    struct mg_server_opts opts;
    const struct mg_conf *conf;
    struct mg_app app;
    bool have_state;
    struct mg_state_dir state;
    struct mg_embedded *embedded;
    const char *conninfo;
    struct mg_id deployment, node;
    struct mg_plugin_net *plugin_net;
    struct mg_egress *egress;
    struct mg_plugin_services services;
    struct mg_registry *registry;
    struct mg_sandboxes *sandboxes;
    struct mg_model *model;
    struct mg_net *users; /* requests to hosts that users name */
    struct mg_keyring *keyring;
    struct mg_git *git;
    struct mg_wallet *wallet;
    struct mg_prices *prices;
    struct mg_objects *objects; /* NULL: there is none */
    struct mg_hub *hub;
    struct mg_notify *notify;
    struct mg_engine *_Atomic engine;
    struct mg_webhooks *_Atomic webhooks; /* NULL: there is no keyring, and so no webhook */
    struct mg_key_cache *keys;
    /* Other threads reach the HTTP server under this lock, and find it gone before it is: they take it to read. */
    pthread_rwlock_t http_lock;
    struct mg_http *http;
    struct mg_launcher *launcher; /* NULL: none is hosted */
};

/* ---- the hub's owner is the HTTP loop ---- */

static void hub_wakeup(void *ctx)
{
    struct mg_server *s = ctx;
    pthread_rwlock_rdlock(&s->http_lock);
    if (s->http)
        mg_http_wake(s->http);
    pthread_rwlock_unlock(&s->http_lock);
}

struct load_job {
    struct mg_server *server;
    struct mg_id session;
    int64_t after;
    int limit;
    size_t max_bytes;
    uint64_t token;
};

static void load_work(void *arg, struct mg_pg *pg)
{
    mg_autofree struct load_job *j = arg;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *r = NULL;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024 * 1024);
    struct mg_event_seen *rows = NULL;
    struct mg_err err = {0};
    int n = 0;
    mg_rc rc =
        mg_events_after(a, pg, mg_id_sv(&j->session), j->after, j->limit, (int64_t)j->max_bytes, &r, &rows, &n, &err);
    struct mg_event **events = mg_arena_alloc(a, sizeof(struct mg_event *) * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        mg_buf_reset(&b);
        (void)mg_event_render(&b, rows[i].body, rows[i].processed_us);
        events[i] = mg_event_new(rows[i].seq, rows[i].id, rows[i].type, rows[i].thread_id, mg_buf_view(&b));
    }
    mg_hub_loaded(j->server->hub, j->token, events, n, rc);
}

static void hub_load(void *ctx, const struct mg_id *session, int64_t after, int limit, size_t max_bytes, uint64_t token)
{
    struct mg_server *s = ctx;
    struct load_job *j = mg_xmalloc(sizeof(*j));
    *j = (struct load_job){
        .server = s, .session = *session, .after = after, .limit = limit, .max_bytes = max_bytes, .token = token};
    pthread_rwlock_rdlock(&s->http_lock);
    bool taken = s->http && mg_http_run(s->http, load_work, j) == MG_OK;
    pthread_rwlock_unlock(&s->http_lock);
    if (taken)
        return;
    free(j);
    mg_hub_loaded(s->hub, token, NULL, 0, MG_EUNAVAIL); /* the hub asks again at its next tick */
}

/* ---- news from other nodes ---- */

static void on_event(void *ctx, struct mg_sv session, int64_t seq)
{
    struct mg_server *s = ctx;
    struct mg_id id;
    if (!mg_id_from(session, &id))
        return;
    mg_hub_wake(s->hub, &id, seq);
    struct mg_engine *e = atomic_load(&s->engine);
    if (e)
        mg_engine_check(e, session);
}

static void on_key(void *ctx, struct mg_sv key_id)
{
    struct mg_server *s = ctx;
    mg_key_cache_forget(s->keys, key_id);
    mg_hub_revoke(s->hub, key_id);
    pthread_rwlock_rdlock(&s->http_lock);
    if (s->http)
        mg_http_revoke(s->http, key_id);
    pthread_rwlock_unlock(&s->http_lock);
}

static void on_work(void *ctx, struct mg_sv environment)
{
    struct mg_server *s = ctx;
    pthread_rwlock_rdlock(&s->http_lock);
    if (s->http) {
        mg_pollers_news(s->app.pollers, environment); /* before the woken ones look */
        mg_http_unpark(s->http, environment, false);
    }
    pthread_rwlock_unlock(&s->http_lock);
}

static void on_second(void *ctx, struct mg_engine *e, struct mg_pg *pg)
{
    const struct mg_server *s = ctx;
    mg_deploys_scan(e, s->sandboxes, pg);
}

static void on_webhook(void *ctx)
{
    struct mg_server *s = ctx;
    mg_webhooks_changed(atomic_load(&s->webhooks));
}

static void on_gap(void *ctx)
{
    struct mg_server *s = ctx;
    struct mg_engine *e = atomic_load(&s->engine);
    if (e)
        mg_engine_repair(e);
    on_webhook(s);
}

static void on_database_down(void *ctx)
{
    struct mg_server *s = ctx;
    struct mg_err err = {0};
    if (s->embedded && mg_embedded_revive(s->embedded, &err) < 0)
        mg_log(MG_ERROR, "the embedded database does not start again", MG_F_STR("error", err.text));
}

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

static bool plugin_setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    const struct mg_server *s = ctx;
    const char *v = mg_conf_plugin(s->conf, plugin, name);
    if (!v)
        return mg_plugin_setting_env(NULL, plugin, name, out);
    (void)mg_buf_str(out, v);
    return true;
}

static bool plugin_secret(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    const struct mg_server *s = ctx;
    const char *v = mg_conf_plugin(s->conf, plugin, name);
    return v && mg_buf_str(out, v) == MG_OK;
}

static mango_status plugin_egress_open(void *ctx, const struct mango_call *call, const struct mango_egress_req *req,
                                       struct mango_egress *ret)
{
    const struct mg_server *s = ctx;
    struct mg_sv label = {req->label.ptr, req->label.len};
    struct mg_id session;
    bool known = s->sandboxes && mg_sandbox_session_of(s->sandboxes, label, &session);
    return mg_egress_service_open(s->egress, known ? mg_id_sv(&session) : mg_sv_n("", 0), call, req, ret);
}

static void plugin_egress_close(void *ctx, struct mango_sv label)
{
    const struct mg_server *s = ctx;
    mg_egress_door_close(s->egress, mg_sv_n(label.ptr, label.len));
}

static mg_rc open_egress(struct mg_server *s, struct mg_err *err)
{
    struct mg_egress_opts o = {.state_dir = mg_conf_str(s->conf, MG_OPT_STATE_DIR)};
    mg_rc rc = mg_egress_networks_parse(mg_sv_of(mg_conf_str(s->conf, MG_OPT_EGRESS_NETWORKS)), &o.networks, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "MANGO_EGRESS_NETWORKS");
    return mg_egress_open(&o, &s->egress, err);
}

static mg_rc open_plugins(struct mg_server *s, struct mg_err *err)
{
    const char *dir = mg_conf_strn(s->conf, MG_OPT_PLUGIN_DIR);
    mg_rc rc = open_egress(s, err);
    if (rc < 0)
        return rc;
    rc = mg_plugin_net_open(
        &(struct mg_plugin_net_opts){.ca_file = mg_conf_strn(s->conf, MG_OPT_PLUGIN_CA_FILE),
                                     .proxy = mg_conf_strn(s->conf, MG_OPT_PLUGIN_PROXY),
                                     .allow_insecure = mg_conf_bool(s->conf, MG_OPT_PLUGIN_INSECURE_TLS)},
        &s->plugin_net, err);
    if (rc < 0)
        return rc;
    s->services = (struct mg_plugin_services){
        .net = s->plugin_net,
        .state_dir = mg_conf_str(s->conf, MG_OPT_STATE_DIR),
        .setting = plugin_setting,
        .secret = plugin_secret,
        .egress_open = plugin_egress_open,
        .egress_close = plugin_egress_close,
        .ctx = s,
    };
    s->registry = mg_registry_new(dir ? dir : s->opts.plugin_dir, &s->services);
    return MG_OK;
}

static mg_rc load_backend(struct mg_server *s, const char *name, const char *variable, struct mg_plugin **ret,
                          struct mg_err *err)
{
    mg_auto(buf) struct mg_buf config = MG_BUF_INIT(1024 * 1024);
    mg_rc rc = mg_conf_plugin_json(s->conf, name, &config);
    return rc < 0 ? rc : mg_registry_get(s->registry, name, variable, mg_buf_view(&config), ret, err);
}

/* Backends that stored sandboxes name besides the default one: for attach and teardown. One that does not load is no reason
 * to stop: its sessions are left to nodes that have it. */
static void load_bound_backends(struct mg_server *s)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_pg *pg = mg_pg_new(s->conninfo);
    struct mg_plugin *p;
    struct mg_sv *names;
    struct mg_err err = {0};
    int n = 0;
    if (mg_bound_providers(pg, a, &names, &n, &err) < 0)
        mg_log(MG_WARN, "the backends of stored sandboxes are not known", MG_F_STR("error", err.text));
    for (int i = 0; i < n; i++) {
        if (load_backend(s, mg_arena_strdup(a, names[i]), "backend of stored sandboxes", &p, &err) < 0)
            mg_log(MG_WARN, "a backend of stored sandboxes is not loaded; its sessions wait for a node that has it",
                   MG_F_STR("error", err.text));
    }
    mg_pg_free(pg);
}

static mg_rc open_sandbox(struct mg_server *s, struct mg_err *err)
{
    const char *name = mg_conf_strn(s->conf, MG_OPT_SANDBOX);
    bool careful =
        mg_conf_strn(s->conf, MG_OPT_MODEL_BASE_URL) && !mg_conf_bool(s->conf, MG_OPT_ALLOW_UNSAFE_LOCAL_SANDBOX);
    struct mg_plugin *backend = NULL;
    mg_rc rc = open_plugins(s, err);
    if (rc == MG_OK && name)
        rc = load_backend(s, name, "MANGO_SANDBOX", &backend, err);
    if (rc < 0)
        return rc;
    if (backend && careful && !mg_plugin_isolated(backend))
        return mg_err_set(
            err, MG_ECONFIG,
            "MANGO_SANDBOX=%s is no isolation boundary, and MANGO_MODEL_BASE_URL names a model on the network, whose "
            "commands would run on "
            "this host; choose an isolating sandbox, or set MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX=1 if you accept that",
            name);
    load_bound_backends(s);
    s->sandboxes = mg_sandboxes_new(
        &(struct mg_sandboxes_opts){.registry = s->registry,
                                    .backend = backend,
                                    .isolated_only = careful,
                                    .deployment_id = mg_id_sv(&s->deployment),
                                    .orphan_grace_ms = (uint64_t)mg_conf_ms(s->conf, MG_OPT_SANDBOX_ORPHAN_GRACE)});
    return MG_OK;
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
    s->hub = mg_hub_new(&(struct mg_hub_opts){.wakeup = hub_wakeup, .load = hub_load, .ctx = s});
    s->keys = mg_key_cache_new();
    s->notify = mg_notify_new(&(struct mg_notify_opts){.conninfo = s->conninfo,
                                                       .node = s->node,
                                                       .on_event = on_event,
                                                       .on_key = on_key,
                                                       .on_work = on_work,
                                                       .on_webhook = on_webhook,
                                                       .on_gap = on_gap,
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
        .work_queued = on_work,
        .database_down = on_database_down,
        .each_second = on_second,
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
        open_database, prepare_database, open_sandbox, open_model,    open_users, open_prices,
        open_objects,  open_git,         open_engine,  open_webhooks, open_http,  open_launcher};
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
