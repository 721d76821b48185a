#include "cmd/worker-common.h"

#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"

enum {
    MAX_IDLE_MS = 7 * 24 * 3600 * 1000, /* a week */
    MEMORY_SYNC_MS = 15000,
    MEMORY_SYNC_MAX_MS = 3600000,
};

static void log_line(void *ctx, int32_t level, const char *line, size_t len)
{
    char text[8192];
    (void)ctx;
    (void)level;
    int n = snprintf(text, sizeof(text), "%.*s\n", (int)(len < sizeof(text) - 2 ? len : sizeof(text) - 2), line);
    (void)!write(STDERR_FILENO, text, (size_t)n);
}

bool mg_worker_log_setup(const struct mg_worker_args *a)
{
    static const char *const LEVELS[] = {"error", "warn", "info", "debug"};
    const char *format = mg_worker_get(a, "log-format"), *level = mg_worker_get(a, "log-level");
    int at = 0;
    while (level && at < 4 && strcmp(level, LEVELS[at]) != 0)
        at++;
    if (at == 4 || (format && strcmp(format, "text") != 0 && strcmp(format, "json") != 0)) {
        fputs("mango-worker: --log-format is text or json, --log-level is error, warn, info or debug\n", stderr);
        return false;
    }
    mg_log_setup(level ? (enum mg_log_level)at : MG_INFO, format && strcmp(format, "json") == 0);
    return true;
}

bool mg_worker_options(const struct mg_worker_args *a, struct mango_worker_options *o)
{
    uint32_t idle_ms, sync_ms;
    if (!mg_worker_duration(a, "max-idle", MAX_IDLE_MS, 60000, &idle_ms) ||
        !mg_worker_duration(a, "memory-sync", MEMORY_SYNC_MAX_MS, MEMORY_SYNC_MS, &sync_ms))
        return false;
    o->struct_size = sizeof(*o);
    o->max_idle_ms = idle_ms ? idle_ms : MANGO_WORKER_FOREVER;
    o->memory_sync_ms = sync_ms ? sync_ms : MANGO_WORKER_FOREVER;
    o->base_url = mg_worker_get(a, "base-url");
    o->environment_id = mg_worker_get(a, "environment-id");
    o->environment_key = mg_worker_get(a, "environment-key");
    o->worker_id = mg_worker_get(a, "worker-id");
    o->workdir = mg_worker_get(a, "workdir");
    o->allowed_roots = a->many;
    o->ca_file = mg_worker_get(a, "ca-file");
    o->proxy = mg_worker_get(a, "proxy");
    o->unrestricted_paths = mg_worker_get(a, "unrestricted-paths") != NULL;
    o->log = log_line;
    return true;
}

void mg_worker_signals_block(struct mg_worker_signals *s)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC);
    s->end_fd = eventfd(0, EFD_CLOEXEC);
}

static void *watch(void *arg)
{
    struct mg_worker_signals *s = arg;
    struct pollfd f[] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->end_fd, .events = POLLIN}};
    for (;;) {
        struct signalfd_siginfo si;
        (void)poll(f, 2, -1);
        if (f[1].revents)
            return NULL;
        if (!f[0].revents || read(s->fd, &si, sizeof(si)) != sizeof(si))
            continue;
        if (s->caught) {
            fputs("mango-worker: a second signal; ends at once\n", stderr);
            _exit(128 + (int)si.ssi_signo);
        }
        s->caught = (int)si.ssi_signo;
        mg_log(MG_INFO, "shuts down", MG_F_INT("signal", s->caught));
        mango_worker_stop(s->worker);
        if (s->stop)
            s->stop(s->ctx);
    }
}

void mg_worker_signals_start(struct mg_worker_signals *s, struct mango_worker *w)
{
    s->worker = w;
    if (pthread_create(&s->thread, NULL, watch, s) != 0)
        _exit(MG_WORKER_EXIT_FAILED);
}

void mg_worker_signals_end(struct mg_worker_signals *s)
{
    static const uint64_t one = 1;
    (void)!write(s->end_fd, &one, sizeof(one));
    pthread_join(s->thread, NULL);
    close(s->fd);
    close(s->end_fd);
}

int mg_worker_failed(int32_t rc, const char *text)
{
    fprintf(stderr, "mango-worker: %s\n", text);
    switch (rc) {
    case MG_EFENCED:
        return MG_WORKER_EXIT_LEASE;
    case MG_EINVAL:
    case MG_EAUTH:
    case MG_EDENIED:
    case MG_ENOTFOUND:
        return MG_WORKER_EXIT_CONFIG;
    default:
        return MG_WORKER_EXIT_FAILED;
    }
}
