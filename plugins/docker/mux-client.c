#include "docker/mux-client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/json.h"

enum {
    READ_BYTES = 64 * 1024,
    SEND_MS = 10000,  /* for the Engine to take a frame; it copies at once what mango-box always reads */
    HELLO_MS = 20000, /* for mango-box to run: an exec takes 65 ms, on a busy host a hundred times that */
    OPEN_TRIES = 3,
    PING_MS = 5000,
    SILENCE_S = 30,      /* without a frame before the connection is asked */
    FLAG_MS = 100,       /* between two looks at the token when it has no descriptor */
    QUEUE_SLACK = 65536, /* bytes beyond the window: frames that need no credit */
};

struct mux {
    struct docker *docker;
    mango_conn conn;
    pthread_mutex_t lock, writing;
    unsigned refs; /* guarded by lock, as all that follows */
    bool dead, reading, closed;
    uint32_t next_id;
    uint64_t heard_ns; /* when the last frame came */
    struct mux_chan *chans;
    struct demux demux; /* of the call that reads */
};

/* ---- lifetime ---- */

void mux_ref(struct mux *m)
{
    pthread_mutex_lock(&m->lock);
    m->refs++;
    pthread_mutex_unlock(&m->lock);
}

static void wake_all(struct mux *m)
{
    for (struct mux_chan *c = m->chans; c; c = c->next) {
        if (c->waits)
            (void)eventfd_write(c->wake, 1);
    }
}

void mux_kill(struct mux *m)
{
    pthread_mutex_lock(&m->lock);
    bool close = !m->closed;
    m->dead = m->closed = true;
    wake_all(m);
    pthread_mutex_unlock(&m->lock);
    if (close)
        m->docker->host->conn_close(m->docker->host, m->conn);
}

void mux_unref(struct mux *m)
{
    pthread_mutex_lock(&m->lock);
    bool last = --m->refs == 0;
    pthread_mutex_unlock(&m->lock);
    if (!last)
        return;
    mux_kill(m);
    demux_free(&m->demux);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->writing);
    free(m);
}

bool mux_alive(struct mux *m)
{
    pthread_mutex_lock(&m->lock);
    bool alive = !m->dead;
    pthread_mutex_unlock(&m->lock);
    return alive;
}

/* ---- channels ---- */

static struct mux_chan *add_chan(struct mux *m, uint32_t id)
{
    struct mux_chan *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    *c = (struct mux_chan){.mux = m, .id = id, .last = &c->first, .wake = -1, .credit = MUX_WINDOW};
    pthread_mutex_lock(&m->lock);
    if (!id)
        m->next_id = 1;
    else
        c->id = m->next_id++;
    m->refs++;
    c->next = m->chans;
    m->chans = c;
    pthread_mutex_unlock(&m->lock);
    return c;
}

struct mux_chan *mux_chan_open(struct mux *m)
{
    return add_chan(m, 1);
}

/* With the lock held. One that waits goes on reading when the one that read has left. */
static void hand_over(struct mux *m)
{
    for (struct mux_chan *c = m->chans; c && !m->reading; c = c->next) {
        if (c->waits) {
            (void)eventfd_write(c->wake, 1);
            return;
        }
    }
}

void mux_chan_reopen(struct mux_chan *c)
{
    pthread_mutex_lock(&c->mux->lock);
    c->ended = false;
    pthread_mutex_unlock(&c->mux->lock);
}

static bool has_ended(struct mux_chan *c)
{
    pthread_mutex_lock(&c->mux->lock);
    bool ended = c->ended;
    pthread_mutex_unlock(&c->mux->lock);
    return ended;
}

