#include "docker/cred-helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/child.h"
#include "docker/registry.h"

/* The protocol: `docker-credential-NAME get`, the registry on standard input, JSON on standard output; a failure is told
 * by the exit status with words on standard output. What it prints is a secret as a whole: no byte of it is passed on. */

enum {
    ANSWER_MAX = 64 * 1024, /* bytes; a token is a few kB at most */
    ANSWER_MS = 20000,      /* some ask a service of their own */
    ARGS = 3,
};

/* What a helper says when it has nothing for a registry; the docker command takes it as "no credentials" too. */
static const char not_found[] = "credentials not found in native keychain";

struct helper {
    pid_t pid;
    int in, out;
};

/* The server's variables without the server's own: a helper may need HOME, DBUS_SESSION_BUS_ADDRESS or AWS_PROFILE, and
 * never the keys of the server. NULL when memory is gone. */
static char **helper_env(void)
{
    size_t n = 0, at = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 1, sizeof(*env));
    for (size_t i = 0; env && i < n; i++) {
        if (strncmp(environ[i], "MANGO_", 6) != 0)
            env[at++] = environ[i];
    }
    return env;
}

static int spawn(const char *program, int in, int out, pid_t *ret_pid)
{
    char verb[] = "get";
    char *name = strdup(program), **env = helper_env();
    char *argv[ARGS] = {name, verb, NULL};
    const struct child c = {.argv = argv,
                            .env = env,
                            .fds = {in, out, -1},
                            .n_fds = 3,
                            .in_path = true,
                            .group = true}; /* so that it is killed with all that it started */
    int e = name && env ? child_start(&c, ret_pid) : ENOMEM;
    free(name);
    free(env);
    return e;
}

/* 0 or errno. */
static int start(const char *program, struct helper *ret)
{
    int in[2], out[2];
    /* A socket, since a pipe without a reader is a signal to the whole process. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0)
        return errno;
    if (pipe2(out, O_CLOEXEC) < 0) {
        int e = errno;
        close(in[0]);
        close(in[1]);
        return e;
    }
    *ret = (struct helper){.in = in[1], .out = out[0]};
    int e = spawn(program, in[0], out[1], &ret->pid);
    close(in[0]);
    close(out[1]);
    if (e) {
        close(ret->in);
        close(ret->out);
    }
    return e;
}

/* Reads to the end; false past the deadline, the token or the bound. */
static bool listen_to(const struct docker *d, const struct mango_call *call, int fd, char *answer, size_t *ret_len)
{
    const struct mango_host *h = d->host;
    size_t len = 0;
    for (;;) {
        struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = h->cancel_fd(h, call), .events = POLLIN}};
        uint64_t now = now_ns(d->host);
        if (now >= call->deadline_ns || h->cancelled(h, call))
            return false;
        int n = poll(p, 2, (int)((call->deadline_ns - now) / 1000000) + 1);
        if (n < 0 && errno != EINTR)
            return false;
        if (n <= 0 || !p[0].revents)
            continue;
        ssize_t got = read(fd, answer + len, ANSWER_MAX - len);
        if (got < 0 && errno != EINTR)
            return false;
        len += got > 0 ? (size_t)got : 0;
        *ret_len = len;
        if (got == 0)
            return true;
        if (len == ANSWER_MAX)
            return false;
    }
}

static int reap(const struct helper *c, bool whole)
{
    if (!whole)
        (void)kill(-c->pid, SIGKILL);
    return child_reap(c->pid);
}

static mango_status understand(const struct docker *d, const struct mango_call *call, const char *program,
                               const char *host, struct mango_sv answer, int status, struct text *out)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        if (registry_from_helper(answer, host, out))
            return MANGO_OK;
        return fail(d->host, call, MANGO_EINVALID, "%s gave no Username and Secret for %.200s", program, host);
    }
    if (answer.len >= strlen(not_found) && memmem(answer.ptr, answer.len, not_found, strlen(not_found)))
        return MANGO_OK;
    return fail(d->host, call, MANGO_EINVALID,
                "%s failed for %.200s (%s %d); run `echo %.200s | %s get` as the server's user to see why", program,
                host, WIFEXITED(status) ? "exit status" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), host, program);
}

mango_status cred_helper_ask(const struct docker *d, const struct mango_call *call, const char *helper,
                             const char *host, struct text *out)
{
    char program[REGISTRY_HELPER_MAX + sizeof("docker-credential-")];
    struct helper c = {.in = -1, .out = -1};
    size_t len = 0;
    struct mango_call own = call_within(d, call, ANSWER_MS);
    snprintf(program, sizeof(program), "docker-credential-%s", helper);
    char *answer = malloc(ANSWER_MAX);
    int e = answer ? start(program, &c) : ENOMEM;
    if (e) {
        free(answer);
        return fail(d->host, call, MANGO_EINVALID,
                    "%s, which Docker's config.json names for %.200s, cannot be run: %s; install it where the server's "
                    "PATH finds it, or log in without it",
                    program, host, strerror(e));
    }
    /* Far below what a socket holds. A helper that does not read is told by its exit status. */
    (void)!send(c.in, host, strlen(host), MSG_NOSIGNAL);
    close(c.in);
    bool whole = listen_to(d, &own, c.out, answer, &len);
    close(c.out);
    int status = reap(&c, whole);
    mango_status s;
    if (d->host->cancelled(d->host, call))
        s = MANGO_ECANCELED;
    else if (!whole)
        s = fail(d->host, call, MANGO_ERETRY, "%s gave no answer for %.200s within %d s and %d bytes", program, host,
                 ANSWER_MS / 1000, ANSWER_MAX);
    else
        s = understand(d, call, program, host, (struct mango_sv){answer, len}, status, out);
    explicit_bzero(answer, ANSWER_MAX);
    free(answer);
    return s;
}
