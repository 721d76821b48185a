/* The private PostgreSQL: starting or adopting its postmaster, stopping it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/child.h"
#include "store/embedded-internal.h"
#include "store/pg.h"

enum {
    LOG_KEEP = 16 * 1024 * 1024, /* bytes of the server's log before it is moved aside at a start */
    TICK_MS = 5,                 /* between two looks at a starting server */
    QUIT_MS = 5000,              /* an immediate shutdown */
    PIDFILE_LINES = 8,
    STARTS = 3,
    START_PAUSE_MS = 300,
};

struct pidfile {
    pid_t pid; /* 0: there is none */
    char socket[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    bool ready;
};

static struct pidfile read_pidfile(const char *data)
{
    struct pidfile f = {.pid = 0};
    char text[8192];
    mg_autofree char *path = mg_text_of("%s/postmaster.pid", data);
    mg_autofd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n <= 0)
        return f;
    struct mg_sv rest = mg_sv_n(text, (size_t)n), line[PIDFILE_LINES] = {{NULL, 0}};
    for (int i = 0; i < PIDFILE_LINES && rest.len > 0; i++)
        line[i] = mg_sv_trim(mg_sv_split(&rest, '\n'));
    int64_t pid = 0;
    if (mg_sv_to_i64(line[0], &pid) && pid > 1)
        f.pid = (pid_t)pid;
    snprintf(f.socket, sizeof(f.socket), "%.*s", (int)line[4].len, line[4].ptr ? line[4].ptr : "");
    f.ready = mg_sv_eqz(line[7], "ready");
    return f;
}

/* Whether the process was started as spawn_postmaster does it, by its command line, which everybody may read. */
static bool has_its_words(const char *data, pid_t pid)
{
    char proc[64], words[PATH_MAX * 2];
    snprintf(proc, sizeof(proc), "/proc/%d/cmdline", (int)pid);
    mg_autofd int fd = open(proc, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, words, sizeof(words)) : -1;
    struct mg_sv rest = mg_sv_n(words, n > 0 ? (size_t)n : 0), program = mg_sv_split(&rest, '\0');
    return mg_sv_ends(program, "/postgres") && mg_sv_eqz(mg_sv_split(&rest, '\0'), "-D") &&
           mg_sv_eqz(mg_sv_split(&rest, '\0'), data);
}

/* A postmaster works in its data folder: that tells it from a process that got its number later. It has another user where we are
 * root, and root without CAP_SYS_PTRACE, as in most containers, does not see the folder. */
static bool is_postmaster(const char *data, pid_t pid)
{
    char proc[64];
    struct stat its, ours;
    snprintf(proc, sizeof(proc), "/proc/%d/cwd", (int)pid);
    if (pid <= 1)
        return false;
    if (stat(proc, &its) < 0)
        return errno == EACCES && has_its_words(data, pid);
    return stat(data, &ours) == 0 && its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
}

static bool running(const struct mg_embedded *e)
{
    return e->pid > 0 && !mg_process_ends(e->pid, 0) && is_postmaster(e->data, e->pid);
}

static void reap(struct mg_embedded *e)
{
    if (e->child && e->pid > 0)
        (void)!waitpid(e->pid, NULL, WNOHANG);
    e->pid = 0;
    e->child = false;
}

/* PostgreSQL refuses to start while the number in its lock files is alive, whoever has it now, and takes a dead process that nobody
 * has waited for as alive: both are common in containers. */
static void remove_stale_locks(const struct mg_embedded *e)
{
    if (is_postmaster(e->data, read_pidfile(e->data).pid))
        return;
    mg_autofree char *pidfile = mg_text_of("%s/postmaster.pid", e->data);
    mg_autofree char *lock = mg_text_of("%s/.s.PGSQL.%d.lock", e->socket, MG_EMBEDDED_PORT);
    (void)!unlink(pidfile);
    (void)!unlink(lock);
}

