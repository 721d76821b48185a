#include "lib/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/plugin.h"
#include "store/api-key.h"

#ifndef MANGO_BINDIR
#define MANGO_BINDIR "/usr/local/bin"
#endif

enum { ENV_MORE = 8, URL_MAX = 300, KEY_NAME_MAX = 200 };

struct child {
    struct mg_launcher *l;
    pthread_t thread;
    char *environment, *workspace;
    struct mg_id key_id;
    char key[MG_API_KEY_TEXT];
    _Atomic pid_t pid; /* 0: none runs */
};

struct mg_launcher {
    char program[PATH_MAX]; /* mango-worker */
    char url[URL_MAX], key_name[KEY_NAME_MAX];
    char *name, *plugin_dir, *state_dir, *box_url;
    struct mg_cancel *stop;
    struct child children[MG_LAUNCHER_ENVIRONMENTS_MAX];
    int n, n_started;
};

/* ---- what the settings name ---- */

static mg_rc check_plugin(const struct mg_launcher *l, struct mg_err *err)
{
    char path[PATH_MAX];
    const struct mango_plugin *d = NULL;
    struct mg_err why = {0};

    (void)snprintf(path, sizeof(path), "%s/%s.so", l->plugin_dir, l->name);
    if (!mg_plugin_name_ok(mg_sv_of(l->name)) || access(path, F_OK) < 0)
        return mg_err_set(err, MG_ECONFIG, "MANGO_LAUNCHER=%.64s: no such launcher in %s", l->name, l->plugin_dir);
    if (mg_plugin_inspect(path, &d, &why) < 0)
        return mg_err_set(err, MG_ECONFIG, "MANGO_LAUNCHER=%s: %s", l->name, why.text);
    return d->kind & MANGO_KIND_LAUNCHER
               ? MG_OK
               : mg_err_set(err, MG_ECONFIG, "MANGO_LAUNCHER=%s: it is a sandbox backend and no launcher", l->name);
}

/* Beside this program, else the installed one. */
static mg_rc find_program(struct mg_launcher *l, struct mg_err *err)
{
    char exe[PATH_MAX - 32];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    char *slash = n > 0 ? memrchr(exe, '/', (size_t)n) : NULL;

    if (slash)
        (void)snprintf(l->program, sizeof(l->program), "%.*s/mango-worker", (int)(slash - exe), exe);
    if (!slash || access(l->program, X_OK) < 0)
        (void)snprintf(l->program, sizeof(l->program), "%s", MANGO_BINDIR "/mango-worker");
    return access(l->program, X_OK) == 0
               ? MG_OK
               : mg_err_set(err, MG_ECONFIG, "MANGO_LAUNCHER=%s needs %s, which cannot be run", l->name, l->program);
}

/* Children reach the server on this machine, whatever else it listens on. */
static void make_names(struct mg_launcher *l, const struct mg_conf *conf, int port)
{
    const char *listen = mg_conf_str(conf, MG_OPT_LISTEN), *colon = strrchr(listen, ':');
    char host[256] = "127.0.0.1", machine[128] = "";

    if (colon && colon > listen)
        (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - listen), listen);
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "[::]") == 0 || strcmp(host, "*") == 0)
        (void)snprintf(host, sizeof(host), "127.0.0.1");
    (void)gethostname(machine, sizeof(machine) - 1);
    (void)snprintf(l->url, sizeof(l->url), "http://%s:%d", host, port);
    (void)snprintf(l->key_name, sizeof(l->key_name), "launcher of mangod on %s:%d", machine, port);
}

/* ---- keys ---- */

static const struct mg_stmt SQL_ENVIRONMENT = {
    "launcher_environment", "SELECT workspace_id, config_type FROM environments WHERE id = $1 AND archived_at IS NULL"};

static mg_rc find_environment(struct mg_pg *pg, struct child *c, struct mg_err *err)
{
    const struct mg_sv params[] = {mg_sv_of(c->environment)};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_ENVIRONMENT, params, 1, &r, err);

    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0 || !mg_sv_eqz(mg_res_sv(r, 0, 1), "self_hosted"))
        return mg_err_set(err, MG_ECONFIG,
                          "MANGO_LAUNCHER_ENVIRONMENTS: %.64s is no environment of this server, or not self_hosted",
                          c->environment);
    struct mg_sv workspace = mg_res_sv(r, 0, 0);
    c->workspace = mg_xstrndup(workspace.ptr, workspace.len);
    return MG_OK;
}

