#include "docker/box/box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/runner/runner.h"

enum {
    READ_BYTES = 64 * 1024,
    POLL_MAX = 3 + 4 * CHANNELS_MAX,
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "mango-box: %s: %s\n", what, strerror(errno));
    _exit(1);
}

/* ---- out ---- */

void box_send(struct box *b, uint32_t chan, uint8_t kind, uint8_t stream, const void *p, size_t n)
{
    struct mux_head head = {.len = (uint32_t)n, .chan = chan, .kind = kind, .stream = stream};
    if (b->out_at == b->out_len)
        b->out_at = b->out_len = 0;
    if (b->out_len + sizeof(head) + n > b->out_cap) {
        memmove(b->out, b->out + b->out_at, b->out_len - b->out_at);
        b->out_len -= b->out_at;
        b->out_at = 0;
    }
    if (b->out_len + sizeof(head) + n > b->out_cap) {
        size_t cap = 2 * b->out_cap + sizeof(head) + n;
        char *bigger = realloc(b->out, cap);
        if (!bigger)
            die("out of memory");
        b->out = bigger;
        b->out_cap = cap;
    }
    memcpy(b->out + b->out_len, &head, sizeof(head));
    if (n)
        memcpy(b->out + b->out_len + sizeof(head), p, n);
    b->out_len += sizeof(head) + n;
}

