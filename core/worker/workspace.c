/* The executor of a worker's tools: core/tools over one folder of this machine (plugins/common/hostbox), which is driven as the plugins of the
 * server are, by the operations of the ABI, but linked in. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "common/hostbox/folder.h"
#include "crypto/hash.h"
#include "plugin/host.h"
#include "sandbox/direct.h"
#include "worker/tool-env.h"
#include "worker/tools.h"

#define RUNNER_VARIABLE "MANGO_WORKER_RUNNER"
#define RUNNER_NAME "mango-local-runner"

enum {
    OPEN_MS = 30000,
    ENV_MAX = 128,   /* variables that commands get */
    LABEL_BYTES = 16 /* of the private folder's name */
};

static const struct mango_plugin DESCRIPTOR = {
    MANGO_PLUGIN_PREFIX,    .kind = MANGO_KIND_SANDBOX,
    .name = "worker",       .caps = MANGO_CAP_PROC | MANGO_CAP_DURABLE_WORKSPACE | MANGO_CAP_CONCURRENT_EXEC,
    .sandbox = &folder_ops,
};

struct mg_workspace {
    struct mg_plugin plugin;
    struct mg_plugin_services services;
    char *base; /* private folder for temporary files; removed at the end */
    char label[2 * LABEL_BYTES + 1];
    struct mg_sandbox *box;
    struct mg_tools *tools;
};

/* ---- settings of the folder ---- */

static bool runner_path(struct mg_buf *out)
{
    static const char *const places[] = {"/" RUNNER_NAME, "/../libexec/mango/" RUNNER_NAME};
    char exe[PATH_MAX], path[PATH_MAX + 64];
    const char *named = secure_getenv(RUNNER_VARIABLE);

    if (named && *named)
        return mg_buf_str(out, named) == MG_OK;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0)
        return false;
    exe[n] = '\0';
    *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", exe, places[i]);
        if (access(path, X_OK) == 0)
            return mg_buf_str(out, path) == MG_OK;
    }
    return false;
}

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    const struct mg_workspace *w = ctx;

    (void)plugin;
    if (strcmp(name, "base_dir") == 0)
        return mg_buf_str(out, w->base) == MG_OK;
    return strcmp(name, "runner") == 0 && runner_path(out);
}

static bool no_secret(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    (void)ctx;
    (void)plugin;
    (void)name;
    (void)out;
    return false;
}

static mg_rc make_base(struct mg_workspace *w, struct mg_err *err)
{
    const char *tmp = secure_getenv("TMPDIR");
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/mango-worker.XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
    if (!mkdtemp(path))
        return mg_err_set(err, MG_EIO,
                          "cannot make a private folder %s: %s; set TMPDIR to a folder that can be written", path,
                          strerror(errno));
    w->base = mg_xstrdup(path);
    return MG_OK;
}

/* ---- opening ---- */

static bool listed(const char *const *list, const char *path)
{
    for (size_t i = 0; list && list[i]; i++)
        if (strcmp(list[i], path) == 0)
            return true;
    return false;
}

static mg_rc open_folder(struct mg_workspace *w, const struct mg_workspace_opts *o, struct mg_err *err)
{
    struct folder_root roots[MG_WORKSPACE_ROOTS_MAX + 1];
    struct folder_opts opts = {.path = o->root, .read_only = listed(o->read_only, o->root), .roots = roots};
    struct mango_call call = mg_plugin_call(mg_now_ns() + OPEN_MS * UINT64_C(1000000), NULL, err);

    for (size_t i = 0; o->allowed && o->allowed[i]; i++) {
        if (opts.n_roots == MG_WORKSPACE_ROOTS_MAX)
            return mg_err_set(err, MG_EINVAL, "at most %d folders are allowed beside the workspace",
                              MG_WORKSPACE_ROOTS_MAX);
        roots[opts.n_roots++] = (struct folder_root){o->allowed[i], listed(o->read_only, o->allowed[i])};
    }
    if (o->unrestricted)
        roots[opts.n_roots++] = (struct folder_root){"/", false};
    mango_status s = folder_open(w->plugin.host, &call, &opts, &w->plugin.ctx);
    return s < 0 ? mg_plugin_rc(&w->plugin, MG_OP_CREATE, s, err) : MG_OK;
}