static int open_log(const struct mg_embedded *e, struct mg_err *err)
{
    struct stat st;
    mg_autofree char *old = mg_text_of("%s.1", e->log);
    if (lstat(e->log, &st) == 0 && st.st_size > LOG_KEEP)
        (void)!rename(e->log, old);
    int fd = open(e->log, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        mg_err_set(err, MG_ECONFIG, "%s cannot be written: %s", e->log, strerror(errno));
    return fd;
}

/* For unix_socket_directories, a list in which double quotes guard spaces. */
static char *quoted(const char *path)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    mg_buf_str(&b, "unix_socket_directories=\"");
    for (const char *p = path; *p; p++) {
        if (*p == '"')
            mg_buf_char(&b, '"');
        mg_buf_char(&b, *p);
    }
    mg_buf_char(&b, '"');
    return mg_buf_steal(&b, NULL);
}

static mg_rc spawn_postmaster(struct mg_embedded *e, struct mg_err *err)
{
    mg_autofree char *program = mg_text_of("%s/postgres", e->install.bindir);
    mg_autofree char *sockets = quoted(e->socket);
    mg_autofree char *port = mg_text_of("port=%d", MG_EMBEDDED_PORT);
    const char *const argv[] = {program,
                                "-D",
                                e->data,
                                "-c",
                                "listen_addresses=",
                                "-c",
                                sockets,
                                "-c",
                                port,
                                "-c",
                                "unix_socket_permissions=0700",
                                NULL};
    mg_autofd int log = open_log(e, err);
    if (log < 0)
        return MG_ECONFIG;
    remove_stale_locks(e);
    mg_rc rc = mg_child_spawn(
        &(struct mg_child_spec){.argv = argv, .user = *e->user ? e->user : NULL, .out_fd = log, .session = true},
        &e->pid, err);
    e->child = rc == 0;
    return rc;
}

/* The last line that gives a reason, or the last one. */
static struct mg_sv last_words(struct mg_sv log)
{
    struct mg_sv last = {"", 0};
    while (log.len > 0) {
        struct mg_sv line = mg_sv_trim(mg_sv_split(&log, '\n'));
        if (line.len > 0 && (memmem(line.ptr, line.len, "FATAL", 5) || !memmem(last.ptr, last.len, "FATAL", 5)))
            last = line;
    }
    return last;
}

