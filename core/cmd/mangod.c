/* mangod: reads the settings, runs the server, ends on SIGTERM or SIGINT. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "lib/server.h"
#include "store/state-dir.h"

enum { MG_EXIT_CONFIG = 78 /* EX_CONFIG */, MG_EXIT_FAILED = 70 /* EX_SOFTWARE */ };

static int print_buf(mg_rc (*make)(struct mg_buf *out))
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    if (make(&b) < 0)
        return MG_EXIT_FAILED;
    fputs(b.ptr, stdout);
    return 0;
}

static int print_help(void)
{
    puts("mangod: the Mango server\n\nUsage: mangod [--config=FILE] [--OPTION=VALUE ...]\n       mangod --version | "
         "--help | --print-config-sample | --print-config\n");
    return print_buf(mg_conf_help);
}

static int startup_failed(mg_rc rc, const struct mg_err *err)
{
    fprintf(stderr, "mangod: %s\n", err->text);
    if (rc == MG_ECONFIG || rc == MG_EINVAL)
        return MG_EXIT_CONFIG;
    return strcmp(err->code, "state_in_use") == 0 ? MG_STATE_EXIT_IN_USE : MG_EXIT_FAILED;
}

static int log_level(const char *name)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return MG_INFO;
}

/* Signals come by a descriptor, and every thread inherits the mask: no handler of ours ever runs in the middle of a library. */
static int signals_take(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static void wait_for_stop(int fd)
{
    struct signalfd_siginfo si;
    for (;;) {
        ssize_t n = read(fd, &si, sizeof(si));
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof(si) || si.ssi_signo != SIGHUP)
            return;
        mg_log(MG_INFO, "SIGHUP: settings are read at startup only");
    }
}

static int serve(const struct mg_conf *conf)
{
    struct mg_server *server;
    struct mg_err err = {0};
    mg_autofd int signals = signals_take();
    const char *migrations = secure_getenv("MANGO_MIGRATIONS_DIR");
    const struct mg_server_opts o = {
        .conf = conf,
        .migrations_dir = migrations && *migrations ? migrations : MANGO_DATADIR "/migrations",
        .plugin_dir = MANGO_PLUGINDIR,
    };
    mg_rc rc = mg_server_open(&o, &server, &err);
    if (rc < 0)
        return startup_failed(rc, &err);
    mg_log(MG_INFO, "mangod is ready", MG_F_STR("version", MANGO_VERSION),
           MG_F_STR("listen", mg_conf_str(conf, MG_OPT_LISTEN)), MG_F_INT("port", mg_server_port(server)));
    wait_for_stop(signals);
    mg_log(MG_INFO, "mangod stops");
    mg_server_close(server);
    mg_log(MG_INFO, "mangod has stopped");
    return 0;
}

struct command_line {
    const char *file;
    const char **args;
    bool print;
};

static void command_line_cleanup(struct command_line *cl)
{
    free(cl->args);
}

/* --config=FILE is ours; the rest goes to the option table. */
static int read_command_line(int argc, char **argv, struct command_line *cl)
{
    const char **args = cl->args = mg_xcalloc((size_t)argc + 1, sizeof(*args));
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help();
        if (strcmp(argv[i], "--version") == 0)
            return puts("mangod " MANGO_VERSION) < 0;
        if (strcmp(argv[i], "--print-config-sample") == 0)
            return print_buf(mg_conf_sample);
        if (strcmp(argv[i], "--print-config") == 0)
            cl->print = true;
        else if (strncmp(argv[i], "--config=", 9) == 0)
            cl->file = argv[i] + 9;
        else
            args[n++] = argv[i];
    }
    return -1; /* go on */
}

int main(int argc, char **argv)
{
    __attribute__((cleanup(command_line_cleanup))) struct command_line cl = {0};
    struct mg_err err = {0};
    mg_auto(conf) struct mg_conf *conf = NULL;
    int status = read_command_line(argc, argv, &cl);
    if (status >= 0)
        return status;
    const char *file = cl.file ? cl.file : secure_getenv("MANGO_CONFIG");
    const struct mg_conf_source src = {
        .args = cl.args,
        .env = (const char *const *)environ,
        .file = file && *file ? file : MANGO_SYSCONFDIR "/mango.conf",
        .file_may_be_missing = !(file && *file),
    };
    mg_rc rc = mg_conf_load(&src, &conf, &err);
    if (rc < 0)
        return startup_failed(rc, &err);
    mg_conf_hide(argv);
    if (cl.print) {
        mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
        (void)!mg_conf_print(conf, &b);
        fputs(b.ptr ? b.ptr : "", stdout);
        return 0;
    }
    mg_log_setup((enum mg_log_level)log_level(mg_conf_str(conf, MG_OPT_LOG_LEVEL)),
                 strcmp(mg_conf_str(conf, MG_OPT_LOG_FORMAT), "json") == 0);
    return serve(conf);
}