void mux_chan_close(struct mux_chan *c, const struct mango_call *call)
{
    struct mux *m = c->mux;
    if (c->id && !has_ended(c))
        (void)mux_send(c, call, MUX_CLOSE, no_text());
    pthread_mutex_lock(&m->lock);
    for (struct mux_chan **at = &m->chans; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    pthread_mutex_unlock(&m->lock);
    for (struct frame *f = c->first, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    if (c->wake >= 0)
        close(c->wake);
    free(c);
    mux_unref(m);
}

/* Called by the reader, with the lock held. */
static void on_frame(void *ctx, struct frame *f)
{
    struct mux *m = ctx;
    struct mux_chan *c = m->chans;
    while (c && c->id != f->head.chan)
        c = c->next;
    if (!c || c->ended) {
        free(f); /* a channel that was closed meanwhile */
        return;
    }
    if (f->head.kind == MUX_CREDIT) {
        uint32_t more = 0;
        memcpy(&more, f->data, f->head.len < sizeof(more) ? f->head.len : sizeof(more));
        c->credit = more <= MUX_WINDOW - c->credit ? c->credit + more : MUX_WINDOW;
        free(f);
        if (c->waits)
            (void)eventfd_write(c->wake, 1);
        return;
    }
    c->ended = f->head.kind == MUX_END;
    c->queued += f->head.len;
    if (c->queued > MUX_WINDOW + QUEUE_SLACK)
        m->dead = true; /* it does not keep to the credit */
    *c->last = f;
    c->last = &f->next;
    if (c->waits)
        (void)eventfd_write(c->wake, 1);
}

/* ---- writing ---- */

bool mux_send(struct mux_chan *c, const struct mango_call *call, uint8_t kind, struct mango_sv payload)
{
    struct mux *m = c->mux;
    const struct mango_host *h = m->docker->host;
    const struct mux_head head = {.len = (uint32_t)payload.len, .chan = c->id, .kind = kind};
    char small[1024];
    if (!mux_alive(m))
        return false;
    pthread_mutex_lock(&m->writing);
    struct mango_call own = {.struct_size = sizeof(own),
                             .deadline_ns = h->now_ns(h) + SEND_MS * UINT64_C(1000000),
                             .err = call ? call->err : NULL};
    memcpy(small, &head, sizeof(head));
    bool one = sizeof(head) + payload.len <= sizeof(small);
    if (one && payload.len)
        memcpy(small + sizeof(head), payload.ptr, payload.len);
    mango_status s = h->conn_write(h, &own, m->conn, small, sizeof(head) + (one ? payload.len : 0));
    if (s == MANGO_OK && !one)
        s = h->conn_write(h, &own, m->conn, payload.ptr, payload.len);
    pthread_mutex_unlock(&m->writing);
    if (s < 0)
        mux_kill(m); /* a part of the frame may be out */
    return s == MANGO_OK;
}

void mux_used(struct mux_chan *c, const struct mango_call *call, uint32_t n)
{
    c->taken += n;
    if (c->taken < MUX_WINDOW / 4 || has_ended(c))
        return;
    uint32_t more = c->taken;
    c->taken = 0;
    (void)mux_send(c, call, MUX_CREDIT, (struct mango_sv){(const char *)&more, sizeof(more)});
}

/* ---- waiting ---- */

static struct frame *pop(struct mux_chan *c)
{
    struct frame *f = c->first;
    if (!f)
        return NULL;
    c->first = f->next;
    if (!c->first)
        c->last = &c->first;
    c->queued -= f->head.len;
    f->next = NULL;
    return f;
}

/* With `reading` set by this call, and without the lock. Reads once, for all. Returns 0 to look again. */
static int read_once(struct mux *m, const struct mango_call *call, uint64_t until_ns)
{
    const struct mango_host *h = m->docker->host;
    char buf[READ_BYTES];
    uint64_t n = 0;
    struct mango_call own = {
        .struct_size = sizeof(own), .deadline_ns = until_ns, .token = call->token, .err = call->err};
    mango_status s = h->conn_read(h, &own, m->conn, buf, sizeof(buf), &n);
    pthread_mutex_lock(&m->lock);
    int what = 0;
    if (s == MANGO_OK && n > 0) {
        m->heard_ns = h->now_ns(h);
        if (!demux_feed(&m->demux, buf, n))
            m->dead = true;
    } else if (s == MANGO_ETIMEOUT) {
        what = MUX_TIME;
    } else if (s == MANGO_ECANCELED && !m->dead && h->cancelled(h, call)) {
        what = MUX_CANCEL;
    } else {
        m->dead = true;
    }
    if (m->dead)
        wake_all(m);
    pthread_mutex_unlock(&m->lock);
    return what;
}

/* While another call reads. Returns 0 to look again. */
static int wait_for_reader(struct mux_chan *c, const struct mango_call *call, uint64_t until_ns)
{
    const struct mango_host *h = c->mux->docker->host;
    struct pollfd p[2] = {{.fd = c->wake, .events = POLLIN}, {.fd = h->cancel_fd(h, call), .events = POLLIN}};
    bool by_flag = call->token && p[1].fd < 0; /* the host is out of descriptors */
    uint64_t now = h->now_ns(h), left = until_ns > now ? until_ns - now : 0;
    if (by_flag && (!until_ns || left > FLAG_MS * UINT64_C(1000000)))
        left = FLAG_MS * UINT64_C(1000000);
    struct timespec ts = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
    int n = ppoll(p, 2, until_ns || by_flag ? &ts : NULL, NULL);
    if ((n > 0 && p[1].revents) || (by_flag && h->cancelled(h, call)))
        return MUX_CANCEL;
    if (n > 0) {
        eventfd_t v;
        (void)eventfd_read(c->wake, &v);
        return 0;
    }
    return n == 0 && until_ns && h->now_ns(h) >= until_ns ? MUX_TIME : 0;
}

/* With the lock held: what the caller waits for is there. 0: not yet. */
static int look(struct mux_chan *c, bool want_room, struct frame **ret)
{
    if (ret && (*ret = pop(c)))
        return MUX_GOT;
    if ((!ret || want_room) && c->credit > 0 && !c->ended)
        return MUX_ROOM;
    return c->mux->dead || (!ret && c->ended) ? MUX_LOST : 0;
}

int mux_wait(struct mux_chan *c, const struct mango_call *call, uint64_t until_ns, bool want_room, struct frame **ret)
{
    struct mux *m = c->mux;
    int what = 0, found;
    if (ret)
        *ret = NULL;
    pthread_mutex_lock(&m->lock);
    while (!(found = look(c, want_room, ret)) && !what) {
        if (!m->reading) {
            m->reading = true;
            pthread_mutex_unlock(&m->lock);
            what = read_once(m, call, until_ns);
            pthread_mutex_lock(&m->lock);
            m->reading = false;
            continue;
        }
        if (c->wake < 0 && (c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
            what = MUX_LOST; /* no descriptor left: this call cannot wait */
            break;
        }
        c->waits = true;
        pthread_mutex_unlock(&m->lock);
        what = wait_for_reader(c, call, until_ns);
        pthread_mutex_lock(&m->lock);
        c->waits = false;
    }
    hand_over(m);
    pthread_mutex_unlock(&m->lock);
    return found ? found : what;
}

uint32_t mux_take_room(struct mux_chan *c, uint64_t want)
{
    struct mux *m = c->mux;
    pthread_mutex_lock(&m->lock);
    uint32_t n = want < c->credit ? (uint32_t)want : c->credit;
    c->credit -= n;
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* Takes what has come without waiting: the end of the stream is in it when the container or the Engine has gone. */
static void take_pending(struct mux *m, const struct mango_call *call)
{
    const struct mango_call own = {.struct_size = sizeof(own), .err = call->err};
    pthread_mutex_lock(&m->lock);
    while (!m->reading && !m->dead) {
        m->reading = true;
        pthread_mutex_unlock(&m->lock);
        int what = read_once(m, &own, 1 /* long past */);
        pthread_mutex_lock(&m->lock);
        m->reading = false;
        if (what)
            break;
    }
    hand_over(m);
    pthread_mutex_unlock(&m->lock);
}

bool mux_fresh(struct mux *m, const struct mango_call *call)
{
    const struct mango_host *h = m->docker->host;
    take_pending(m, call);
    if (!mux_alive(m))
        return false;
    pthread_mutex_lock(&m->lock);
    bool ask = h->now_ns(h) - m->heard_ns > SILENCE_S * UINT64_C(1000000000) && !m->reading;
    pthread_mutex_unlock(&m->lock);
    if (!ask)
        return true;
    struct mux_chan *c = mux_chan_open(m);
    struct frame *f = NULL;
    const struct mango_call own = {.struct_size = sizeof(own), .err = call->err};
    bool ok = c && mux_send(c, call, MUX_PING, no_text()) &&
              mux_wait(c, &own, h->now_ns(h) + PING_MS * UINT64_C(1000000), false, &f) == MUX_GOT;
    free(f);
    if (c)
        mux_chan_close(c, call);
    if (!ok)
        mux_kill(m);
    return ok;
}

/* ---- opening ---- */

static mango_status make_exec(const struct docker *d, const struct mango_call *call, const char *container,
                              const char *root, char ret_id[80])
{
    text_auto struct text body = {0};
    char path[256];
    struct engine_res r = {0};
    text_add(&body,
             "{\"AttachStdin\":true,\"AttachStdout\":true,\"AttachStderr\":true,\"Tty\":false,\"Cmd\":[\"" BOX_PATH
             "\",\"serve\",");
    text_jsonz(&body, root);
    text_add(&body, "]}");
    snprintf(path, sizeof(path), "/containers/%s/exec", container);
    const struct engine_req req = {.method = "POST", .path = path, .body = text_view(&body), .control = true};
    mango_status s = body.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status == 409)
        s = MANGO_ENOENT; /* stopped or paused */
    else if (s == MANGO_OK && r.status == 404)
        s = fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                 container);
    else if (s == MANGO_OK && (r.status != 201 || !json_copy(engine_body(d, &r), "Id", ret_id, 80)))
        s = engine_fail(d, call, &r, "start mango-box in the container");
    engine_free(d, &r);
    return s;
}

static mango_status start_exec(struct docker *d, const struct mango_call *call, const char *exec_id, mango_conn *ret)
{
    char path[128];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/exec/%.64s/start", exec_id);
    mango_status s = engine_hijack(d, call, path, sv_z("{\"Detach\":false,\"Tty\":false}"), &r, ret);
    if (s == MANGO_OK && *ret == 0)
        s = r.status == 409 ? MANGO_ENOENT : engine_fail(d, call, &r, "start mango-box in the container");
    engine_free(d, &r);
    return s;
}

static mango_status greet(struct mux *m, const struct mango_call *call)
{
    struct docker *d = m->docker;
    struct mux_chan *c = add_chan(m, 0);
    struct frame *f = NULL;
    struct mux_hello hello = {0};
    if (!c)
        return fail(d->host, call, MANGO_ERETRY, "out of memory");
    struct mango_call own = call_within(d, call, HELLO_MS);
    int what = mux_send(c, call, MUX_GREET, no_text()) ? 0 : MUX_LOST;
    if (!what)
        what = mux_wait(c, call, own.deadline_ns, false, &f);
    mango_status s = MANGO_OK;
    if (what == MUX_CANCEL)
        s = MANGO_ECANCELED;
    else if (what == MUX_TIME)
        s = fail(d->host, call, MANGO_ETIMEOUT, "mango-box did not answer from within the container");
    else if (what == MUX_LOST)
        s = fail(d->host, call, MANGO_ERETRY, "mango-box does not run in the container: %s",
                 m->demux.words[0] ? m->demux.words : "it ended at once");
    else if (f->head.kind != MUX_HELLO || f->head.len < sizeof(hello))
        s = fail(d->host, call, MANGO_EINTERNAL, "what runs in the container is not mango-box");
    if (s == MANGO_OK) {
        memcpy(&hello, f->data, sizeof(hello));
        if (hello.magic != MUX_MAGIC || hello.version == 0 || hello.version > MUX_VERSION)
            s = fail(d->host, call, MANGO_EUNSUPPORTED, "the container's mango-box speaks version %u, this server %d",
                     hello.version, MUX_VERSION);
    }
    free(f);
    mux_chan_close(c, call);
    return s;
}

static mango_status open_once(struct docker *d, const struct mango_call *call, const char *container, const char *root,
                              struct mux **ret, bool *ret_lost)
{
    char exec_id[80];
    mango_conn conn = 0;
    mango_status s = make_exec(d, call, container, root, exec_id);
    if (s == MANGO_OK)
        s = start_exec(d, call, exec_id, &conn);
    if (s < 0)
        return s;
    struct mux *m = calloc(1, sizeof(*m));
    if (!m) {
        d->host->conn_close(d->host, conn);
        return fail(d->host, call, MANGO_ERETRY, "out of memory");
    }
    *m = (struct mux){.docker = d, .conn = conn, .refs = 1, .heard_ns = now_ns(d->host)};
    m->demux.ctx = m;
    m->demux.frame = on_frame;
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->writing, NULL);
    s = greet(m, call);
    if (s < 0) {
        *ret_lost = !mux_alive(m);
        mux_kill(m);
        mux_unref(m);
        return s;
    }
    *ret = m;
    return MANGO_OK;
}

/* Another server's start may still be under way in the Engine and end ours: then once more. */
mango_status mux_open(struct docker *d, const struct mango_call *call, const char *container, const char *root,
                      struct mux **ret)
{
    mango_status s = MANGO_OK;
    bool lost = true;
    for (int i = 0; i < OPEN_TRIES && lost; i++) {
        lost = false;
        s = open_once(d, call, container, root, ret, &lost);
    }
    return s;
}
