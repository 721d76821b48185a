/* mango-worker supervise: one box for each work item, through a launcher plugin. Signals: SIGTERM and SIGINT end it in order; a second one at
 * once, and the boxes go on without it until the next supervisor finds them. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/worker-common.h"
#include "plugin/net.h"
#include "worker/remote.h"
#include "worker/supervise.h"

static const struct mg_worker_flag FLAGS[] = {
    {.name = "launcher",
     .env = "MANGO_LAUNCHER",
     .arg = "NAME",
     .help = "launcher plugin: docker, process, or one of yours"},
    {.name = "plugin-dir", .env = "MANGO_PLUGIN_DIR", .arg = "DIR", .help = "folder of the plugins"},
    {.name = "state-dir",
     .env = "MANGO_SUPERVISOR_STATE_DIR",
     .arg = "DIR",
     .help = "folder of the launcher's own files"},
    {.name = "environment-id", .env = "ANTHROPIC_ENVIRONMENT_ID", .arg = "ID", .help = "environment to poll"},
    {.name = "environment-key",
     .env = "ANTHROPIC_ENVIRONMENT_KEY",
     .arg = "KEY",
     .help = "its key; never given to a box",
     .secret = true},
    {.name = "base-url", .env = "ANTHROPIC_BASE_URL", .arg = "URL", .help = "of the API; default: the hosted service"},
    {.name = "box-base-url",
     .env = "MANGO_BOX_BASE_URL",
     .arg = "URL",
     .help = "of the API as a box reaches it; default: the same"},
    {.name = "ca-file", .env = "MANGO_CA_FILE", .arg = "FILE", .help = "authorities for TLS; default: the system's"},
    {.name = "worker-id", .arg = "ID", .help = "shown by the queue; default: the host's name and a random part"},
    {.name = "name",
     .env = "MANGO_SUPERVISOR_NAME",
     .arg = "NAME",
     .help = "tells supervisors of one environment apart that share a host of boxes"},
    {.name = "max-boxes", .env = "MANGO_MAX_BOXES", .arg = "N", .help = "boxes at a time; default 8"},
    {.name = "image", .env = "MANGO_BOX_IMAGE", .arg = "IMAGE", .help = "of the boxes; default: the launcher's"},
    {.name = "poll-gap", .arg = "TIME", .help = "pause behind an empty poll (default: random, 1s to 3s)"},
    {.name = "grace", .arg = "TIME", .help = "for boxes to end by themselves at the end; default 150s"},
    {.name = "worker-arg",
     .arg = "ARG",
     .help = "a further option of mango-worker run in the boxes, as --max-idle=5m; may be given more than once",
     .many = true},
    {.name = "log-format", .arg = "FORMAT", .help = "text (default) or json"},
    {.name = "log-level", .arg = "LEVEL", .help = "error, warn, info (default) or debug"},
    {.name = "drain", .help = "end once the queue is empty"},
    {.name = "forget",
     .arg = "SESSION",
     .help = "remove what persists of a session that was deleted, and do nothing else"},
    {.name = "with-parent", .arg = "PID", .help = "end at once when this process, which started us, ends"},
    {.name = "help", .help = "this text"},
    {.name = NULL},
};

/* Variables of the supervisor that its workers get too. */
static const char *const PASSED[] = {"MANGO_WORKER_PASS_ENV"};
enum { N_PASSED = sizeof(PASSED) / sizeof(PASSED[0]), GRACE_MAX_MS = 3600000, GAP_MAX_MS = 60000 };

struct program {
    struct mg_worker_args args;
    struct mg_supervisor_opts opts;
    struct mg_plugin_net *plugin_net;
    struct mg_plugin_services services;
    char *pass[N_PASSED + 1];
    char state_dir[PATH_MAX];
};

/* ---- options ---- */

static bool need(const struct mg_worker_args *a, const char *name, const char *env)
{
    if (mg_worker_get(a, name))
        return true;
    fprintf(stderr, "mango-worker: supervise needs --%s (or %s)\n", name, env);
    return false;
}

static bool number(const struct mg_worker_args *a, const char *name, unsigned max, unsigned *ret)
{
    const char *v = mg_worker_get(a, name);
    char *end = NULL;
    unsigned long n = v ? strtoul(v, &end, 10) : 0;

    *ret = (unsigned)n;
    if (!v || (*v >= '1' && *v <= '9' && *end == '\0' && n <= max))
        return true;
    fprintf(stderr, "mango-worker: --%s must be a number from 1 to %u; got %s\n", name, max, v);
    return false;
}