static mg_rc came_down(const struct mg_embedded *e, const char *what, struct mg_err *err)
{
    char tail[4096];
    mg_autofd int fd = open(e->log, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    ssize_t n =
        fd >= 0 ? pread(fd, tail, sizeof(tail), size > (off_t)sizeof(tail) ? size - (off_t)sizeof(tail) : 0) : 0;
    struct mg_sv said = last_words(mg_sv_n(tail, n > 0 ? (size_t)n : 0));
    return mg_err_set(err, MG_EUNAVAIL, "the embedded PostgreSQL %s; its log %s says: %.*s", what, e->log,
                      MG_SV_ARG(said));
}

static mg_rc wait_ready(struct mg_embedded *e, uint64_t deadline_ns, struct mg_err *err)
{
    for (;;) {
        struct pidfile f = read_pidfile(e->data);
        if (f.ready && f.pid == e->pid)
            return MG_OK;
        if (mg_process_ends(e->pid, TICK_MS)) {
            reap(e);
            return came_down(e, "ended while it started", err);
        }
        if (mg_now_ns() > deadline_ns) {
            came_down(e, "did not become ready in time", err);
            return MG_ETIMEOUT;
        }
    }
}

static void pg_cleanup(struct mg_pg **pg)
{
    mg_pg_free(*pg);
}

static mg_rc make_database(const struct mg_embedded *e, struct mg_err *err)
{
    static const struct mg_stmt find = {"embedded_find", "SELECT 1 FROM pg_database WHERE datname = 'mango'"};
    static const struct mg_stmt create = {"embedded_create", "CREATE DATABASE mango TEMPLATE template0"};
    mg_autofree char *conninfo = mg_embedded_conninfo_of(e->socket, "postgres");
    struct mg_pg *pg __attribute__((cleanup(pg_cleanup))) = mg_pg_new(conninfo);
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_pg_exec(pg, &find, NULL, 0, &r, err);
    if (rc == 0 && mg_res_rows(r) == 0)
        rc = mg_pg_exec(pg, &create, NULL, 0, NULL, err);
    return rc < 0 ? mg_err_wrap(err, rc, "embedded database (%s)", mg_pg_diag(pg)) : MG_OK;
}

/* Takes over a postmaster that the mangod before left behind. One that is on its way down is waited for. */
static void adopt(struct mg_embedded *e, uint64_t deadline_ns)
{
    struct pidfile f = read_pidfile(e->data);
    if (!is_postmaster(e->data, f.pid))
        return;
    while (!f.ready && mg_now_ns() < deadline_ns && !mg_process_ends(f.pid, TICK_MS))
        f = read_pidfile(e->data);
    if (!is_postmaster(e->data, f.pid))
        return;
    e->pid = f.pid;
    e->adopted = true;
}

static mg_rc bring_up(struct mg_embedded *e, struct mg_err *err)
{
    uint64_t deadline = mg_now_ns() + (uint64_t)MG_EMBEDDED_READY_MS * 1000000;
    adopt(e, deadline);
    if (e->pid > 0 &&
        strcmp(read_pidfile(e->data).socket, e->socket) != 0) { /* the state folder was moved while it ran */
        mg_rc rc = mg_embedded_stop(e, err);
        if (rc < 0)
            return rc;
    }
    if (e->pid > 0)
        return MG_OK;
    e->adopted = false;
    mg_rc rc = MG_EUNAVAIL;
    /* after a kill the last processes of the server before hold its shared memory for a moment, and the start is refused */
    for (int i = 0; i < STARTS && rc == MG_EUNAVAIL; i++) {
        if (i > 0)
            (void)!poll(NULL, 0, START_PAUSE_MS);
        rc = spawn_postmaster(e, err);
        if (rc == 0)
            rc = wait_ready(e, deadline, err);
    }
    return rc;
}

mg_rc mg_embedded_start(const struct mg_state_dir *dir, const char *bindir, struct mg_embedded **ret,
                        struct mg_err *err)
{
    struct mg_embedded *e = mg_xcalloc(1, sizeof(*e));
    mg_rc rc = mg_cluster_prepare(e, dir, bindir, err);
    if (rc == 0)
        rc = bring_up(e, err);
    if (rc == 0) {
        rc = make_database(e, err);
        if (rc < 0 && !e->adopted)
            (void)!mg_embedded_stop(e, NULL);
    }
    if (rc < 0) {
        mg_embedded_free(e);
        return rc;
    }
    *ret = e;
    return MG_OK;
}

mg_rc mg_embedded_revive(struct mg_embedded *e, struct mg_err *err)
{
    if (running(e))
        return MG_OK;
    reap(e);
    return bring_up(e, err);
}

mg_rc mg_embedded_stop(struct mg_embedded *e, struct mg_err *err)
{
    if (!running(e)) {
        reap(e);
        return MG_OK;
    }
    bool ended = kill(e->pid, SIGINT) == 0 && mg_process_ends(e->pid, MG_EMBEDDED_STOP_MS);
    if (!ended) {
        kill(e->pid, SIGQUIT); /* the next start replays its log */
        (void)mg_process_ends(e->pid, QUIT_MS);
    }
    reap(e);
    return ended ? MG_OK
                 : mg_err_set(err, MG_ETIMEOUT, "the embedded PostgreSQL did not stop within %d s and was ended",
                              MG_EMBEDDED_STOP_MS / 1000);
}

void mg_embedded_free(struct mg_embedded *e)
{
    if (!e)
        return;
    free(e->root);
    free(e->data);
    free(e->socket);
    free(e->log);
    free(e->conninfo);
    free(e);
}

mg_rc mg_embedded_locate(const char *state_path, char **ret_conninfo, struct mg_err *err)
{
    char *real = realpath(state_path, NULL);
    if (!real)
        return mg_err_set(err, MG_ENOTFOUND, "state folder %s: %s", state_path, strerror(errno));
    mg_autofree char *path = real;
    mg_autofree char *data = mg_text_of("%s/pg/data", path);
    struct pidfile f = read_pidfile(data);
    if (!f.ready || !is_postmaster(data, f.pid))
        return mg_err_set(err, MG_EUNAVAIL, "no database runs in %s: start mangod first", state_path);
    *ret_conninfo = mg_embedded_conninfo_of(f.socket, "mango");
    return MG_OK;
}

const char *mg_embedded_conninfo(const struct mg_embedded *e)
{
    return e->conninfo;
}

long mg_embedded_pid(const struct mg_embedded *e)
{
    return e->pid;
}

bool mg_embedded_adopted(const struct mg_embedded *e)
{
    return e->adopted;
}
