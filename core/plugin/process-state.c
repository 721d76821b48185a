#include "plugin/process-state.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { DIFF_TEXT_MAX = 4096, STATUS_LINE_MAX = 256 };

static const struct {
    int sig;
    const char *name;
} watched[MG_PROCESS_SIGNALS] = {
    {SIGPIPE, "SIGPIPE"}, {SIGCHLD, "SIGCHLD"}, {SIGTERM, "SIGTERM"},
    {SIGINT, "SIGINT"},   {SIGHUP, "SIGHUP"},   {SIGSEGV, "SIGSEGV"},
};

/* Without setting it for a moment, which another thread's open could meet. */
static mode_t current_umask(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[STATUS_LINE_MAX];
    mode_t m = 022;
    while (f && fgets(line, sizeof(line), f)) {
        if (strncmp(line, "Umask:", 6) == 0)
            m = (mode_t)strtoul(line + 6, NULL, 8);
    }
    if (f)
        fclose(f);
    return m;
}

void mg_process_state_save(struct mg_process_state *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->umask = current_umask();
    (void)stat(".", &ret->cwd);
    for (int fd = 0; fd < 3; fd++)
        ret->fd_open[fd] = fstat(fd, &ret->fds[fd]) == 0;
    const char *locale = setlocale(LC_ALL, NULL);
    snprintf(ret->locale, sizeof(ret->locale), "%s", locale ? locale : "C");
    for (unsigned i = 0; i < MG_PROCESS_SIGNALS; i++)
        sigaction(watched[i].sig, NULL, &ret->handlers[i]);
    pthread_sigmask(SIG_SETMASK, NULL, &ret->mask);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static unsigned diff_signals(const struct mg_process_state *a, const struct mg_process_state *b, struct mg_buf *out)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MG_PROCESS_SIGNALS; i++) {
        if (a->handlers[i].sa_handler == b->handlers[i].sa_handler)
            continue;
        n++;
        (void)mg_buf_printf(out, "the handler of %s was changed\n", watched[i].name);
    }
    for (int sig = 1; sig < 32; sig++) {
        if (sigismember(&a->mask, sig) == sigismember(&b->mask, sig))
            continue;
        n++;
        (void)mg_buf_printf(out, "signal %d was %s\n", sig, sigismember(&b->mask, sig) ? "blocked" : "unblocked");
    }
    return n;
}

unsigned mg_process_state_diff(const struct mg_process_state *before, struct mg_buf *out)
{
    struct mg_process_state now;
    mg_process_state_save(&now);
    unsigned n = diff_signals(before, &now, out);
    if (now.umask != before->umask) {
        n++;
        (void)mg_buf_printf(out, "umask is %04o, was %04o\n", now.umask, before->umask);
    }
    if (!same_file(&now.cwd, &before->cwd)) {
        n++;
        (void)mg_buf_str(out, "the working folder was changed\n");
    }
    if (strcmp(now.locale, before->locale) != 0) {
        n++;
        (void)mg_buf_printf(out, "locale is %.64s, was %.64s\n", now.locale, before->locale);
    }
    for (int fd = 0; fd < 3; fd++) {
        if (now.fd_open[fd] == before->fd_open[fd] && (!now.fd_open[fd] || same_file(&now.fds[fd], &before->fds[fd])))
            continue;
        n++;
        (void)mg_buf_printf(out, "descriptor %d was %s\n", fd, now.fd_open[fd] ? "replaced" : "closed");
    }
    return n;
}

void mg_process_state_restore(const struct mg_process_state *before, const char *plugin)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(DIFF_TEXT_MAX);
    if (mg_process_state_diff(before, &out) == 0)
        return;
    mg_log(MG_WARN, "the plugin changed the state of the process; put back where possible", MG_F_STR("plugin", plugin),
           MG_F_SV("what", mg_buf_view(&out)));
    (void)umask(before->umask);
    (void)setlocale(LC_ALL, before->locale);
    for (unsigned i = 0; i < MG_PROCESS_SIGNALS; i++)
        sigaction(watched[i].sig, &before->handlers[i], NULL);
    pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
}
