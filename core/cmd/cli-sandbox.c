/* sandbox: what sessions have and what nobody has, on the database and the backends themselves, beside a server that may run or not. */
#include <stdlib.h>

#include "base/clock.h"
#include "cmd/cli-db.h"
#include "cmd/cli-services.h"
#include "json/write.h"
#include "plugin/registry.h"
#include "sandbox/manager.h"
#include "sandbox/orphans.h"
#include "store/deployment.h"
#include "store/sandbox.h"

enum { LINE_MAX_BYTES = 8192 };

/* Settings, database, backends. */
struct place {
    struct mg_conf *conf;
    struct mg_cli_db db;
    struct mg_plugin_services services;
    struct mg_registry *registry;
    struct mg_id deployment;
};

static void place_close(struct place *p)
{
    mg_registry_free(p->registry);
    mg_cli_services_done(&p->services);
    mg_cli_db_close(&p->db);
    mg_conf_free(p->conf);
}

static int place_open(struct mg_cli *c, struct place *p)
{
    struct mg_err err = {0};
    const char *dir;

    *p = (struct place){.conf = mg_cli_conf(c)};
    if (!p->conf)
        return MG_CLI_ERROR;
    if (!mg_cli_db_open(p->conf, false, &p->db)) {
        mg_conf_free(p->conf);
        return MG_CLI_ERROR;
    }
    if (mg_cli_services(p->conf, &p->services, &err) == MG_OK &&
        mg_deployment_id(p->db.pg, &p->deployment, &err) == MG_OK) {
        dir = mg_conf_strn(p->conf, MG_OPT_PLUGIN_DIR);
        p->registry = mg_registry_new(dir ? dir : MANGO_PLUGINDIR, &p->services);
        return MG_CLI_OK;
    }
    (void)mg_cli_fail("%s", err.text);
    place_close(p);
    return MG_CLI_ERROR;
}

static struct mg_plugin *backend(struct place *p, const char *name)
{
    mg_auto(buf) struct mg_buf config = MG_BUF_INIT(1024 * 1024);
    struct mg_plugin *ret = NULL;
    struct mg_err err = {0};

    if (mg_conf_plugin_json(p->conf, name, &config) == MG_OK &&
        mg_registry_get(p->registry, name, "sandbox backend", mg_buf_view(&config), &ret, &err) == MG_OK)
        return ret;
    (void)mg_cli_fail("%s", err.text[0] ? err.text : "the backend's settings cannot be read");
    return NULL;
}

/* ---- list ---- */

static const char LIST_TITLES[] =
    "SESSION                           STATE     BACKEND       CREATED                      ID";

static void print_row(const struct mg_cli *c, const void *row)
{
    const struct mg_sandbox_row *r = row;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(LINE_MAX_BYTES);
    char created[MG_TIME_LEN];

    mg_time_format(r->created_us, created);
    if (c->text) {
        mg_cli_clean(&out, r->external_id, false);
        printf("%-32.*s  %-8s  %-12.*s  %-27s  %s\n", MG_SV_ARG(r->session_id), r->state, MG_SV_ARG(r->provider),
               created, out.ptr ? out.ptr : "-");
        return;
    }
    struct mg_jw w = mg_jw_to(&out);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "session_id", r->session_id);
    mg_jw_kstr(&w, "workspace_id", r->workspace_id);
    mg_jw_kstrz(&w, "state", r->state);
    mg_jw_kstr(&w, "backend", r->provider);
    mg_jw_kstr(&w, "id", r->external_id);
    mg_jw_kstr(&w, "label", r->label);
    mg_jw_ktime(&w, "created_at", r->created_us);
    mg_jw_obj_end(&w);
    puts(out.ptr ? out.ptr : "");
}

