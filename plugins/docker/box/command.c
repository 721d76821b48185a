#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/inside/inside.h"
#include "docker/box/box.h"

/* Commands: handed to the runner with their pipes, then bytes between pipes and channel. */

/* ---- memory ---- */

uint64_t oom_kills(void)
{
    uint64_t n = kernel_counter("/sys/fs/cgroup/memory.events", "oom_kill ");
    return n ? n : kernel_counter("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ");
}

/* ---- the start ---- */

/* strings: argc + envc NUL-terminated ones, checked. Variables of the request win over those of the container. 0 or errno. */
static int pack(struct parcel *p, const char *strings, const struct mux_exec *x)
{
    uint64_t n = (uint64_t)x->argc + x->envc;
    struct mango_sv *all = calloc(n, sizeof(*all));
    for (uint64_t i = 0; all && i < n; i++, strings += all[i - 1].len + 1)
        all[i] = sv_z(strings);
    int e = ENOMEM;
    if (all && parcel_begin(p, WIRE_STRINGS_MAX))
        e = parcel_args(p, all, x->argc) && parcel_env(p, environ, all + x->argc, x->envc) ? 0 : E2BIG;
    free(all);
    return e;
}

/* The command's standard input; -1: errno tells. */
static int open_input(struct chan *c, bool keep_stdin)
{
    int in[2];
    if (!keep_stdin)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (pipe2(in, O_CLOEXEC) < 0)
        return -1;
    c->in = in[1];
    (void)fcntl(in[1], F_SETFL, O_NONBLOCK);
    return in[0];
}

static int open_streams(struct parcel *p, struct chan *c, bool keep_stdin)
{
    struct ends ends = {-1, -1, -1};
    int in = open_input(c, keep_stdin);
    int e = in < 0 ? errno : parcel_streams(p, in, &ends);
    c->status = ends.status;
    c->out = ends.out;
    c->err = ends.err;
    return e;
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
    struct parcel p = {0};
    int e = pack(&p, strings, x);
    if (e == 0)
        e = open_streams(&p, c, x->flags & MUX_KEEP_STDIN);
    if (e == 0 && x->cwd_len > 0) {
        int fd = confine_open(&b->ws, (struct mango_sv){cwd, x->cwd_len}, O_PATH | O_DIRECTORY);
        e = fd < 0 ? -fd : 0;
        if (fd >= 0)
            parcel_fd(&p, fd, WIRE_FLAG_CWD);
    }
    if (e == 0)
        e = parcel_payload(&p);
    if (e == 0)
        e = parcel_send(b->runner, &p);
    parcel_done(&p);
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
    if (!status_hear(c->status, &ev))
        return;
    if (ev.kind == WIRE_STARTED)
        box_send(b, c->id, MUX_STARTED, 0, NULL, 0);
    else
        c->end = ev;
}

void command_kill(const struct chan *c)
{
    status_kill(c->status);
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
            status_release(&(struct ends){c->status, c->out, c->err});
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
