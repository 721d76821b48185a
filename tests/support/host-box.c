#include "support/host-box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { PIECE = 65536, MAX_ENV = 16 };

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

struct host_box *host_box_new(void)
{
    struct host_box *b = mg_xcalloc(1, sizeof(*b));

    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(b->root, sizeof(b->root), "/tmp/mango-box-XXXXXX");
    must(mkdtemp(b->root) != NULL, "mkdtemp");
    b->fd = open(b->root, O_DIRECTORY | O_CLOEXEC);
    must(b->fd >= 0, b->root);
    return b;
}

/* Commands carry the folder as HOME; that finds them wherever they went. */
static int each_process(const struct host_box *b, int sig)
{
    DIR *proc = opendir("/proc");
    char want[96];
    int n = 0;

    must(proc != NULL, "/proc");
    int len = snprintf(want, sizeof(want), "HOME=%s", b->root) + 1;
    for (struct dirent *e; (e = readdir(proc));) {
        char path[300], env[4096];
        int pid = (int)strtol(e->d_name, NULL, 10);
        if (pid <= 0)
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd >= 0 ? read(fd, env, sizeof(env)) : 0;
        if (fd >= 0)
            close(fd);
        if (got > 0 && memmem(env, (size_t)got, want, (size_t)len)) {
            n++;
            if (sig)
                (void)kill(pid, sig);
        }
    }
    closedir(proc);
    return n;
}

int host_box_processes(const struct host_box *b)
{
    return each_process(b, 0);
}

int host_box_free(struct host_box *b)
{
    int left = each_process(b, SIGKILL);
    char *argv[] = {"rm", "-rf", b->root, NULL};
    pid_t pid = 0;

    close(b->fd);
    must(posix_spawnp(&pid, "rm", NULL, NULL, argv, (char *[]){NULL}) == 0, "rm");
    (void)waitpid(pid, NULL, 0);
    free(b);
    return left;
}

static int beneath(struct host_box *b, const char *path, int flags, mode_t mode)
{
    size_t n = strlen(b->root);
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};

    if (strncmp(path, b->root, n) == 0 && (path[n] == '/' || path[n] == '\0'))
        path += n + (path[n] == '/');
    return (int)syscall(SYS_openat2, b->fd, *path ? path : ".", &how, sizeof(how));
}

static mg_rc failed(struct mg_err *err)
{
    if (errno == EXDEV || errno == ELOOP)
        return mg_err_set(err, MG_EDENIED, "the path leads out of the workspace");
    return mg_err_errno(err, errno, "the file");
}

/* ---- processes ---- */

struct child {
    pid_t pid;
    int pidfd, in, out, err;
};

