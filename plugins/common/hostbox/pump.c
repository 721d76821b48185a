#include "common/hostbox/pump.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    FLAG_NS = 100000000, /* between two looks at the token when it has no descriptor */
    READ_BYTES = 32 * 1024,
    DRAIN_MAX =
        1024 *
        1024, /* bytes: the largest pipe. What the command wrote before its end is in it, what comes later is not its */
};

/* Returns the bytes read; 0: nothing there, or the end. */
static uint64_t take(int *fd, struct chunk *c)
{
    char buf[READ_BYTES];
    ssize_t n = read(*fd, buf, sizeof(buf));
    if (n > 0) {
        chunk_feed(c, buf, (uint64_t)n);
        return (uint64_t)n;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
    return 0;
}

static void hear(struct pump *p)
{
    struct wire_event ev;
    if (!status_hear(p->run.ends.status, &ev))
        return;
    if (ev.kind == WIRE_GONE)
        p->lost = true;
    else if (ev.kind == WIRE_STARTED)
        p->started = true;
    else
        p->end = ev;
}

int pump_wait(struct pump *p, const struct mango_call *call, uint64_t until_ns)
{
    const struct mango_host *h = p->all->host;
    struct pollfd fds[5] = {{.events = POLLIN},
                            {.events = POLLIN},
                            {.fd = p->run.ends.status, .events = POLLIN},
                            {.fd = call ? h->cancel_fd(h, call) : -1, .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    bool by_flag = call && call->token && fds[3].fd < 0; /* the host is out of descriptors */
    for (;;) {
        if (p->end.kind || p->lost)
            return PUMP_END;
        if (by_flag && h->cancelled(h, call))
            return PUMP_CANCEL;
        uint64_t now = now_ns(p->all->host);
        bool late = until_ns && now >= until_ns; /* then only what is there already counts */
        uint64_t left = late ? 0 : until_ns ? until_ns - now : FLAG_NS;
        left = by_flag && left > FLAG_NS ? FLAG_NS : left;
        struct timespec ts = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
        fds[0].fd = p->run.ends.out;
        fds[1].fd = p->run.ends.err;
        fds[4].fd = p->run.tty;
        int n = ppoll(fds, 5, until_ns || by_flag ? &ts : NULL, NULL);
        if (n < 0)
            continue;
        if (fds[3].revents)
            return PUMP_CANCEL;
        uint64_t got = 0;
        if (n > 0 && fds[4].revents)
            got += take(&p->run.tty, &p->out);
        if (n > 0 && fds[0].revents)
            got += take(&p->run.ends.out, &p->out);
        if (n > 0 && fds[1].revents)
            got += take(&p->run.ends.err, &p->err);
        if (n > 0 && fds[2].revents)
            hear(p);
        if (got > 0)
            return PUMP_OUTPUT;
        if (late && !p->end.kind && !p->lost)
            return PUMP_TIME;
    }
}

void pump_drain(struct pump *p)
{
    int *fds[] = {&p->run.tty, &p->run.ends.err, &p->run.ends.out};
    for (int i = 0; i < 3; i++) {
        for (uint64_t got = 0, n = 1; *fds[i] >= 0 && n > 0 && got < DRAIN_MAX; got += n)
            n = take(fds[i], i == 1 ? &p->err : &p->out);
    }
    chunk_end(&p->out);
    chunk_end(&p->err);
}

void pump_kill(struct pump *p)
{
    uint64_t until = now_ns(p->all->host) + KILL_WAIT_MS * UINT64_C(1000000);
    status_kill(p->run.ends.status);
    /* An ENDED that crossed the kill is no proof that all is dead; KILLED or the end of the socket is. */
    while (!p->lost && p->end.kind != WIRE_KILLED && p->end.kind != WIRE_FAILED &&
           !(p->end.kind == WIRE_ENDED && p->end.alone)) {
        p->end.kind = 0;
        if (pump_wait(p, NULL, until) == PUMP_TIME)
            break;
    }
}

void pump_result(const struct pump *p, struct mango_exec_result *ret)
{
    uint32_t size = ret->struct_size;
    memset(ret, 0, sizeof(*ret));
    ret->struct_size = size;
    ret->stdout_bytes = p->out.seen;
    ret->stderr_bytes = p->err.seen;
    if (p->end.kind == WIRE_ENDED && WIFEXITED(p->end.status)) {
        ret->exited = 1;
        ret->exit_code = WEXITSTATUS(p->end.status);
    } else if (p->end.kind == WIRE_ENDED && WIFSIGNALED(p->end.status)) {
        ret->signal = WTERMSIG(p->end.status);
    } else {
        ret->unknown = 1;
    }
    ret->peak_memory = p->end.kind == WIRE_ENDED ? p->end.peak_kib * 1024 : 0;
}
