#include "support/sandbox-rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "unit/unit.h"

enum { RACERS_MAX = 8 };

static const uint64_t RACE_NS = UINT64_C(20000000000); /* a race may take so long on a loaded machine */

char rig_plugins[PLUGIN_PATH_MAX], rig_base[PLUGIN_PATH_MAX + 8];
const char rig_config[] =
    "{\"type\":\"cloud\",\"networking\":{\"type\":\"unrestricted\"},\"packages\":{\"type\":\"packages\",\"apt\":[]}}";

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    (void)ctx;
    (void)plugin;
    return strcmp(name, "base_dir") == 0 && mg_buf_str(out, rig_base) == MG_OK;
}

static const struct mg_plugin_services services = {.setting = setting};

struct mg_id rig_session(struct fixture *f)
{
    struct mg_id id = mg_id_new("sesn");
    char sql[2048];
    snprintf(
        sql, sizeof(sql),
        "INSERT INTO environments (id, workspace_id, name, config_type, config) VALUES ('env_1', 'wrkspc_default', "
        "'e', 'cloud', '{}')"
        " ON CONFLICT DO NOTHING;"
        "INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type, env_config)"
        " VALUES ('%s', 'wrkspc_default', 'agent_1', 1, '{}', 'env_1', 'cloud', '{}');"
        "INSERT INTO session_state (session_id) VALUES ('%s')",
        id.s, id.s);
    pgtest_run(f->db, sql);
    return id;
}

void rig_open(struct fixture *f)
{
    struct mg_err err = {0};
    f->registry = mg_registry_new(rig_plugins, &services);
    if (mg_registry_get(f->registry, f->name ? f->name : "local", "MANGO_SANDBOX", mg_sv_n(NULL, 0), &f->backend,
                        &err) < 0)
        fail_msg("%s", err.text);
    f->m = mg_sandboxes_new(&(struct mg_sandboxes_opts){.registry = f->registry,
                                                        .backend = f->backend,
                                                        .deployment_id = MG_SV("dep1"),
                                                        .orphan_grace_ms = f->orphan_grace_ms});
}

void rig_close(struct fixture *f)
{
    mg_sandboxes_free(f->m);
    mg_registry_free(f->registry);
}

void rig_restart(struct fixture *f)
{
    rig_close(f);
    rig_open(f);
}

int rig_group_up(void **state)
{
    (void)state;
    plugin_dir_make(rig_plugins);
    snprintf(rig_base, sizeof(rig_base), "%s/base", rig_plugins);
    return plugin_build_local(rig_plugins) ? 0 : -1;
}

int rig_group_down(void **state)
{
    (void)state;
    plugin_dir_remove(rig_plugins);
    return 0;
}

int rig_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->db = pgtest_new();
    f->pg = mg_pg_new(pgtest_conninfo(f->db));
    rig_open(f);
    f->session = rig_session(f);
    *state = f;
    return 0;
}

int rig_down(void **state)
{
    struct fixture *f = *state;
    rig_close(f);
    mg_pg_free(f->pg);
    pgtest_free(f->db);
    free(f);
    return plugin_sh("rm -rf '%s'", rig_base) ? 0 : -1;
}

mg_rc rig_try_acquire(struct fixture *f, struct mg_sandbox **ret, struct mg_err *err)
{
    return mg_sandbox_acquire(f->m, f->pg, mg_id_sv(&f->session), mg_sv_of(rig_config), NULL, ret, err);
}

struct mg_sandbox *rig_acquire(struct fixture *f)
{
    struct mg_sandbox *s = NULL;
    struct mg_err err = {0};
    if (rig_try_acquire(f, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void *race(void *arg)
{
    struct rig_racer *r = arg;
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(r->f->db));
    for (uint64_t end = mg_now_ns() + RACE_NS; !r->got && mg_now_ns() < end;) {
        if (mg_sandbox_acquire(r->m, pg, mg_id_sv(&r->f->session), mg_sv_of(rig_config), NULL, &r->got, &r->err) !=
            MG_EUNAVAIL) /* another attaches at this moment */
            break;
    }
    mg_pg_free(pg);
    return NULL;
}

void rig_race(struct rig_racer *r, int n)
{
    pthread_t t[RACERS_MAX];
    assert_true(n <= RACERS_MAX);
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
    for (int i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < n; i++) {
        if (!r[i].got)
            fail_msg("%s", r[i].err.text);
    }
}

bool rig_folders_are(int n)
{
    return plugin_sh("test $(ls -d '%s'/session-* 2>/dev/null | wc -l) = %d", rig_base, n);
}

void rig_put(struct mg_sandbox *s, const char *path, const char *text)
{
    struct mg_err err = {0};
    if (mg_sandbox_ops(s)->write(s, path, mg_sv_of(text), &err) < 0)
        fail_msg("%s", err.text);
}

void rig_holds(struct mg_sandbox *s, const char *path, const char *text)
{
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4096);
    bool eof;
    if (mg_sandbox_ops(s)->read(s, path, 0, 4000, &b, &eof, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(b.ptr ? b.ptr : "", text);
}

int64_t rig_count(struct fixture *f, const char *sql)
{
    struct mg_stmt st = {"", sql};
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_err err = {0};
    if (mg_pg_exec(f->pg, &st, NULL, 0, &r, &err) < 0)
        fail_msg("%s", err.text);
    return mg_res_int(r, 0, 0);
}

void rig_mark_deleting(struct fixture *f)
{
    char sql[256];
    snprintf(sql, sizeof(sql), "UPDATE session_state SET deleting_at = now() WHERE session_id = '%s'", f->session.s);
    pgtest_run(f->db, sql);
}
