/* plugin: what the plugin folder holds, and whether this server would take it. Files are opened in a child: a bad one hurts nobody. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cli-db.h"
#include "cmd/cli-services.h"
#include "plugin/probe.h"
#include "sandbox/conformance.h"
#include "store/node.h"

static const char *const PROBE[] = {"/proc/self/exe", "plugin", "probe", NULL};

static const char *plugin_dir(const struct mg_conf *conf)
{
    const char *dir = mg_conf_strn(conf, MG_OPT_PLUGIN_DIR);

    return dir ? dir : MANGO_PLUGINDIR;
}

/* What the nodes that run see of a backend: "up" (one state for all), or "node_01..=up node_02..=down"; "" when no server
 * runs on this database, or none has it loaded. */
static struct mg_sv states_of(struct mg_cli *c, const struct mg_node_row *nodes, int n, struct mg_sv name)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(16 * 1024);
    for (int i = 0; i < n; i++) {
        struct mg_sv rest = nodes[i].backends;
        while (nodes[i].live && rest.len) {
            struct mg_sv one = mg_sv_split(&rest, ' '), state = one, of = mg_sv_split(&state, '=');
            if (mg_sv_eq(of, name))
                (void)mg_buf_printf(&out, "%s%.*s=%.*s", out.len ? " " : "", MG_SV_ARG(nodes[i].id), MG_SV_ARG(state));
        }
    }
    return mg_arena_sv(c->arena, mg_buf_view(&out));
}

/* The live nodes of this deployment; none when the database cannot be reached. */
static int running_nodes(struct mg_cli *c, const struct mg_conf *conf, struct mg_node_row **ret)
{
    struct mg_err err = {0};
    char *located = NULL;
    int n = 0;
    if (mg_cli_db_locate(conf, &located, &err) < 0)
        return 0;
    struct mg_pg *pg = mg_pg_new(located);
    if (mg_pg_connect(pg, &err) < 0 || mg_node_list(pg, c->arena, ret, &n, &err) < 0)
        n = 0;
    mg_pg_free(pg);
    free(located);
    return n;
}

static void print_row(struct mg_cli *c, const struct mg_json *p, const char *chosen, const struct mg_node_row *nodes,
                      int n)
{
    struct mg_arena *a = c->arena;
    const struct mg_json *ok = mg_json_get(p, "ok");
    struct mg_sv path = mg_json_get_str(a, p, "path"), name = mg_json_get_str(a, p, "name");

    struct mg_sv states = ok && ok->boolean ? states_of(c, nodes, n, name) : MG_SV("");
    if (!c->text) {
        struct mg_sv inside = mg_json_inside(p->raw);
        mg_cli_print(c, mg_arena_printf(a, "{%.*s,\"nodes\":\"%.*s\"}", MG_SV_ARG(inside), MG_SV_ARG(states)));
        return;
    }
    if (ok && ok->boolean)
        printf("%c %-12.*s %-10.*s %-20.*s %-8s %.*s\n", mg_sv_eqz(name, chosen) ? '*' : ' ', MG_SV_ARG(name),
               MG_SV_ARG(mg_json_get_str(a, p, "version")), MG_SV_ARG(mg_json_get_raw(p, "kinds")),
               states.len == 0                               ? "-"
               : !memmem(states.ptr, states.len, "=down", 5) ? "up"
               : memmem(states.ptr, states.len, "=up", 3)    ? "partly"
                                                             : "down",
               MG_SV_ARG(mg_json_get_str(a, p, "summary")));
    else
        printf("! %.*s: %.*s\n", MG_SV_ARG(path), MG_SV_ARG(mg_json_get_str(a, p, "error")));
}

int mg_cli_plugin_list(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    struct mg_json *all = NULL;
    struct mg_err err = {0};

    if (!conf)
        return MG_CLI_ERROR;
    const char *dir = plugin_dir(conf);
    if (access(dir, R_OK | X_OK) < 0)
        return mg_cli_fail("the plugin folder %s cannot be read: install the plugins, or set MANGO_PLUGIN_DIR", dir);
    struct mg_sv found = mg_plugin_probe_all(c->arena, PROBE, dir);
    if (mg_json_parse(c->arena, found, &mg_json_raw_limits, &all, &err) < 0)
        return mg_cli_fail("%s", err.text);
    struct mg_node_row *nodes = NULL;
    int n = running_nodes(c, conf, &nodes);
    if (c->text)
        printf("%s (* is MANGO_SANDBOX)\n", dir);
    for (const struct mg_json *p = all->child; p; p = p->next)
        print_row(c, p, mg_conf_str(conf, MG_OPT_SANDBOX), nodes, n);
    if (c->text && !all->n)
        puts("(none)");
    return MG_CLI_OK;
}

/* A file, or the name of one in the plugin folder. */
static const char *file_of(struct mg_cli *c, const struct mg_conf *conf, const char *arg)
{
    if (strchr(arg, '/') || !mg_plugin_name_ok(mg_sv_of(arg)))
        return arg;
    return mg_arena_printf(c->arena, "%s/%s.so", plugin_dir(conf), arg).ptr;
}

int mg_cli_plugin_info(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    struct mg_json *report = NULL;
    struct mg_err err = {0};

    if (!conf)
        return MG_CLI_ERROR;
    const char *file = file_of(c, conf, c->args[0]);
    if (mg_json_parse(c->arena, mg_plugin_probe(c->arena, PROBE, file), &mg_json_raw_limits, &report, &err) < 0)
        return mg_cli_fail("%s", err.text);
    const struct mg_json *ok = mg_json_get(report, "ok");
    if (!ok || !ok->boolean)
        return mg_cli_fail("%.*s", MG_SV_ARG(mg_json_get_str(c->arena, report, "error")));
    mg_cli_print(c, report->raw);
    return MG_CLI_OK;
}