static void flush_out(struct box *b)
{
    while (b->out_at < b->out_len) {
        ssize_t n = write(STDOUT_FILENO, b->out + b->out_at, b->out_len - b->out_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            _exit(0); /* nobody is there any more; the runner ends with us */
        b->out_at += (size_t)n;
    }
}

/* ---- channels ---- */

static struct chan *find(const struct box *b, uint32_t id)
{
    for (int i = 0; i < b->n_chans; i++) {
        if (b->chans[i]->id == id)
            return b->chans[i];
    }
    return NULL;
}

struct chan *box_channel(struct box *b, uint32_t id, enum chan_kind kind)
{
    if (b->n_chans == CHANNELS_MAX || find(b, id)) {
        box_fail(b, id, EAGAIN, "too many commands at a time");
        return NULL;
    }
    struct chan *c = calloc(1, sizeof(*c));
    if (!c) {
        box_fail(b, id, ENOMEM, "");
        return NULL;
    }
    *c = (struct chan){.id = id,
                       .kind = kind,
                       .credit = MUX_WINDOW,
                       .status = -1,
                       .in = -1,
                       .out = -1,
                       .err = -1,
                       .fd = -1,
                       .dir_fd = -1};
    b->chans[b->n_chans++] = c;
    return c;
}

static void forget(struct box *b, struct chan *c)
{
    int fds[] = {c->status, c->in, c->out, c->err, c->fd, c->dir_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    free(c->input);
    for (int i = 0; i < b->n_chans; i++) {
        if (b->chans[i] == c)
            b->chans[i] = b->chans[--b->n_chans];
    }
    free(c);
}

static void send_end(struct box *b, uint32_t id, const struct mux_end *end, const char *text)
{
    char payload[sizeof(*end) + MUX_TEXT_MAX];
    size_t n = strnlen(text, MUX_TEXT_MAX);
    memcpy(payload, end, sizeof(*end));
    memcpy(payload + sizeof(*end), text, n);
    box_send(b, id, MUX_END, 0, payload, sizeof(*end) + n);
}

void box_end(struct box *b, struct chan *c, struct mux_end *end, const char *text)
{
    send_end(b, c->id, end, text);
    forget(b, c);
}

void box_fail(struct box *b, uint32_t id, int errnum, const char *text)
{
    struct mux_end end = {.error = errnum};
    send_end(b, id, &end, text);
}

/* ---- in ---- */

static void on_frame(struct box *b, const struct mux_head *h, const char *p)
{
    struct chan *c = find(b, h->chan);
    switch (h->kind) {
    case MUX_EXEC:
        command_start(b, h->chan, p, h->len);
        break;
    case MUX_READ:
        file_read(b, h->chan, p, h->len);
        break;
    case MUX_WRITE:
        file_write(b, h->chan, p, h->len);
        break;
    case MUX_STAT:
        file_stat(b, h->chan, p, h->len);
        break;
    case MUX_GREET:
        b->greeted = true;
        break;
    case MUX_PING:
        box_send(b, h->chan, MUX_PONG, 0, NULL, 0);
        break;
    case MUX_KILL:
        if (!c)
            box_fail(b, h->chan, ESRCH, ""); /* it has ended meanwhile */
        else if (c->kind == CHAN_EXEC)
            command_kill(c);
        break;
    case MUX_CLOSE:
        if (c)
            forget(b, c);
        break;
    case MUX_DATA:
        if (c && c->kind == CHAN_EXEC)
            command_input(b, c, p, h->len);
        else if (c && c->kind == CHAN_WRITE)
            file_data(b, c, p, h->len);
        break;
    case MUX_EOF:
        if (c && c->kind == CHAN_EXEC)
            command_eof(b, c);
        else if (c && c->kind == CHAN_WRITE)
            file_commit(b, c);
        break;
    case MUX_CREDIT: {
        uint32_t more = 0;
        memcpy(&more, p, h->len < sizeof(more) ? h->len : sizeof(more));
        if (c && more <= MUX_WINDOW && c->credit + more <= MUX_WINDOW)
            c->credit += more;
        break;
    }
    default:
        break;
    }
}

/* False at the end of the stream. */
static bool take_input(struct box *b)
{
    if (b->in_cap - b->in_len < READ_BYTES) {
        size_t cap = b->in_len + READ_BYTES;
        char *bigger = realloc(b->in, cap);
        if (!bigger)
            die("out of memory");
        b->in = bigger;
        b->in_cap = cap;
    }
    ssize_t n = read(STDIN_FILENO, b->in + b->in_len, READ_BYTES);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (n == 0)
        return false;
    b->in_len += (size_t)n;
    size_t at = 0;
    struct mux_head h;
    while (b->in_len - at >= sizeof(h)) {
        memcpy(&h, b->in + at, sizeof(h));
        if (h.len > MUX_REQUEST_MAX) {
            errno = EPROTO;
            die("a frame of the server");
        }
        if (b->in_len - at - sizeof(h) < h.len)
            break;
        on_frame(b, &h, b->in + at + sizeof(h));
        at += sizeof(h) + h.len;
    }
    b->in_len -= at;
    if (at && b->in_len)
        memmove(b->in, b->in + at, b->in_len);
    return true;
}

/* ---- the loop ---- */

enum { ON_STATUS, ON_OUT, ON_ERR, ON_IN };
struct watch {
    struct chan *chan;
    int what;
};

static void watch(struct pollfd *p, struct watch *w, int *n, int fd, short events, struct chan *c, int what)
{
    if (fd < 0)
        return;
    p[*n] = (struct pollfd){.fd = fd, .events = events};
    w[*n] = (struct watch){c, what};
    (*n)++;
}

static void act(struct box *b, const struct watch *w)
{
    switch (w->what) {
    case ON_STATUS:
        command_on_status(b, w->chan);
        break;
    case ON_IN:
        command_on_writable(b, w->chan);
        break;
    default:
        command_on_output(b, w->chan, w->what == ON_OUT ? 1 : 2);
        break;
    }
}

/* One wait and what comes of it. False at the end. */
static bool turn(struct box *b)
{
    static struct pollfd p[POLL_MAX];
    static struct watch w[POLL_MAX];
    int n = 0, wait_ms = -1;
    watch(p, w, &n, STDIN_FILENO, POLLIN, NULL, 0);
    watch(p, w, &n, b->runner, 0, NULL, 0);
    if (b->out_at < b->out_len)
        watch(p, w, &n, STDOUT_FILENO, POLLOUT, NULL, 0);
    int first = n;
    for (int i = 0; i < b->n_chans; i++) {
        struct chan *c = b->chans[i];
        if (c->kind == CHAN_READ && c->credit > 0 && b->out_len - b->out_at < OUT_QUEUE_MAX)
            wait_ms = 0;
        if (c->kind != CHAN_EXEC)
            continue;
        watch(p, w, &n, c->end.kind ? -1 : c->status, POLLIN, c, ON_STATUS);
        watch(p, w, &n, command_wants(b, c, 1) ? c->out : -1, POLLIN, c, ON_OUT);
        watch(p, w, &n, command_wants(b, c, 2) ? c->err : -1, POLLIN, c, ON_ERR);
        watch(p, w, &n, c->in_len > 0 ? c->in : -1, POLLOUT, c, ON_IN);
    }
    if (poll(p, (nfds_t)n, wait_ms) < 0)
        return errno == EINTR;
    if (p[1].revents) {
        errno = ECHILD;
        die("the runner has gone"); /* with everything that it had started; the server starts us anew */
    }
    /* Output first: what a command wrote before its end is read before the end is told. */
    for (int i = first; i < n; i++) {
        if (p[i].revents)
            act(b, &w[i]);
    }
    for (int i = b->n_chans - 1; i >= 0; i--) {
        struct chan *c = b->chans[i];
        if (c->kind == CHAN_READ)
            file_more(b, c);
        else if (c->kind == CHAN_EXEC)
            command_settle(b, c);
    }
    if (p[0].revents && !take_input(b))
        return false;
    flush_out(b);
    return true;
}

/* ---- start ---- */

/* The child is the runner. */
static int start_runner(const char *root)
{
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return -1;
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid > 0) {
        close(sv[1]);
        return sv[0];
    }
    signal(SIGPIPE, SIG_DFL); /* commands would inherit that it is ignored */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    close(sv[0]);
    if (null < 0 || dup2(sv[1], RUNNER_FD) < 0 || chdir(root) < 0)
        _exit(1);
    (void)close_range(RUNNER_FD + 1, ~0U, 0);
    _exit(runner_main());
}

/* Everything in the container but process 1 and this one: what an earlier server left. In a container that is told by
 * the parent, which is outside. */
static void take_over(void)
{
    enum { ROUNDS = 1000, PAUSE_US = 2000 };
    if (getppid() != 0)
        return;
    for (int i = 0; i < ROUNDS && kill(-1, SIGKILL) == 0; i++)
        usleep(PAUSE_US); /* until there is nobody to signal */
}

int box_serve(const char *root)
{
    static struct box b;
    static struct chan *chans[CHANNELS_MAX];
    b.chans = chans;
    signal(SIGPIPE, SIG_IGN);
    while (!b.greeted) {
        if (!take_input(&b))
            return 0; /* a server that died before we began: what another one runs here is not ours to end */
    }
    take_over();
    (void)relay_start();
    b.ws = (struct confine){root, open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (b.ws.root_fd < 0)
        die(root);
    if (!confine_works(b.ws.root_fd))
        die("openat2");
    b.runner = start_runner(root);
    if (b.runner < 0)
        die("the runner cannot be started");
    if (fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK) < 0)
        die("standard output");
    struct mux_hello hello = {.magic = MUX_MAGIC, .version = MUX_VERSION};
    box_send(&b, 0, MUX_HELLO, 0, &hello, sizeof(hello));
    flush_out(&b);
    while (turn(&b)) {
    }
    return 0;
}