static void find_state_dir(struct program *p)
{
    const char *given = mg_worker_get(&p->args, "state-dir"), *home = secure_getenv("HOME");

    if (given)
        (void)snprintf(p->state_dir, sizeof(p->state_dir), "%s", given);
    else if (geteuid() == 0 || !home)
        (void)snprintf(p->state_dir, sizeof(p->state_dir), "/var/lib/mango-worker");
    else
        (void)snprintf(p->state_dir, sizeof(p->state_dir), "%s/.local/state/mango-worker", home);
}

static void find_passed(struct program *p)
{
    int n = 0;

    for (int i = 0; i < N_PASSED; i++) {
        const char *v = secure_getenv(PASSED[i]);
        size_t len = v ? strlen(PASSED[i]) + strlen(v) + 2 : 0;
        if (!v || !*v)
            continue;
        p->pass[n] = mg_xmalloc(len);
        (void)snprintf(p->pass[n++], len, "%s=%s", PASSED[i], v);
    }
    p->opts.pass = (const char *const *)p->pass;
}

static bool read_options(struct program *p)
{
    const struct mg_worker_args *a = &p->args;
    struct mg_supervisor_opts *o = &p->opts;
    uint32_t grace = 0;

    if (!need(a, "launcher", "MANGO_LAUNCHER"))
        return false;
    bool poll = !mg_worker_get(a, "forget");
    if (poll && (!need(a, "environment-id", "ANTHROPIC_ENVIRONMENT_ID") ||
                 !need(a, "environment-key", "ANTHROPIC_ENVIRONMENT_KEY")))
        return false;
    if (!number(a, "max-boxes", MG_SUPERVISE_BOXES_MAX, &o->max_boxes) ||
        !mg_worker_duration(a, "grace", GRACE_MAX_MS, MG_SUPERVISE_GRACE_MS, &grace))
        return false;
    o->base_url = mg_worker_get(a, "base-url");
    if (!o->base_url)
        o->base_url = MG_REMOTE_HOSTED;
    o->box_base_url = mg_worker_get(a, "box-base-url");
    o->environment_id = mg_worker_get(a, "environment-id");
    o->environment_key = mg_worker_get(a, "environment-key");
    o->worker_id = mg_worker_get(a, "worker-id");
    o->name = mg_worker_get(a, "name");
    o->image = mg_worker_get(a, "image");
    o->grace_ms = grace ? grace : 1;
    o->drain = mg_worker_get(a, "drain") != NULL;
    o->worker_args = a->many;
    if (!mg_worker_duration(a, "poll-gap", GAP_MAX_MS, 0, &o->gap_ms))
        return false;
    find_state_dir(p);
    find_passed(p);
    return true;
}

/* ---- the launcher ---- */

static mg_rc open_launcher(struct program *p, struct mg_err *err)
{
    const char *dir = mg_worker_get(&p->args, "plugin-dir");
    struct mg_plugin_net_opts net = {.ca_file = mg_worker_get(&p->args, "ca-file")};

    mg_rc rc = mg_plugin_net_open(&net, &p->plugin_net, err);
    p->services = (struct mg_plugin_services){.state_dir = p->state_dir, .net = p->plugin_net};
    struct mg_plugin_load load = {.dir = dir ? dir : MANGO_PLUGINDIR,
                                  .name = mg_worker_get(&p->args, "launcher"),
                                  .variable = "MANGO_LAUNCHER",
                                  .kind = MANGO_KIND_LAUNCHER,
                                  .services = &p->services};
    return rc == MG_OK ? mg_plugin_open(&load, &p->opts.launcher, err) : rc;
}

static mg_rc forget(struct program *p, const char *session, struct mg_err *err)
{
    enum { FORGET_MS = 120000 };
    char label[MG_SUPERVISE_KEY];
    struct mg_plugin *l = p->opts.launcher;

    if (!MANGO_HAS(l->launcher, forget))
        return mg_err_set(err, MG_EINVAL, "the launcher %s cannot forget sessions", l->name);
    mg_supervisor_label(p->opts.base_url, session, label);
    struct mango_call call = mg_plugin_call(mg_now_ns() + FORGET_MS * UINT64_C(1000000), NULL, err);
    mango_status s = l->launcher->forget(l->ctx, &call, (struct mango_sv){label, strlen(label)});
    return s < 0 ? mg_plugin_rc(l, MG_OP_DESTROY, s, err) : MG_OK;
}