static void close_all(int *fd, int n)
{
    for (int i = 0; i < n; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

static mg_rc start(struct host_box *b, const char *const *argv, const char *cwd, const char *const *more,
                   struct child *ret, struct mg_err *err)
{
    char home[96], path[512], dir[512];
    char *env[MAX_ENV] = {home, path};
    int p[6], n = 2;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;

    (void)snprintf(home, sizeof(home), "HOME=%s", b->root);
    (void)snprintf(path, sizeof(path), "PATH=%s", b->path ? b->path : "/usr/bin:/bin");
    (void)snprintf(dir, sizeof(dir), "%s/%s", b->root, cwd ? cwd : "");
    for (; more && *more && n < MAX_ENV - 1; more++)
        env[n++] = (char *)*more;
    must(pipe2(p, O_CLOEXEC) == 0 && pipe2(p + 2, O_CLOEXEC) == 0 && pipe2(p + 4, O_CLOEXEC) == 0, "pipe2");
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, p[0], 0);
    posix_spawn_file_actions_adddup2(&fa, p[3], 1);
    posix_spawn_file_actions_adddup2(&fa, p[5], 2);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    posix_spawn_file_actions_addchdir_np(&fa, dir);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    sigaddset(&none, SIGPIPE);
    posix_spawnattr_setsigdefault(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(&ret->pid, argv[0], &fa, &attr, (char *const *)argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    close_all((int[]){p[0], p[3], p[5]}, 3);
    if (rc) {
        close_all((int[]){p[1], p[2], p[4]}, 3);
        return mg_err_errno(err, rc, "%s", argv[0]);
    }
    ret->pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0);
    must(ret->pidfd >= 0, "pidfd_open");
    ret->in = p[1];
    ret->out = p[2];
    ret->err = p[4];
    (void)fcntl(ret->in, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->err, F_SETFL, O_NONBLOCK);
    return MG_OK;
}

static int until(uint64_t deadline_ns)
{
    uint64_t now = mg_now_ns();

    return deadline_ns <= now ? 0 : (int)((deadline_ns - now) / 1000000 + 1);
}

/* Hands over what a pipe holds now. Returns false when nothing was there; closes it at its end. */
static bool drain(int *fd, int stream, mg_exec_sink *sink, void *ctx, bool once)
{
    char buf[PIECE];
    bool any = false;

    while (*fd >= 0) {
        ssize_t n = read(*fd, buf, sizeof(buf));
        if (n > 0) {
            any = true;
            if (sink && !sink(ctx, stream, buf, (size_t)n))
                sink = NULL;
            if (once)
                return true;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(*fd);
            *fd = -1;
        }
        break;
    }
    return any;
}

static void feed(struct child *p, struct mg_sv *in)
{
    while (p->in >= 0) {
        ssize_t n = in->len ? write(p->in, in->ptr, in->len) : 0;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close(p->in);
            p->in = -1;
        } else {
            *in = mg_sv_from(*in, (size_t)n);
        }
    }
}

static mg_rc box_exec(void *box, const struct mg_exec_req *req, struct mg_exec_status *ret, struct mg_err *err)
{
    struct host_box *b = box;
    struct child p;
    struct mg_sv in = req->stdin_data;
    siginfo_t info;
    mg_rc rc = start(b, req->argv, req->cwd, req->env, &p, err);

    if (rc < 0)
        return rc;
    b->execs++;
    *ret = (struct mg_exec_status){.exited = false};
    for (bool live = true; live;) {
        struct pollfd f[] = {{.fd = p.pidfd, .events = POLLIN},
                             {.fd = p.out, .events = POLLIN},
                             {.fd = p.err, .events = POLLIN},
                             {.fd = p.in, .events = POLLOUT},
                             {.fd = req->cancel ? mg_cancel_fd(req->cancel) : -1, .events = POLLIN}};
        int n = poll(f, 5, until(req->deadline_ns));
        ret->cancelled = mg_cancel_fired(req->cancel);
        ret->timed_out = !ret->cancelled && n == 0;
        if (ret->cancelled || ret->timed_out)
            (void)kill(-p.pid, SIGKILL);
        feed(&p, &in);
        live = !(f[0].revents & POLLIN) && !ret->cancelled && !ret->timed_out;
        (void)drain(&p.out, 1, req->sink, req->sink_ctx, live);
        (void)drain(&p.err, 2, req->sink, req->sink_ctx, live);
    }
    (void)waitid(P_PIDFD, (id_t)p.pidfd, &info, WEXITED);
    ret->exited = info.si_code == CLD_EXITED && !ret->cancelled && !ret->timed_out;
    ret->exit_code = ret->exited ? info.si_status : 0;
    ret->signal = !ret->exited && !ret->cancelled && !ret->timed_out ? info.si_status : 0;
    close_all((int[]){p.pidfd, p.in, p.out, p.err}, 4);
    return ret->cancelled ? mg_err_set(err, MG_ECANCELED, "cancelled") : MG_OK;
}

struct proc {
    struct host_box *box;
    struct child c;
};

static mg_rc box_proc_open(void *box, const char *const *argv, const char *const *env, void **ret, struct mg_err *err)
{
    struct proc *p = mg_xcalloc(1, sizeof(*p));
    mg_rc rc = start(box, argv, NULL, env, &p->c, err);

    if (rc < 0) {
        free(p);
        return rc;
    }
    p->box = box;
    p->box->procs++;
    *ret = p;
    return MG_OK;
}

static mg_rc box_proc_write(void *proc, struct mg_sv data, struct mg_err *err)
{
    struct proc *p = proc;

    while (data.len) {
        ssize_t n = write(p->c.in, data.ptr, data.len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd f = {.fd = p->c.in, .events = POLLOUT};
            (void)poll(&f, 1, 1000);
            continue;
        }
        if (n < 0)
            return mg_err_errno(err, errno, "the process");
        data = mg_sv_from(data, (size_t)n);
    }
    return MG_OK;
}

static mg_rc box_proc_read(void *proc, uint64_t deadline_ns, struct mg_cancel *cancel, mg_exec_sink *sink, void *ctx,
                           bool *ret_closed, struct mg_err *err)
{
    struct proc *p = proc;

    for (;;) {
        struct pollfd f[] = {{.fd = p->c.pidfd, .events = POLLIN},
                             {.fd = p->c.out, .events = POLLIN},
                             {.fd = p->c.err, .events = POLLIN},
                             {.fd = cancel ? mg_cancel_fd(cancel) : -1, .events = POLLIN}};
        int n = poll(f, 4, until(deadline_ns));
        if (mg_cancel_fired(cancel))
            return mg_err_set(err, MG_ECANCELED, "cancelled");
        *ret_closed = f[0].revents & POLLIN;
        bool any = drain(&p->c.out, 1, sink, ctx, !*ret_closed);
        any = drain(&p->c.err, 2, sink, ctx, !*ret_closed) || any;
        if (any || *ret_closed)
            return MG_OK;
        if (n == 0)
            return mg_err_set(err, MG_ETIMEOUT, "no output");
    }
}

static void box_proc_close(void *proc)
{
    struct proc *p = proc;

    uint64_t deadline = mg_now_ns() + 5000000000u;
    while (each_process(p->box, SIGKILL) > 0 && mg_now_ns() < deadline)
        (void)usleep(1000);
    (void)waitid(P_PIDFD, (id_t)p->c.pidfd, &(siginfo_t){0}, WEXITED);
    close_all((int[]){p->c.pidfd, p->c.in, p->c.out, p->c.err}, 4);
    free(p);
}

/* ---- files ---- */

static mg_rc box_read(void *box, const char *path, int64_t offset, size_t max, struct mg_buf *out, bool *ret_eof,
                      struct mg_err *err)
{
    mg_autofd int fd = beneath(box, path, O_RDONLY | O_NONBLOCK, 0);
    struct stat st;

    if (fd < 0)
        return failed(err);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return mg_err_set(err, MG_EINVAL, "it is not a regular file");
    for (*ret_eof = false; max && !*ret_eof;) {
        if (mg_buf_reserve(out, max) < 0)
            return mg_err_set(err, MG_ETOOBIG, "too big");
        ssize_t n = pread(fd, out->ptr + out->len, max, offset);
        if (n < 0)
            return failed(err);
        *ret_eof = n == 0;
        out->len += (size_t)n;
        out->ptr[out->len] = '\0';
        offset += n;
        max -= (size_t)n;
    }
    return MG_OK;
}

static void make_parents(struct host_box *b, const char *path)
{
    char part[4096];

    for (const char *p = path; (p = strchr(p, '/')); p++) {
        if (p == path)
            continue;
        (void)snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        (void)mkdirat(b->fd, part, 0755);
    }
}

static mg_rc box_write(void *box, const char *path, struct mg_sv content, struct mg_err *err)
{
    struct host_box *b = box;
    char dir[4096], temp[] = ".mango-tmp";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct stat st;

    if (path[0] != '/')
        make_parents(b, path);
    (void)snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    mg_autofd int dirfd = beneath(b, dir, O_PATH | O_DIRECTORY, 0);
    if (dirfd < 0)
        return failed(err);
    bool there = fstatat(dirfd, name, &st, 0) == 0;
    if (there && !S_ISREG(st.st_mode))
        return mg_err_set(err, MG_EINVAL, "it is not a regular file");
    mg_autofd int fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, there ? st.st_mode & 07777 : 0644);
    if (fd < 0)
        return failed(err);
    while (content.len) {
        ssize_t n = write(fd, content.ptr, content.len);
        if (n < 0) {
            (void)unlinkat(dirfd, temp, 0);
            return failed(err);
        }
        content = mg_sv_from(content, (size_t)n);
    }
    return renameat(dirfd, temp, dirfd, name) == 0 ? MG_OK : failed(err);
}

