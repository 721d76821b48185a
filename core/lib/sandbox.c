#include "lib/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "egress/service.h"
#include "plugin/net.h"
#include "sandbox/manager.h"
#include "store/sandbox.h"

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

mg_rc mg_open_sandbox(struct mg_server *s, struct mg_err *err)
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
