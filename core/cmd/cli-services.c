#include "cmd/cli-services.h"

#include "plugin/net.h"

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    const char *v = mg_conf_plugin(ctx, plugin, name);

    if (!v)
        return mg_plugin_setting_env(NULL, plugin, name, out);
    return mg_buf_str(out, v) == MG_OK;
}

static bool secret(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    const char *v = mg_conf_plugin(ctx, plugin, name);

    return v && mg_buf_str(out, v) == MG_OK;
}

mg_rc mg_cli_services(const struct mg_conf *conf, struct mg_plugin_services *ret, struct mg_err *err)
{
    const struct mg_plugin_net_opts net = {.ca_file = mg_conf_strn(conf, MG_OPT_PLUGIN_CA_FILE),
                                           .proxy = mg_conf_strn(conf, MG_OPT_PLUGIN_PROXY),
                                           .allow_insecure = mg_conf_bool(conf, MG_OPT_PLUGIN_INSECURE_TLS)};

    *ret = (struct mg_plugin_services){
        .state_dir = mg_conf_str(conf, MG_OPT_STATE_DIR),
        .setting = setting,
        .secret = secret,
        .ctx = (void *)conf,
    };
    return mg_plugin_net_open(&net, &ret->net, err);
}

void mg_cli_services_done(struct mg_plugin_services *s)
{
    mg_plugin_net_close(s->net);
    s->net = NULL;
}