/* Those of an earlier start that was killed. */
static mg_rc revoke_old(struct mg_pg *pg, const struct child *c, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_api_key *keys = NULL;
    int n = 0;
    mg_rc rc = mg_api_key_list(pg, a, mg_sv_of(c->workspace), &keys, &n, err);

    for (int i = 0; rc == MG_OK && i < n; i++) {
        if (keys[i].revoked_us == INT64_MIN && mg_sv_eqz(keys[i].name, c->l->key_name) &&
            mg_sv_eqz(keys[i].environment, c->environment))
            rc = mg_api_key_revoke(pg, mg_sv_of(c->workspace), keys[i].id, err);
    }
    return rc;
}

static mg_rc make_key(struct mg_pg *pg, struct child *c, struct mg_err *err)
{
    mg_rc rc = find_environment(pg, c, err);

    if (rc == MG_OK)
        rc = revoke_old(pg, c, err);
    return rc == MG_OK ? mg_api_key_issue(pg, mg_sv_of(c->workspace), mg_sv_of(c->environment),
                                          mg_sv_of(c->l->key_name), &c->key_id, c->key, err)
                       : rc;
}

/* ---- children ---- */

struct variables {
    char **v;
    size_t n, own; /* own: the first of ours, which are freed */
};

static void add(struct variables *e, const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 2;
    e->v[e->n] = mg_xmalloc(n);
    (void)snprintf(e->v[e->n++], n, "%s=%s", name, value);
}

/* The server's own, whose secrets are out of it already, and what supervise is told by. */
static void make_env(const struct child *c, struct variables *e)
{
    size_t n = 0;

    while (environ && environ[n])
        n++;
    e->v = mg_xcalloc(n + ENV_MORE + 1, sizeof(*e->v));
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "ANTHROPIC_", 10) != 0)
            e->v[e->n++] = environ[i];
    e->own = e->n;
    add(e, "ANTHROPIC_BASE_URL", c->l->url);
    add(e, "ANTHROPIC_ENVIRONMENT_ID", c->environment);
    add(e, "ANTHROPIC_ENVIRONMENT_KEY", c->key);
    if (c->l->box_url)
        add(e, "MANGO_BOX_BASE_URL", c->l->box_url);
}

static void variables_done(struct variables *e)
{
    for (size_t i = e->own; i < e->n; i++) {
        mg_wipe(e->v[i], strlen(e->v[i]));
        free(e->v[i]);
    }
    free(e->v);
}

static int spawn(struct child *c, pid_t *ret_pid)
{
    const struct mg_launcher *l = c->l;
    char parent[16];
    (void)snprintf(parent, sizeof(parent), "%d", (int)getpid());
    const char *argv[] = {"mango-worker", "supervise",   "--with-parent", parent,       "--launcher", l->name,
                          "--plugin-dir", l->plugin_dir, "--state-dir",   l->state_dir, NULL};
    struct variables env = {.n = 0};
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigset_t all, none;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&at);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    posix_spawnattr_setsigdefault(&at, &all);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    make_env(c, &env);
    int e = posix_spawn(ret_pid, l->program, &fa, &at, (char *const *)argv, env.v);
    variables_done(&env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    return e;
}

