#include "lib/mango.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "lib/server.h"

#define DOOR __attribute__((visibility("default")))

/* Concurrency: the log sink is one for the process, so there is one server at a time. */
static atomic_flag in_use = ATOMIC_FLAG_INIT;

struct mango {
    struct mg_conf *conf;
    struct mg_server *server;
    char *migrations_dir, *plugin_dir;
    mango_log_fn *log;
    void *log_ctx;
};

static void log_line(void *ctx, enum mg_log_level level, struct mg_sv line)
{
    const struct mango *m = ctx;
    if (m->log)
        m->log(m->log_ctx, (int32_t)level, line.ptr, line.len);
}

/* "request_threads=4" as the command line's "--request-threads=4". */
static char *as_argument(const char *setting)
{
    size_t n = strlen(setting) + sizeof("--");
    char *arg = mg_xmalloc(n);
    snprintf(arg, n, "--%s", setting);
    for (char *p = arg + 2; *p && *p != '='; p++)
        if (*p == '_')
            *p = '-';
    return arg;
}

static mg_rc load_settings(const struct mango_options *o, struct mg_conf **ret, struct mg_err *err)
{
    size_t n = 0;
    while (o->settings && o->settings[n])
        n++;
    char **args = mg_xcalloc(n + 1, sizeof(*args));
    for (size_t i = 0; i < n; i++)
        args[i] = as_argument(o->settings[i]);
    const struct mg_conf_source src = {
        .args = (const char *const *)args,
        .env = o->use_environment ? (const char *const *)environ : NULL,
        .file = o->config_file,
    };
    mg_rc rc = mg_conf_load(&src, ret, err);
    for (size_t i = 0; i < n; i++)
        free(args[i]);
    free(args);
    return rc;
}

static mg_rc open_server(struct mango *m, const struct mango_options *o, struct mg_err *err)
{
    m->log = o->log;
    m->log_ctx = o->log_ctx;
    m->migrations_dir = mg_xstrdup(o->migrations_dir ? o->migrations_dir : MANGO_DATADIR "/migrations");
    m->plugin_dir = mg_xstrdup(o->plugin_dir ? o->plugin_dir : MANGO_PLUGINDIR);
    mg_log_set_sink(log_line, m);
    mg_rc rc = load_settings(o, &m->conf, err);
    if (rc < 0)
        return rc;
    const struct mg_server_opts so = {
        .conf = m->conf, .migrations_dir = m->migrations_dir, .plugin_dir = m->plugin_dir};
    return mg_server_open(&so, &m->server, err);
}

static void release(struct mango *m)
{
    mg_log_set_sink(NULL, NULL);
    mg_conf_free(m->conf);
    free(m->migrations_dir);
    free(m->plugin_dir);
    free(m);
    atomic_flag_clear(&in_use);
}

static int32_t refuse(mg_rc rc, const char *text, char *err, size_t err_size)
{
    if (err && err_size > 0)
        snprintf(err, err_size, "%s", text);
    return rc;
}

DOOR int32_t mango_open(const struct mango_options *options, struct mango **ret, char *err, size_t err_size)
{
    struct mg_err e = {0};
    if (!options || !ret || options->struct_size < sizeof(*options))
        return refuse(MG_EINVAL, "mango_open: options.struct_size must be sizeof(struct mango_options)", err, err_size);
    if (atomic_flag_test_and_set(&in_use))
        return refuse(MG_ECONFLICT, "mango_open: this process runs a server already; close it first", err, err_size);
    struct mango *m = mg_xcalloc(1, sizeof(*m));
    mg_rc rc = open_server(m, options, &e);
    if (rc < 0) {
        release(m);
        return refuse(rc, e.text, err, err_size);
    }
    *ret = m;
    return MG_OK;
}

DOOR int32_t mango_port(const struct mango *m)
{
    return mg_server_port(m->server);
}

DOOR void mango_close(struct mango *m)
{
    if (!m)
        return;
    mg_server_close(m->server);
    release(m);
}

DOOR const char *mango_version(void)
{
    return MANGO_VERSION;
}
