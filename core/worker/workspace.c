/* The workspace of a worker over core/tools: commands by posix_spawn, files by openat2 beneath the work folder. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/rng.h"
#include "worker/tools.h"

enum { PIECE = 64 * 1024, ENV_MAX = 512, PATH_BYTES = 4096 };

struct mg_workspace {
    char *root;
    int fd;
    bool unrestricted;
    struct mg_tools *tools;
};

/* ---- commands ---- */

struct child {
    pid_t pid;
    int pidfd, in, out, err;
};

static void close_all(const int *fd, int n)
{
    for (int i = 0; i < n; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* What the worker itself was told stays with it. */
static bool is_ours(const char *entry)
{
    return strncmp(entry, "ANTHROPIC_", 10) == 0 || strncmp(entry, "MANGO_", 6) == 0;
}

static void make_environment(const char *const *more, char *env[ENV_MAX])
{
    int n = 0;
    for (char **e = environ; *e && n < ENV_MAX - 16; e++)
        if (!is_ours(*e))
            env[n++] = *e;
    for (; more && *more && n < ENV_MAX - 1; more++)
        env[n++] = (char *)*more;
    env[n] = NULL;
}

static int spawn_child(const struct mg_workspace *w, const struct mg_exec_req *req, const int p[6], pid_t *ret)
{
    char dir[PATH_BYTES], *env[ENV_MAX];
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t set;
    make_environment(req->env, env);
    (void)snprintf(dir, sizeof(dir), "%s/%s", req->cwd && req->cwd[0] == '/' ? "" : w->root, req->cwd ? req->cwd : "");
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, p[0], 0);
    posix_spawn_file_actions_adddup2(&fa, p[3], 1);
    posix_spawn_file_actions_adddup2(&fa, p[5], 2);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    posix_spawn_file_actions_addchdir_np(&fa, dir);
    posix_spawnattr_init(&attr);
    sigemptyset(&set);
    posix_spawnattr_setsigmask(&attr, &set);
    sigaddset(&set, SIGPIPE);
    posix_spawnattr_setsigdefault(&attr, &set);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawnp(ret, req->argv[0], &fa, &attr, (char *const *)req->argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    return rc;
}

static mg_rc start(const struct mg_workspace *w, const struct mg_exec_req *req, struct child *ret, struct mg_err *err)
{
    int p[6] = {-1, -1, -1, -1, -1, -1};
    int rc = pipe2(p, O_CLOEXEC) == 0 && pipe2(p + 2, O_CLOEXEC) == 0 && pipe2(p + 4, O_CLOEXEC) == 0
                 ? spawn_child(w, req, p, &ret->pid)
                 : errno;
    close_all((int[]){p[0], p[3], p[5]}, 3);
    if (rc) {
        close_all((int[]){p[1], p[2], p[4]}, 3);
        return mg_err_errno(err, rc, "%s", req->argv[0]);
    }
    *ret = (struct child){
        .pid = ret->pid, .pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0), .in = p[1], .out = p[2], .err = p[4]};
    (void)fcntl(ret->in, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->err, F_SETFL, O_NONBLOCK);
    return MG_OK;
}

static void drain(int *fd, int stream, mg_exec_sink *sink, void *ctx, bool once)
{
    char buf[PIECE];
    while (*fd >= 0) {
        ssize_t n = read(*fd, buf, sizeof(buf));
        if (n > 0) {
            if (sink && !sink(ctx, stream, buf, (size_t)n))
                sink = NULL;
            if (once)
                return;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(*fd);
            *fd = -1;
        }
        return;
    }
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

static int until(uint64_t deadline_ns)
{
    uint64_t now = mg_now_ns();
    uint64_t ms = deadline_ns > now ? (deadline_ns - now) / 1000000u + 1 : 0;
    return !deadline_ns || ms > 60000 ? 60000 : (int)ms;
}

static void wait_for(struct child *p, const struct mg_exec_req *req, struct mg_exec_status *ret)
{
    struct mg_sv in = req->stdin_data;
    for (bool live = true; live;) {
        struct pollfd f[] = {{.fd = p->pidfd, .events = POLLIN},
                             {.fd = p->out, .events = POLLIN},
                             {.fd = p->err, .events = POLLIN},
                             {.fd = p->in, .events = POLLOUT},
                             {.fd = req->cancel ? mg_cancel_fd(req->cancel) : -1, .events = POLLIN}};
        (void)poll(f, 5, until(req->deadline_ns));
        ret->cancelled = mg_cancel_fired(req->cancel);
        ret->timed_out = !ret->cancelled && req->deadline_ns && mg_now_ns() >= req->deadline_ns;
        live = !(f[0].revents & POLLIN) && !ret->cancelled && !ret->timed_out;
        if (ret->cancelled || ret->timed_out)
            (void)kill(-p->pid, SIGKILL);
        feed(p, &in);
        drain(&p->out, 1, req->sink, req->sink_ctx, live);
        drain(&p->err, 2, req->sink, req->sink_ctx, live);
    }
}

static mg_rc ws_exec(void *box, const struct mg_exec_req *req, struct mg_exec_status *ret, struct mg_err *err)
{
    struct child p = {0};
    siginfo_t info = {0};
    *ret = (struct mg_exec_status){.exited = false};
    mg_rc rc = start(box, req, &p, err);
    if (rc < 0)
        return rc;
    wait_for(&p, req, ret);
    (void)waitid(P_PIDFD, (id_t)p.pidfd, &info, WEXITED);
    bool by_itself = !ret->cancelled && !ret->timed_out;
    ret->exited = by_itself && info.si_code == CLD_EXITED;
    ret->exit_code = ret->exited ? info.si_status : 0;
    ret->signal = by_itself && !ret->exited ? info.si_status : 0;
    close_all((int[]){p.pidfd, p.in, p.out, p.err}, 4);
    return ret->cancelled ? mg_err_set(err, MG_ECANCELED, "cancelled") : MG_OK;
}

/* ---- files ---- */

static int beneath(const struct mg_workspace *w, const char *path, int flags)
{
    size_t n = strlen(w->root);
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .resolve = w->unrestricted ? 0 : RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    if (!w->unrestricted && strncmp(path, w->root, n) == 0 && (path[n] == '/' || path[n] == '\0'))
        path += n + (path[n] == '/');
    return (int)syscall(SYS_openat2, w->fd, *path ? path : ".", &how, sizeof(how));
}

static mg_rc failed(struct mg_err *err)
{
    if (errno == EXDEV || errno == ELOOP)
        return mg_err_set(err, MG_EDENIED, "the path leads out of the work folder");
    return mg_err_errno(err, errno, "the file");
}

static mg_rc ws_read(void *box, const char *path, int64_t offset, size_t max, struct mg_buf *out, bool *ret_eof,
                     struct mg_err *err)
{
    mg_autofd int fd = beneath(box, path, O_RDONLY | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        return failed(err);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return mg_err_set(err, MG_EINVAL, "it is not a regular file");
    for (*ret_eof = false; max && !*ret_eof;) {
        size_t want = max < PIECE ? max : PIECE;
        mg_rc rc = mg_buf_reserve(out, want);
        if (rc < 0)
            return mg_err_set(err, rc, "the file is too big");
        ssize_t n = pread(fd, out->ptr + out->len, want, offset);
        if (n < 0)
            return failed(err);
        *ret_eof = n == 0;
        mg_buf_added(out, (size_t)n);
        offset += n;
        max -= (size_t)n;
    }
    return MG_OK;
}

/* Opens the folder of path, and makes the folders on the way that are missing. */
static int open_parent(const struct mg_workspace *w, const char *path, const char **ret_name)
{
    char part[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    for (const char *p = slash ? strchr(path + 1, '/') : NULL; p; p = strchr(p + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        const char *at = strrchr(part, '/');
        const char *last = at ? at + 1 : part;
        mg_autofd int there = beneath(w, part, O_PATH | O_DIRECTORY);
        if (there >= 0)
            continue;
        char up[PATH_BYTES];
        (void)snprintf(up, sizeof(up), "%.*s", at ? (int)(at - part) : 1, at ? part : ".");
        mg_autofd int parent = beneath(w, up[0] ? up : "/", O_PATH | O_DIRECTORY);
        if (parent < 0 || (mkdirat(parent, last, 0755) < 0 && errno != EEXIST))
            return -1;
    }
    (void)snprintf(part, sizeof(part), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return beneath(w, part[0] ? part : "/", O_PATH | O_DIRECTORY);
}

static mg_rc write_all(int fd, struct mg_sv content, struct mg_err *err)
{
    while (content.len) {
        ssize_t n = write(fd, content.ptr, content.len);
        if (n < 0)
            return failed(err);
        content = mg_sv_from(content, (size_t)n);
    }
    return MG_OK;
}

static mg_rc ws_write(void *box, const char *path, struct mg_sv content, struct mg_err *err)
{
    const char *name;
    char temp[48];
    struct stat st;
    mg_autofd int dir = open_parent(box, path, &name);
    if (dir < 0)
        return failed(err);
    bool there = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !S_ISREG(st.st_mode))
        return mg_err_set(err, MG_EINVAL, "it is not a regular file");
    (void)snprintf(temp, sizeof(temp), ".mango-%016llx", (unsigned long long)mg_rng_u64());
    mg_autofd int fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, there ? st.st_mode & 07777 : 0644);
    if (fd < 0)
        return failed(err);
    mg_rc rc = write_all(fd, content, err);
    if (rc == MG_OK && renameat(dir, temp, dir, name) < 0)
        rc = failed(err);
    if (rc < 0)
        (void)unlinkat(dir, temp, 0);
    return rc;
}

static mg_rc ws_stat(void *box, const char *path, struct mg_file_stat *ret, struct mg_err *err)
{
    mg_autofd int fd = beneath(box, path, O_PATH);
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

static const char *ws_root(void *box)
{
    return ((struct mg_workspace *)box)->root;
}

static const struct mg_tool_ops OPS = {
    .exec = ws_exec, .read = ws_read, .write = ws_write, .stat = ws_stat, .root = ws_root};

/* ---- the door ---- */

mg_rc mg_workspace_open(const struct mg_workspace_opts *o, struct mg_workspace **ret, struct mg_err *err)
{
    struct mg_workspace *w = mg_xcalloc(1, sizeof(*w));
    w->root = mg_xstrdup(o->root);
    w->unrestricted = o->unrestricted;
    w->fd = open(o->root, O_DIRECTORY | O_PATH | O_CLOEXEC);
    if (w->fd < 0) {
        mg_rc rc = mg_err_errno(err, errno, "the work folder %s", o->root);
        mg_workspace_close(w);
        return rc;
    }
    w->tools = mg_tools_new(&OPS, w);
    *ret = w;
    return MG_OK;
}

void mg_workspace_close(struct mg_workspace *w)
{
    if (!w)
        return;
    if (w->tools)
        mg_tools_free(w->tools);
    if (w->fd >= 0)
        close(w->fd);
    free(w->root);
    free(w);
}

bool mg_workspace_has(struct mg_sv name)
{
    return mg_tool_known(name);
}

mg_rc mg_workspace_call(struct mg_workspace *w, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel,
                        struct mg_tool_result *ret, struct mg_err *err)
{
    return mg_tool_run(w->tools, name, input, cancel, ret, err);
}
