#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "docker/box/box.h"

/* Commands: handed to the runner with their pipes, then bytes between pipes and channel. */

/* ---- memory ---- */

static uint64_t counter(const char *path, const char *name)
{
    char text[1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

uint64_t oom_kills(void)
{
    uint64_t n = counter("/sys/fs/cgroup/memory.events", "oom_kill ");
    return n ? n : counter("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ");
}

/* ---- the start ---- */

struct parcel {
    char *strings;
    uint32_t len, argc, envc;
    int fds[WIRE_FDS_MAX];
    int n_fds;
    uint32_t flags;
};

static bool put(struct parcel *p, const char *s)
{
    size_t n = strlen(s) + 1;
    if (n > WIRE_STRING_MAX + 1UL || p->len + n > WIRE_STRINGS_MAX)
        return false;
    memcpy(p->strings + p->len, s, n);
    p->len += (uint32_t)n;
    return true;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* strings: argc + envc NUL-terminated ones, checked. Variables of the request win over those of the container. */
static bool pack(struct parcel *p, const char *strings, const struct mux_exec *x)
{
    const char *at = strings;
    for (uint32_t i = 0; i < x->argc; i++, p->argc++) {
        if (!put(p, at))
            return false;
        at += strlen(at) + 1;
    }
    const char *own = at;
    for (char **e = environ; *e; e++) {
        bool replaced = false;
        at = own;
        for (uint32_t i = 0; i < x->envc && !replaced; i++, at += strlen(at) + 1)
            replaced = same_name(*e, at);
        if (replaced)
            continue;
        if (!put(p, *e))
            return false;
        p->envc++;
    }
    at = own;
    for (uint32_t i = 0; i < x->envc; i++, p->envc++) {
        if (!put(p, at))
            return false;
        at += strlen(at) + 1;
    }
    return true;
}

static int open_streams(struct parcel *p, struct chan *c, bool keep_stdin)
{
    int sv[2], in[2], out[2], err[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return errno;
    c->status = sv[0];
    p->fds[p->n_fds++] = sv[1];
    if (keep_stdin) {
        if (pipe2(in, O_CLOEXEC) < 0)
            return errno;
        c->in = in[1];
        (void)fcntl(in[1], F_SETFL, O_NONBLOCK);
    } else if ((in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0) {
        return errno;
    }
    p->fds[p->n_fds++] = in[0];
    if (pipe2(out, O_CLOEXEC) < 0)
        return errno;
    c->out = out[0];
    p->fds[p->n_fds++] = out[1];
    if (pipe2(err, O_CLOEXEC) < 0)
        return errno;
    c->err = err[0];
    p->fds[p->n_fds++] = err[1];
    (void)fcntl(c->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->err, F_SETFL, O_NONBLOCK);
    return 0;
}

/* Strings that do not fit into the datagram go into a memory file. */
static int open_payload(struct parcel *p)
{
    if (p->len <= WIRE_INLINE_MAX)
        return 0;
    int fd = memfd_create("args", MFD_CLOEXEC);
    if (fd < 0)
        return errno;
    p->fds[p->n_fds++] = fd;
    p->flags |= WIRE_FLAG_PAYLOAD;
    for (uint32_t done = 0; done < p->len;) {
        ssize_t w = write(fd, p->strings + done, p->len - done);
        if (w <= 0)
            return w < 0 ? errno : EIO;
        done += (uint32_t)w;
    }
    return 0;
}

static int send_parcel(int sock, const struct parcel *p)
{
    struct wire_request head = {
        .magic = WIRE_MAGIC, .flags = p->flags, .argc = p->argc, .envc = p->envc, .len = p->len};
    struct iovec iov[2] = {{&head, sizeof(head)}, {p->strings, p->flags & WIRE_FLAG_PAYLOAD ? 0 : p->len}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov = iov,
                       .msg_iovlen = 2,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE((size_t)p->n_fds * sizeof(int))};
    memset(&control, 0, sizeof(control));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)p->n_fds * sizeof(int));
    memcpy(CMSG_DATA(c), p->fds, (size_t)p->n_fds * sizeof(int));
    while (sendmsg(sock, &m, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* Checks what came, so that pack may trust it: the number of strings and their ends. */
static bool whole(const char *p, size_t n, const struct mux_exec *x)
{
    if (x->argc == 0 || x->argc > WIRE_ARGS_MAX || x->envc > WIRE_ARGS_MAX)
        return false;
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += p[i] == '\0';
    return n > 0 && p[n - 1] == '\0' && found == x->argc + x->envc;
}

static int start(struct box *b, struct chan *c, const struct mux_exec *x, const char *cwd, const char *strings)
{
    struct parcel p = {.strings = malloc(WIRE_STRINGS_MAX)};
    int e = !p.strings ? ENOMEM : pack(&p, strings, x) ? 0 : E2BIG;
    if (e == 0)
        e = open_streams(&p, c, x->flags & MUX_KEEP_STDIN);
    if (e == 0 && x->cwd_len > 0) {
        int fd = confine_open(&b->ws, (struct mango_sv){cwd, x->cwd_len}, O_PATH | O_DIRECTORY);
        e = fd < 0 ? -fd : 0;
        if (fd >= 0) {
            p.fds[p.n_fds++] = fd;
            p.flags |= WIRE_FLAG_CWD;
        }
    }
    if (e == 0)
        e = open_payload(&p);
    if (e == 0)
        e = send_parcel(b->runner, &p);
    for (int i = 0; i < p.n_fds; i++)
        close(p.fds[i]);
    free(p.strings);
    return e;
}

void command_start(struct box *b, uint32_t id, const char *p, size_t n)
{
    struct mux_exec x;
    if (n < sizeof(x))
        return box_fail(b, id, EPROTO, "");
    memcpy(&x, p, sizeof(x));
    if (x.cwd_len > n - sizeof(x) || !whole(p + sizeof(x) + x.cwd_len, n - sizeof(x) - x.cwd_len, &x))
        return box_fail(b, id, EPROTO, "");
    struct chan *c = box_channel(b, id, CHAN_EXEC);
    if (!c)
        return;
    c->max_output = x.max_output;
    c->hold = x.flags & MUX_HOLD;
    c->oom_before = oom_kills();
    int e = start(b, c, &x, p + sizeof(x), p + sizeof(x) + x.cwd_len);
    if (e) {
        struct mux_end end = {.error = e};
        box_end(b, c, &end, x.cwd_len > 0 && e != E2BIG ? "cwd" : "");
    }
}

/* ---- input ---- */

static void give_credit(struct box *b, struct chan *c, uint32_t n)
{
    c->in_given += n;
    if (c->in_given < MUX_WINDOW / 4 && c->in_len > 0)
        return;
    uint32_t more = c->in_given;
    c->in_given = 0;
    box_send(b, c->id, MUX_CREDIT, 0, &more, sizeof(more));
}

static void close_input(struct box *b, struct chan *c)
{
    if (c->in >= 0)
        close(c->in);
    c->in = -1;
    uint32_t dropped = c->in_len;
    c->in_len = 0;
    if (dropped)
        give_credit(b, c, dropped);
}

void command_input(struct box *b, struct chan *c, const char *p, size_t n)
{
    if (c->in < 0 || c->in_eof)
        return give_credit(b, c, (uint32_t)n); /* nobody takes it */
    if (!c->input && !(c->input = malloc(MUX_WINDOW)))
        return close_input(b, c);
    if (n > MUX_WINDOW - c->in_len)
        return close_input(b, c); /* more than it was allowed to send */
    memcpy(c->input + c->in_len, p, n);
    c->in_len += (uint32_t)n;
    command_on_writable(b, c);
}

void command_eof(struct box *b, struct chan *c)
{
    c->in_eof = true;
    if (c->in_len == 0)
        close_input(b, c);
}

void command_on_writable(struct box *b, struct chan *c)
{
    if (c->in < 0 || c->in_len == 0)
        return;
    ssize_t n = write(c->in, c->input, c->in_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        return close_input(b, c); /* it has closed its input */
    c->in_len -= (uint32_t)n;
    memmove(c->input, c->input + n, c->in_len);
    give_credit(b, c, (uint32_t)n);
    if (c->in_len == 0 && c->in_eof)
        close_input(b, c);
}

/* ---- output and end ---- */

bool command_wants(const struct box *b, const struct chan *c, int stream)
{
    bool drop = c->silent || (c->max_output && c->seen[stream] >= c->max_output); /* needs no room */
    return drop || (c->credit > 0 && b->out_len - b->out_at < OUT_QUEUE_MAX);
}

static size_t take(struct box *b, struct chan *c, int stream)
{
    char buf[MUX_DATA_MAX];
    int *fd = stream == 1 ? &c->out : &c->err;
    if (*fd < 0 || !command_wants(b, c, stream))
        return 0;
    uint64_t room = c->silent                         ? 0
                    : !c->max_output                  ? UINT64_MAX
                    : c->seen[stream] < c->max_output ? c->max_output - c->seen[stream]
                                                      : 0;
    size_t want = room > 0 && c->credit < sizeof(buf) ? c->credit : sizeof(buf);
    ssize_t n = read(*fd, buf, want);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close(*fd);
        *fd = -1;
        return 0;
    }
    c->seen[stream] += (uint64_t)n;
    uint32_t send = (uint64_t)n < room ? (uint32_t)n : (uint32_t)room;
    if (send > 0) {
        box_send(b, c->id, MUX_DATA, (uint8_t)stream, buf, send);
        c->credit -= send;
    }
    return (size_t)n;
}

void command_on_output(struct box *b, struct chan *c, int stream)
{
    (void)take(b, c, stream);
}

void command_on_status(struct box *b, struct chan *c)
{
    struct wire_event ev;
    ssize_t n = recv(c->status, &ev, sizeof(ev), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == sizeof(ev) && ev.kind == WIRE_STARTED)
        box_send(b, c->id, MUX_STARTED, 0, NULL, 0);
    else if (n == sizeof(ev))
        c->end = ev;
    else
        c->end = (struct wire_event){.kind = UINT32_MAX}; /* its watcher was killed */
}

void command_kill(const struct chan *c)
{
    struct wire_command cmd = {.kind = WIRE_KILL};
    if (c->status >= 0)
        (void)send(c->status, &cmd, sizeof(cmd), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What lives on may go on; its output is drained by its watcher. */
static void release(const struct chan *c)
{
    struct wire_command cmd = {.kind = WIRE_RELEASE};
    int fds[2], n = 0;
    if (c->out >= 0)
        fds[n++] = c->out;
    if (c->err >= 0)
        fds[n++] = c->err;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec iov = {&cmd, sizeof(cmd)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    memset(&control, 0, sizeof(control));
    if (n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(cm), fds, (size_t)n * sizeof(int));
    }
    (void)sendmsg(c->status, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void tell_end(struct box *b, struct chan *c)
{
    struct mux_end end = {.how = MUX_HOW_LOST, .out_bytes = c->seen[1], .err_bytes = c->seen[2]};
    if (c->end.kind == WIRE_FAILED)
        end.error = c->end.status;
    if (c->end.kind == WIRE_KILLED) {
        end.how = MUX_HOW_KILLED;
        end.left = c->end.left;
    }
    bool keep = c->end.kind == WIRE_ENDED && c->hold && !c->end.alone;
    if (c->end.kind == WIRE_ENDED) {
        end.how = MUX_HOW_ENDED;
        end.status = c->end.status;
        end.peak_kib = c->end.peak_kib;
        if (!c->end.alone && !keep)
            release(c);
    }
    end.oom = oom_kills() > c->oom_before;
    end.held = keep;
    if (!keep)
        return box_end(b, c, &end, "");
    box_send(b, c->id, MUX_END, 0, &end, sizeof(end));
    c->silent = true;
    c->end.kind = 0;
}

void command_settle(struct box *b, struct chan *c)
{
    if (!c->end.kind)
        return;
    while (c->drained < 2 * DRAIN_MAX) {
        size_t n = take(b, c, 1) + take(b, c, 2);
        c->drained += n;
        if (n == 0)
            break;
    }
    bool held = (c->out >= 0 && !command_wants(b, c, 1)) || (c->err >= 0 && !command_wants(b, c, 2));
    if (held && c->drained < 2 * DRAIN_MAX)
        return; /* until the other side has room */
    tell_end(b, c);
}