int mg_cli_sandbox_list(struct mg_cli *c)
{
    struct mg_cli_db db = {0};
    struct mg_sandbox_row *rows = NULL;
    struct mg_err err = {0};
    int n = 0, status = MG_CLI_OK;

    if (!mg_cli_db_of(c, &db))
        return MG_CLI_ERROR;
    if (mg_sandbox_rows(db.pg, c->arena, MG_SV(""), &rows, &n, &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else
        mg_cli_rows(c, LIST_TITLES, rows, sizeof(*rows), n, print_row);
    mg_cli_db_close(&db);
    return status;
}

/* ---- orphans ---- */

struct orphan_run {
    struct mg_cli *c;
    struct place *p;
    int64_t grace_us; /* -1: destroy nothing */
    int n, status;
};

static void print_orphan(const struct orphan_run *r, const struct mg_plugin *p, const struct mg_orphan *o,
                         const char *what)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(LINE_MAX_BYTES);
    char created[MG_TIME_LEN] = "-";

    if (o->created_us)
        mg_time_format(o->created_us, created);
    if (r->c->text) {
        mg_cli_clean(&out, o->id, false);
        printf("%-12s  %-27s  %-9s  %s\n", p->name, created, what, out.ptr ? out.ptr : "");
        return;
    }
    struct mg_jw w = mg_jw_to(&out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "backend", p->name);
    mg_jw_kstr(&w, "id", o->id);
    mg_jw_kstr(&w, "label", o->label);
    if (o->created_us)
        mg_jw_ktime(&w, "created_at", o->created_us);
    mg_jw_kstrz(&w, "state", what);
    mg_jw_obj_end(&w);
    puts(out.ptr ? out.ptr : "");
}

static void one_orphan(struct orphan_run *r, struct mg_plugin *p, const struct mg_orphan *o)
{
    struct mg_err err = {0};
    bool old = r->grace_us == 0 || (o->created_us && mg_wall_us() - o->created_us >= r->grace_us);

    r->n++;
    if (r->grace_us < 0 || !old) {
        print_orphan(r, p, o, r->grace_us < 0 ? "orphan" : "young");
        return;
    }
    if (mg_orphan_destroy(p, r->p->db.pg, o, &err) == MG_OK) {
        print_orphan(r, p, o, "destroyed");
        return;
    }
    print_orphan(r, p, o, "stays");
    r->status = mg_cli_fail("%s", err.text);
}

static void orphans_of(struct orphan_run *r, const char *name)
{
    struct mg_plugin *p = backend(r->p, name);
    struct mg_orphan *o = NULL;
    struct mg_err err = {0};
    char owner[MG_LABEL_LEN];
    int n = 0;

    mg_sandbox_owner(mg_id_sv(&r->p->deployment), owner);
    if (!p || mg_orphans_find(p, r->p->db.pg, r->c->arena, mg_sv_of(owner), &o, &n, &err) < 0) {
        r->status = p ? mg_cli_fail("%s", err.text) : MG_CLI_ERROR;
        return;
    }
    for (int i = 0; i < n; i++)
        one_orphan(r, p, &o[i]);
}

int mg_cli_sandbox_orphans(struct mg_cli *c)
{
    struct place p;
    struct orphan_run r = {.c = c, .p = &p, .grace_us = -1};
    const char *only = mg_cli_get(c, "backend"), *standard;
    struct mg_sv *names = NULL;
    struct mg_err err = {0};
    int n = 0;

    if (mg_cli_has(c, "now") && !mg_cli_has(c, "destroy"))
        return mg_cli_usage(c, "--now goes with --destroy");
    if (place_open(c, &p) != MG_CLI_OK)
        return MG_CLI_ERROR;
    if (mg_cli_has(c, "destroy"))
        r.grace_us = mg_cli_has(c, "now") ? 0 : mg_conf_ms(p.conf, MG_OPT_SANDBOX_ORPHAN_GRACE) * 1000;
    standard = mg_conf_strn(p.conf, MG_OPT_SANDBOX);
    if (!only && mg_bound_providers(p.db.pg, c->arena, &names, &n, &err) < 0)
        r.status = mg_cli_fail("%s", err.text);
    if (only || standard)
        orphans_of(&r, only ? only : standard);
    for (int i = 0; i < n; i++) {
        if (!standard || !mg_sv_eqz(names[i], standard))
            orphans_of(&r, mg_arena_strdup(c->arena, names[i]));
    }
    if (c->text && !r.n && r.status == MG_CLI_OK)
        puts("(none)");
    place_close(&p);
    return r.status;
}

/* ---- destroy ---- */

int mg_cli_sandbox_destroy(struct mg_cli *c)
{
    struct place p;
    struct mg_err err = {0};
    struct mg_sv session = mg_sv_of(c->args[0]);
    int status = MG_CLI_OK;

    if (place_open(c, &p) != MG_CLI_OK)
        return MG_CLI_ERROR;
    struct mg_sandboxes *m =
        mg_sandboxes_new(&(struct mg_sandboxes_opts){.registry = p.registry, .deployment_id = mg_id_sv(&p.deployment)});
    if (mg_sandbox_end(m, p.db.pg, session, &err) < 0)
        status = mg_cli_fail("%s", err.text);
    else
        printf(c->text ? "destroyed the sandbox of %s; the session says that its workspace is lost\n"
                       : "{\"session_id\":\"%s\",\"destroyed\":true}\n",
               c->args[0]);
    mg_sandboxes_free(m);
    place_close(&p);
    return status;
}
