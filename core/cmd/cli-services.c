#include "cmd/cli-services.h"

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

void mg_cli_services(const struct mg_conf *conf, struct mg_plugin_services *ret)
{
    *ret = (struct mg_plugin_services){
        .state_dir = mg_conf_str(conf, MG_OPT_STATE_DIR),
        .setting = setting,
        .secret = secret,
        .ctx = (void *)conf,
    };
}