static mg_rc box_stat(void *box, const char *path, struct mg_file_stat *ret, struct mg_err *err)
{
    mg_autofd int fd = beneath(box, path, O_PATH, 0);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return failed(err);
    *ret = (struct mg_file_stat){.size = st.st_size,
                                 .mtime_us = st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000,
                                 .mode = st.st_mode & 07777,
                                 .kind = S_ISREG(st.st_mode)   ? 'f'
                                         : S_ISDIR(st.st_mode) ? 'd'
                                         : S_ISLNK(st.st_mode) ? 'l'
                                                               : 'o'};
    return MG_OK;
}

static const char *box_root(void *box)
{
    return ((struct host_box *)box)->root;
}

const struct mg_tool_ops host_box_ops = {.exec = box_exec,
                                         .read = box_read,
                                         .write = box_write,
                                         .stat = box_stat,
                                         .root = box_root,
                                         .proc_open = box_proc_open,
                                         .proc_write = box_proc_write,
                                         .proc_read = box_proc_read,
                                         .proc_close = box_proc_close};
const struct mg_tool_ops host_box_ops_one_shot = {
    .exec = box_exec, .read = box_read, .write = box_write, .stat = box_stat, .root = box_root};

void host_box_put(struct host_box *b, const char *name, const void *p, size_t n)
{
    struct mg_err err;

    must(box_write(b, name, mg_sv_n(p, n), &err) == MG_OK, name);
}

void host_box_puts(struct host_box *b, const char *name, const char *text)
{
    host_box_put(b, name, text, strlen(text));
}