/* Runs one child to its end. */
static void run_once(struct child *c)
{
    pid_t pid = 0;
    int status = 0, e = spawn(c, &pid);

    if (e) {
        mg_log(MG_ERROR, "the launcher's supervisor cannot be started", MG_F_STR("error", strerror(e)));
        return;
    }
    atomic_store(&c->pid, pid);
    if (mg_cancel_fired(c->l->stop)) /* it fired before the number was there to be seen */
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    atomic_store(&c->pid, 0);
    if (!mg_cancel_fired(c->l->stop))
        mg_log(MG_ERROR, "the launcher's supervisor has ended and is started again",
               MG_F_STR("environment", c->environment), MG_F_INT("exit", WIFEXITED(status) ? WEXITSTATUS(status) : -1),
               MG_F_INT("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0));
}

static void *mind(void *ctx)
{
    struct child *c = ctx;
    uint32_t pause_ms = MG_LAUNCHER_RETRY_MS;

    while (!mg_cancel_fired(c->l->stop)) {
        uint64_t since = mg_now_ns();
        run_once(c);
        if (mg_now_ns() - since > MG_LAUNCHER_STEADY_MS * UINT64_C(1000000))
            pause_ms = MG_LAUNCHER_RETRY_MS;
        struct pollfd p = {.fd = mg_cancel_fd(c->l->stop), .events = POLLIN};
        (void)poll(&p, 1, (int)pause_ms);
        pause_ms = pause_ms * 2 < MG_LAUNCHER_RETRY_MAX_MS ? pause_ms * 2 : MG_LAUNCHER_RETRY_MAX_MS;
    }
    return NULL;
}

/* ---- all together ---- */

static mg_rc take_environments(struct mg_launcher *l, const char *list, struct mg_err *err)
{
    struct mg_sv rest = mg_sv_of(list);

    while (rest.len) {
        struct mg_sv one = mg_sv_trim(mg_sv_split(&rest, ','));
        if (!one.len)
            continue;
        if (l->n == MG_LAUNCHER_ENVIRONMENTS_MAX)
            return mg_err_set(err, MG_ECONFIG, "MANGO_LAUNCHER_ENVIRONMENTS names more than %d",
                              MG_LAUNCHER_ENVIRONMENTS_MAX);
        l->children[l->n++] = (struct child){.l = l, .environment = mg_xstrndup(one.ptr, one.len)};
    }
    return l->n ? MG_OK
                : mg_err_set(
                      err, MG_ECONFIG,
                      "MANGO_LAUNCHER=%s needs MANGO_LAUNCHER_ENVIRONMENTS: the ids of the environments that it serves",
                      l->name);
}

static mg_rc open_all(struct mg_launcher *l, const struct mg_conf *conf, struct mg_pg *pg, struct mg_err *err)
{
    mg_rc rc = take_environments(l, mg_conf_str(conf, MG_OPT_LAUNCHER_ENVIRONMENTS), err);

    if (rc == MG_OK)
        rc = check_plugin(l, err);
    if (rc == MG_OK)
        rc = find_program(l, err);
    for (int i = 0; rc == MG_OK && i < l->n; i++)
        rc = make_key(pg, &l->children[i], err);
    for (; rc == MG_OK && l->n_started < l->n; l->n_started++)
        if (pthread_create(&l->children[l->n_started].thread, NULL, mind, &l->children[l->n_started]) != 0)
            return mg_err_set(err, MG_EIO, "no thread for a launcher");
    return rc;
}

mg_rc mg_launcher_open(const struct mg_conf *conf, const char *plugin_dir, struct mg_pg *pg, int port,
                       struct mg_launcher **ret, struct mg_err *err)
{
    const char *name = mg_conf_str(conf, MG_OPT_LAUNCHER), *box = mg_conf_str(conf, MG_OPT_LAUNCHER_BASE_URL);
    char state[PATH_MAX];

    *ret = NULL;
    if (!*name)
        return MG_OK;
    struct mg_launcher *l = mg_xcalloc(1, sizeof(*l));
    (void)snprintf(state, sizeof(state), "%s/launcher", mg_conf_str(conf, MG_OPT_STATE_DIR));
    l->name = mg_xstrdup(name);
    l->plugin_dir = mg_xstrdup(plugin_dir);
    l->state_dir = mg_xstrdup(state);
    l->box_url = *box ? mg_xstrdup(box) : NULL;
    l->stop = mg_cancel_new();
    make_names(l, conf, port);
    mg_rc rc = open_all(l, conf, pg, err);
    if (rc < 0) {
        mg_launcher_close(l, pg);
        return rc;
    }
    *ret = l;
    return MG_OK;
}

void mg_launcher_close(struct mg_launcher *l, struct mg_pg *pg)
{
    struct mg_err err = {0};

    if (!l)
        return;
    mg_cancel_fire(l->stop);
    for (int i = 0; i < l->n_started; i++) {
        pid_t pid = atomic_load(&l->children[i].pid);
        if (pid > 0)
            (void)kill(pid, SIGKILL);
        pthread_join(l->children[i].thread, NULL);
    }
    for (int i = 0; i < l->n; i++) {
        struct child *c = &l->children[i];
        if (pg && c->key[0] && mg_api_key_revoke(pg, mg_sv_of(c->workspace), mg_id_sv(&c->key_id), &err) < 0)
            mg_log(MG_WARN, "a launcher's key is not revoked", MG_F_STR("error", err.text));
        mg_wipe(c->key, sizeof(c->key));
        free(c->environment);
        free(c->workspace);
    }
    mg_cancel_unref(l->stop);
    free(l->name);
    free(l->plugin_dir);
    free(l->state_dir);
    free(l->box_url);
    free(l);
}