int mg_cli_plugin_probe(struct mg_cli *c)
{
    return mg_plugin_probe_main(c->args[0]);
}

/* ---- conformance ---- */

static void print_tap(void *ctx, const char *text)
{
    (void)ctx;
    puts(text);
    (void)fflush(stdout);
}

/* NAME, or a FILE anywhere: its folder and its name without .so. */
static void split_file(struct mg_cli *c, const char *arg, const char **dir, const char **name)
{
    const char *slash = strrchr(arg, '/');

    if (!slash) {
        *name = arg;
        return;
    }
    struct mg_sv base = mg_sv_of(slash + 1);
    if (mg_sv_ends(base, ".so"))
        base.len -= 3;
    *dir = mg_arena_printf(c->arena, "%.*s", slash == arg ? 1 : (int)(slash - arg), arg).ptr;
    *name = mg_arena_strdup(c->arena, base);
}

/* What both processes of the suite need, for mg_cli_services_done in the end. */
static bool conformance_opts(struct mg_cli *c, const struct mg_conf *conf, struct mg_plugin_services *services,
                             struct mg_buf *config, struct mg_conformance_opts *ret)
{
    struct mg_err err = {0};

    if (mg_cli_services(conf, services, &err) < 0) {
        (void)mg_cli_fail("%s", err.text);
        return false;
    }
    *ret = (struct mg_conformance_opts){.services = services, .dir = plugin_dir(conf)};
    split_file(c, c->args[0], &ret->dir, &ret->name);
    if (mg_conf_plugin_json(conf, ret->name, config) == MG_OK) {
        ret->config = mg_buf_view(config);
        return true;
    }
    mg_cli_services_done(services);
    (void)mg_cli_fail("the settings of %s cannot be read", ret->name);
    return false;
}

/* This program again, with the same settings. */
static const char *const *child_argv(struct mg_cli *c)
{
    const char **argv = mg_arena_alloc(c->arena, sizeof(*argv) * ((size_t)c->n_conf_args + 8));
    const char *file = mg_cli_get(c, "config");
    int n = 0;

    argv[n++] = "/proc/self/exe";
    argv[n++] = "plugin";
    argv[n++] = "conformance-child";
    if (file) {
        argv[n++] = "--config";
        argv[n++] = file;
    }
    for (int i = 0; i < c->n_conf_args; i++)
        argv[n++] = c->conf_args[i];
    argv[n++] = c->args[0];
    argv[n] = NULL;
    return argv;
}

/* Backends whose service may cost money. The sandboxes of the suite are asked for twice: by --live and by a variable. */
static const struct {
    const char *name, *variable;
} hosted[] = {{"cube", "MANGO_LIVE_CUBE"},
              {"daytona", "MANGO_LIVE_DAYTONA"},
              {"e2b", "MANGO_LIVE_E2B"},
              {"opensandbox", "MANGO_LIVE_OPENSANDBOX"}};

/* "1": the service of the settings; "local": a peer of one's own. */
static bool may_go_live(const char *name)
{
    for (size_t i = 0; i < sizeof(hosted) / sizeof(hosted[0]); i++) {
        const char *v =
            strcmp(name, hosted[i].name) == 0 ? getenv(hosted[i].variable) : "1"; /* NOLINT(concurrency-mt-unsafe) */
        if (v && (strcmp(v, "1") == 0 || strcmp(v, "local") == 0))
            continue;
        fprintf(stderr,
                "mango: --live makes and removes dozens of sandboxes at the service that %s is set up for; set %s=1 as "
                "well to say that this is meant\n",
                name, hosted[i].variable);
        return false;
    }
    return true;
}

int mg_cli_conformance(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    mg_auto(buf) struct mg_buf config = MG_BUF_INIT(1024 * 1024);
    struct mg_plugin_services services;
    struct mg_conformance_opts o;

    if (!conf || !conformance_opts(c, conf, &services, &config, &o))
        return MG_CLI_ERROR;
    o.only = mg_cli_get(c, "only");
    o.live = mg_cli_has(c, "live");
    if (o.live && !may_go_live(o.name)) {
        mg_cli_services_done(&services);
        return MG_CLI_ERROR;
    }
    o.child = child_argv(c);
    int failed = mg_cli_has(c, "launcher") ? mg_conformance_launcher(&o, print_tap, NULL)
                                           : mg_conformance_run(&o, print_tap, NULL);
    mg_cli_services_done(&services);
    return failed == 0 ? MG_CLI_OK : MG_CLI_ERROR;
}

int mg_cli_conformance_child(struct mg_cli *c)
{
    mg_auto(conf) struct mg_conf *conf = mg_cli_conf(c);
    mg_auto(buf) struct mg_buf config = MG_BUF_INIT(1024 * 1024);
    struct mg_plugin_services services;
    struct mg_conformance_opts o;

    if (!conf || !conformance_opts(c, conf, &services, &config, &o))
        return MG_CLI_ERROR;
    int status = mg_conformance_child(&o, c->args[1], c->args[2], c->args[3]);
    mg_cli_services_done(&services);
    return status == 0 ? MG_CLI_OK : MG_CLI_ERROR;
}
