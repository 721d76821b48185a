#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/hostbox/remove.h"
#include "process/process.h"

enum { SLICE_MS = 200, PIECE = 16384, FREE_NS = 2000000 };

bool box_id_parse(struct mango_sv id, struct box_id *ret)
{
    if (id.len <= NAME_LEN + 1 || id.len > ID_MAX || memcmp(id.ptr, "session-", 8) != 0 || id.ptr[NAME_LEN] != '/' ||
        !sv_hex((struct mango_sv){id.ptr + 8, KEY_LEN}, KEY_LEN))
        return false;
    *ret = (struct box_id){0};
    memcpy(ret->name, id.ptr, NAME_LEN);
    memcpy(ret->work_id, id.ptr + NAME_LEN + 1, id.len - NAME_LEN - 1);
    return true;
}

int home_open(const struct process *p, const char *name)
{
    return openat(p->base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool home_busy(int home_fd)
{
    int fd = openat(home_fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    bool busy = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return busy;
}

/* The keeper as a descriptor; -1 when that process is no more. */
static int keeper_open(const struct state *s)
{
    int fd = s->keeper > 0 ? pidfd_open(s->keeper, 0) : -1;
    if (fd >= 0 && process_start(s->keeper) != s->start) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool wait_gone(int pidfd, uint64_t ms)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int limit = ms > INT32_MAX ? INT32_MAX : (int)ms;
    int n;
    while ((n = poll(&p, 1, limit)) < 0 && errno == EINTR) {
    }
    return n > 0;
}

/* Where this process is what orphans go to, the keeper is its child now. */
static void reap(const struct state *s)
{
    (void)waitpid(s->keeper, NULL, WNOHANG);
}

bool keeper_end(const struct process *p, int home_fd, const struct state *s, uint64_t grace_ms)
{
    int fd = keeper_open(s);
    (void)p;
    bool gone = fd < 0;
    if (!gone && grace_ms > 0) {
        (void)pidfd_send_signal(fd, SIGTERM, NULL, 0);
        gone = wait_gone(fd, grace_ms);
    }
    if (!gone) {
        (void)pidfd_send_signal(fd, KEEPER_KILL, NULL, 0);
        gone = wait_gone(fd, FORCE_MS);
    }
    if (!gone) { /* stopped, or stuck: the worker goes with it, and what that started goes with the worker */
        (void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
        gone = wait_gone(fd, FORCE_MS);
    }
    if (fd >= 0)
        close(fd);
    reap(s);
    return gone && !home_busy(home_fd);
}

/* ---- watch ---- */

static void tell(const struct process *p, struct mango_launch_state *out, const char *text)
{
    if (out->reason)
        (void)p->host->buf_append(p->host, out->reason, text, strlen(text));
}

static void ended(const struct process *p, const struct state *s, struct mango_launch_state *out)
{
    out->state = MANGO_LAUNCH_ENDED;
    out->result.exited = s->what == STATE_ENDED && s->exit_code >= 0;
    out->result.exit_code = out->result.exited ? s->exit_code : 0;
    out->result.signal = s->what == STATE_ENDED && s->signal > 0 ? s->signal : 0;
    out->result.unknown = !out->result.exited && !out->result.signal;
    if (out->result.unknown)
        tell(p, out, "the box was killed, and nobody saw how its worker ended");
}

/* Fills *now with what holds at this moment. *ret_fd: the keeper, while it runs. */
static void look(const struct process *p, const struct box_id *id, struct mango_launch_state *now, int *ret_fd)
{
    struct state s = {0};
    int home = home_open(p, id->name);
    *ret_fd = -1;
    now->state = MANGO_LAUNCH_GONE;
    if (home >= 0 && state_read(home, &s) && strcmp(s.work_id, id->work_id) == 0) {
        *ret_fd = s.what == STATE_RUNNING ? keeper_open(&s) : -1;
        if (*ret_fd < 0)
            (void)state_read(home, &s); /* its last word, written just before it left */
        if (*ret_fd >= 0)
            now->state = MANGO_LAUNCH_RUNNING;
        else
            ended(p, &s, now);
        if (*ret_fd < 0)
            reap(&s);
    }
    if (home >= 0)
        close(home);
}

static bool wait_change(const struct process *p, const struct mango_call *call, int fd, bool *ret_cancelled)
{
    int cancel = p->host->cancel_fd(p->host, call);
    struct pollfd f[2] = {{.fd = fd, .events = POLLIN}, {.fd = cancel, .events = POLLIN}};
    for (;;) {
        uint64_t now = now_ns(p->host), left = SLICE_MS * UINT64_C(1000000);
        if (call->deadline_ns && now >= call->deadline_ns)
            return false;
        if (call->deadline_ns && call->deadline_ns - now < left)
            left = call->deadline_ns - now;
        struct timespec ts = {.tv_nsec = (long)left};
        int n = ppoll(f, 2, &ts, NULL);
        *ret_cancelled = p->host->cancelled(p->host, call) != 0;
        if (*ret_cancelled || (n > 0 && f[0].revents))
            return true;
    }
}

mango_status process_watch(void *ctx, const struct mango_call *call, struct mango_sv id,
                           struct mango_launch_state *state)
{
    const struct process *p = ctx;
    struct box_id b;
    if (!box_id_parse(id, &b))
        return fail(p->host, call, MANGO_EINVALID, "'%.*s' is no box of this launcher", (int)id.len, id.ptr);
    uint32_t was = state->state;
    for (;;) {
        int fd;
        bool cancelled = false;
        look(p, &b, state, &fd);
        bool more = state->state == was && fd >= 0 && wait_change(p, call, fd, &cancelled);
        if (fd >= 0)
            close(fd);
        if (cancelled)
            return MANGO_ECANCELED;
        if (!more)
            return MANGO_OK;
    }
}

mango_status process_stop(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t grace_ms)
{
    const struct process *p = ctx;
    struct box_id b;
    struct state s;
    if (!box_id_parse(id, &b))
        return fail(p->host, call, MANGO_EINVALID, "'%.*s' is no box of this launcher", (int)id.len, id.ptr);
    int home = home_open(p, b.name);
    bool ours = home >= 0 && state_read(home, &s) && strcmp(s.work_id, b.work_id) == 0;
    bool gone = !ours || keeper_end(p, home, &s, grace_ms);
    /* The log stays for people; the state goes, so that the item is of the past. A launch of the next item may have begun meanwhile. */
    if (ours && gone && state_read(home, &s) && strcmp(s.work_id, b.work_id) == 0)
        (void)unlinkat(home, "state", 0);
    if (home >= 0)
        close(home);
    return gone ? MANGO_OK : fail(p->host, call, MANGO_ERETRY, "the box of %s does not end", b.work_id);
}

/* ---- what is there ---- */

static bool owned_by(int home, struct mango_sv owner)
{
    char found[KEY_LEN + 1] = "";
    int fd = openat(home, "owner", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool is = fd >= 0 && read(fd, found, KEY_LEN) == KEY_LEN && sv_is(owner, found);
    if (fd >= 0)
        close(fd);
    return is;
}

static bool give_box(int home, const char *name, struct mango_sv owner, mango_owned_fn *fn, void *fn_ctx)
{
    struct state s;
    struct stat st;
    char id[ID_MAX + 1];
    if (!owned_by(home, owner) || !state_read(home, &s) || fstat(home, &st) < 0)
        return false;
    int n = snprintf(id, sizeof(id), "%s/%s", name, s.work_id);
    struct mango_owned item = {.struct_size = sizeof(item),
                               .id = {id, (uint64_t)n},
                               .label = {name + 8, KEY_LEN},
                               .created_us = (int64_t)st.st_ctim.tv_sec * 1000000};
    return fn(fn_ctx, &item) != 0;
}

mango_status process_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                                void *fn_ctx)
{
    const struct process *p = ctx;
    int copy = openat(p->base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d)
        return fail(p->host, call, MANGO_EINTERNAL, "cannot list the folders: %s", strerror(errno));
    bool stop = false;
    for (struct dirent *e; !stop && (e = readdir(d));) {
        bool ours = strlen(e->d_name) == NAME_LEN && memcmp(e->d_name, "session-", 8) == 0;
        int home = ours ? home_open(p, e->d_name) : -1;
        if (home < 0)
            continue;
        stop = give_box(home, e->d_name, owner, fn, fn_ctx);
        close(home);
    }
    closedir(d);
    return MANGO_OK;
}

mango_status process_logs(void *ctx, const struct mango_call *call, struct mango_sv id, mango_sink_fn *sink,
                          void *sink_ctx)
{
    const struct process *p = ctx;
    struct box_id b;
    char piece[PIECE];
    if (!box_id_parse(id, &b))
        return fail(p->host, call, MANGO_EINVALID, "'%.*s' is no box of this launcher", (int)id.len, id.ptr);
    int home = home_open(p, b.name);
    int fd = home >= 0 ? openat(home, "log", O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    for (ssize_t n; fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0;) {
        if (sink(sink_ctx, 2, piece, (uint64_t)n) != 0)
            break;
    }
    if (fd >= 0)
        close(fd);
    if (home >= 0)
        close(home);
    return MANGO_OK;
}

mango_status process_forget(void *ctx, const struct mango_call *call, struct mango_sv label)
{
    const struct process *p = ctx;
    char name[NAME_LEN + 1], trash[64], random[17];
    if (!sv_hex(label, KEY_LEN))
        return fail(p->host, call, MANGO_EINVALID, "label must be %d lowercase hex digits", KEY_LEN);
    snprintf(name, sizeof(name), "session-%.*s", KEY_LEN, label.ptr);
    int home = home_open(p, name);
    if (home < 0)
        return MANGO_OK;
    bool busy = home_busy(home);
    close(home);
    if (busy)
        return fail(p->host, call, MANGO_EDENIED, "a box of this session runs; stop it first");
    random_hex(random, 16);
    snprintf(trash, sizeof(trash), ".trash-%s", random);
    if (renameat(p->base_fd, name, p->base_fd, trash) < 0)
        return errno == ENOENT ? MANGO_OK
                               : fail(p->host, call, MANGO_ERETRY, "cannot remove %s: %s", name, strerror(errno));
    int e = remove_tree(p->base_fd, trash);
    return e ? fail(p->host, call, MANGO_ERETRY, "cannot remove all of %s: %s", name, strerror(e)) : MANGO_OK;
}
