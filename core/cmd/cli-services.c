#include "cmd/cli-services.h"

#include <stdlib.h>

#include "base/mem.h"
#include "egress/service.h"
#include "plugin/net.h"

struct services {
    const struct mg_conf *conf;
    struct mg_egress *egress;
};

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    const struct services *s = ctx;
    const char *v = mg_conf_plugin(s->conf, plugin, name);

    if (!v)
        return mg_plugin_setting_env(NULL, plugin, name, out);
    return mg_buf_str(out, v) == MG_OK;
}

static bool secret(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    const struct services *s = ctx;
    const char *v = mg_conf_plugin(s->conf, plugin, name);

    return v && mg_buf_str(out, v) == MG_OK;
}

static mango_status egress_open(void *ctx, const struct mango_call *call, const struct mango_egress_req *req,
                                struct mango_egress *ret)
{
    const struct services *s = ctx;

    return mg_egress_service_open(s->egress, mg_sv_n("", 0), call, req, ret);
}

static void egress_close(void *ctx, struct mango_sv label)
{
    const struct services *s = ctx;

    mg_egress_door_close(s->egress, mg_sv_n(label.ptr, label.len));
}

static mg_rc open_egress(struct services *s, struct mg_err *err)
{
    struct mg_egress_opts o = {.state_dir = mg_conf_str(s->conf, MG_OPT_STATE_DIR)};
    mg_rc rc = mg_egress_networks_parse(mg_sv_of(mg_conf_str(s->conf, MG_OPT_EGRESS_NETWORKS)), &o.networks, err);

    return rc < 0 ? mg_err_wrap(err, rc, "MANGO_EGRESS_NETWORKS") : mg_egress_open(&o, &s->egress, err);
}

mg_rc mg_cli_services(const struct mg_conf *conf, struct mg_plugin_services *ret, struct mg_err *err)
{
    const struct mg_plugin_net_opts net = {.ca_file = mg_conf_strn(conf, MG_OPT_PLUGIN_CA_FILE),
                                           .proxy = mg_conf_strn(conf, MG_OPT_PLUGIN_PROXY),
                                           .allow_insecure = mg_conf_bool(conf, MG_OPT_PLUGIN_INSECURE_TLS)};
    struct services *s = mg_xcalloc(1, sizeof(*s));

    s->conf = conf;
    *ret = (struct mg_plugin_services){
        .state_dir = mg_conf_str(conf, MG_OPT_STATE_DIR),
        .setting = setting,
        .secret = secret,
        .egress_open = egress_open,
        .egress_close = egress_close,
        .ctx = s,
    };
    mg_rc rc = open_egress(s, err);
    if (rc == MG_OK)
        rc = mg_plugin_net_open(&net, &ret->net, err);
    if (rc < 0)
        mg_cli_services_done(ret);
    return rc;
}

void mg_cli_services_done(struct mg_plugin_services *s)
{
    struct services *own = s->ctx;

    mg_plugin_net_close(s->net);
    mg_egress_close(own->egress);
    free(own);
    *s = (struct mg_plugin_services){0};
}