/* Makes the box: its label names the private folder alone. */
static mg_rc create(struct mg_workspace *w, struct mg_err *err)
{
    struct mango_sv env[ENV_MAX];
    mg_auto(buf) struct mg_buf id = MG_BUF_INIT(1024), root = MG_BUF_INIT(PATH_MAX), identity = MG_BUF_INIT(1024);
    struct mg_tool_env vars;

    mg_tool_env_init(&vars);
    size_t n = 0;
    for (; n < ENV_MAX && vars.v[n]; n++)
        env[n] = (struct mango_sv){vars.v[n], strlen(vars.v[n])};
    struct mango_sandbox_spec spec = {
        .struct_size = sizeof(spec), .label = {w->label, strlen(w->label)}, .env = env, .n_env = n};
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)&id,
                                    .root = (struct mango_buf *)&root,
                                    .identity = (struct mango_buf *)&identity};
    struct mango_call call = mg_plugin_call(mg_now_ns() + OPEN_MS * UINT64_C(1000000), NULL, err);
    mango_status s = folder_ops.create(w->plugin.ctx, &call, &spec, &ref);
    mg_tool_env_done(&vars);
    if (s < 0)
        return mg_plugin_rc(&w->plugin, MG_OP_CREATE, s, err);
    mg_autofree char *name = mg_buf_steal(&id, NULL), *path = mg_buf_steal(&root, NULL);
    w->box = mg_sandbox_direct(&w->plugin, name, path);
    w->tools = mg_tools_new(mg_sandbox_ops(w->box), w->box);
    return MG_OK;
}

mg_rc mg_workspace_open(const struct mg_workspace_opts *o, struct mg_workspace **ret, struct mg_err *err)
{
    struct mg_workspace *w = mg_xcalloc(1, sizeof(*w));
    struct mg_err local = {0};
    uint8_t random[LABEL_BYTES];

    if (!err)
        err = &local;
    mg_rng_bytes(random, sizeof(random));
    mg_hex(random, sizeof(random), w->label);
    w->services = (struct mg_plugin_services){.setting = setting, .secret = no_secret, .ctx = w};
    w->plugin =
        (struct mg_plugin){.desc = &DESCRIPTOR, .sandbox = &folder_ops, .caps = DESCRIPTOR.caps, .name = "worker"};
    w->plugin.host = mg_host_new(w->plugin.name, &w->services);
    mg_rc rc = make_base(w, err);
    if (rc == MG_OK)
        rc = open_folder(w, o, err);
    if (rc == MG_OK)
        rc = create(w, err);
    if (rc < 0) {
        mg_workspace_close(w);
        return rc;
    }
    *ret = w;
    return MG_OK;
}

void mg_workspace_close(struct mg_workspace *w)
{
    struct mg_err err = {0};

    if (!w)
        return;
    mg_tools_free(w->tools);
    if (w->plugin.ctx) {
        struct mango_call call = mg_plugin_call(mg_now_ns() + MG_WORKSPACE_CLOSE_MS * UINT64_C(1000000), NULL, &err);
        (void)folder_ops.destroy(w->plugin.ctx, &call, (struct mango_sv){"", 0},
                                 (struct mango_sv){w->label, strlen(w->label)});
    }
    if (w->box)
        mg_sandbox_direct_free(w->box);
    folder_close(w->plugin.ctx);
    mg_host_free(w->plugin.host);
    if (w->base)
        (void)rmdir(w->base);
    free(w->base);
    free(w);
}

bool mg_workspace_has(struct mg_sv name)
{
    return mg_tool_known(name);
}

mg_rc mg_workspace_call(struct mg_workspace *w, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel,
                        struct mg_tool_result *ret, struct mg_err *err)
{
    return mg_tool_run(w->tools, name, input, cancel, ret, err);
}