/* ---- running ---- */

struct signals {
    sigset_t set;
    struct mg_supervisor *supervisor;
    atomic_bool over; /* the supervisor has returned: the next signal is only there to end the thread */
};

static void *wait_signals(void *ctx)
{
    struct signals *s = ctx;
    int sig = 0;

    for (bool again = false;; again = true) {
        if (sigwait(&s->set, &sig) != 0)
            continue;
        if (atomic_load(&s->over))
            return NULL;
        if (again)
            _exit(128 + sig); /* the boxes go on */
        mg_log(MG_INFO, "ending: no further item is claimed, the boxes are asked to end",
               MG_F_INT("boxes", mg_supervisor_boxes(s->supervisor)));
        mg_supervisor_stop(s->supervisor);
    }
}

static mg_rc supervise(struct program *p, struct signals *sig, struct mg_err *err)
{
    struct mg_net_opts net = {.name = "worker", .ca_file = mg_worker_get(&p->args, "ca-file")};
    pthread_t thread;
    mg_rc rc = mg_net_open(&net, &p->opts.net, err);

    if (rc == MG_OK)
        rc = mg_supervisor_new(&p->opts, &sig->supervisor, err);
    if (rc == MG_OK && pthread_create(&thread, NULL, wait_signals, sig) != 0)
        rc = mg_err_set(err, MG_EIO, "no thread for signals");
    if (rc == MG_OK) {
        mg_log(MG_INFO, "supervising", MG_F_STR("environment", p->opts.environment_id),
               MG_F_STR("launcher", p->opts.launcher->name));
        rc = mg_supervisor_run(sig->supervisor, err);
        atomic_store(&sig->over, true);
        (void)pthread_kill(thread, SIGINT);
        (void)pthread_join(thread, NULL);
    }
    mg_supervisor_free(sig->supervisor);
    mg_net_close(p->opts.net);
    return rc;
}

static int finish(struct program *p, mg_rc rc, const struct mg_err *err)
{
    mg_plugin_close(p->opts.launcher);
    mg_plugin_net_close(p->plugin_net);
    for (int i = 0; i < N_PASSED; i++)
        free(p->pass[i]);
    if (rc == MG_OK)
        return MG_WORKER_EXIT_OK;
    fprintf(stderr, "mango-worker: %s\n", err->text);
    return rc == MG_ECONFIG || rc == MG_EAUTH || rc == MG_EDENIED ? MG_WORKER_EXIT_CONFIG : MG_WORKER_EXIT_FAILED;
}

/* False: it is gone already. */
static bool stay_with_parent(const char *pid)
{
    return !pid || (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == (pid_t)strtol(pid, NULL, 10));
}

static void mg_program_cleanup(struct program *p)
{
    mg_worker_args_done(&p->args);
}

int mg_worker_supervise_main(int argc, char **argv)
{
    mg_auto(program) struct program p = {.opts = {0}};
    struct signals sig = {.supervisor = NULL};
    struct mg_err err = {0};

    if (!mg_worker_args_read(&p.args, FLAGS, argc, argv) || !mg_worker_log_setup(&p.args))
        return MG_WORKER_EXIT_USAGE;
    if (mg_worker_get(&p.args, "help")) {
        printf("Usage: mango-worker supervise [OPTIONS]\n\nPolls an environment and has each work item served in a box "
               "of its own.\n\n");
        mg_worker_flags_help(stdout, FLAGS);
        return MG_WORKER_EXIT_OK;
    }
    if (!read_options(&p))
        return MG_WORKER_EXIT_CONFIG;
    if (!stay_with_parent(mg_worker_get(&p.args, "with-parent")))
        return MG_WORKER_EXIT_FAILED;
    sigemptyset(&sig.set);
    sigaddset(&sig.set, SIGTERM);
    sigaddset(&sig.set, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &sig.set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    mg_rc rc = open_launcher(&p, &err);
    const char *session = mg_worker_get(&p.args, "forget");
    if (rc == MG_OK)
        rc = session ? forget(&p, session, &err) : supervise(&p, &sig, &err);
    return finish(&p, rc, &err);
}
