#include "docker/plain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One command: its launcher, its two streams, its input, its kill. */

enum {
    READ_BYTES = 64 * 1024,
    ROOM_MS = 20,             /* between two looks at whether input may go on */
    INPUT_BYTES = 256 * 1024, /* of input that wait for the Engine */
    INPUT_MS = 3600 * 1000,   /* for the command to read them */
    MARK_MAX = 48,
    TELL_MAX = 64,
    SAID_MAX = 512,
    LOST_TRIES = 3,
    LOST_MS = 5000,  /* for the end of a command whose connection was lost */
    KILL_MS = 20000, /* for the second exec: 65 ms, on a busy host a hundred times that */
};

/* $1 number, $2 root, $3 folder, $4 setsid where it can wait, then the command. The marker goes out on both streams, each
 * behind all that the command wrote there. Of the Debian family is `setsid -f -w`, which waits, tells a death by signal
 * from an exit code, and gives the command a session of its own. */
static const char launcher[] =
    "n=$1 r=$2 c=$3 w=$4; shift 4\n"
    "end() { printf '\\036mango-%s %s.' \"$n\" \"$*\"; printf '\\036mango-%s %s.' \"$n\" \"$*\" >&2; exit 0; }\n"
    "kills() { k=0; for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do\n"
    "[ -r $f ] && while read -r a b; do [ \"$a\" = oom_kill ] && k=$b; done <$f; done; }\n"
    "cd -P -- \"$r\" 2>/dev/null || end E 2\n"
    "r=$PWD\n"
    "if [ \"$c\" ]; then\n"
    "cd -P -- \"$c\" 2>/dev/null || { [ -d \"$c\" ] && end E 13; [ -e \"$c\" ] && end E 20; end E 2; }\n"
    "case $PWD/ in \"$r\"/*) ;; *) end E 18 ;; esac\n"
    "fi\n"
    "kills; o=$k\n"
    "if [ \"$w\" ]; then\n"
    "{ m=$( { \"$w\" -f -w /bin/sh -c 'exec \"$@\" 2>&3 >&4 3>&- 4>&-' sh \"$@\"; echo \" $?\"; } 2>&1 ); } 3>&2 4>&1\n"
    "else \"$@\"; m=\" $?\"; fi\n"
    "kills; [ \"$k\" -gt \"$o\" ] && k=1 || k=0\n"
    "[ \"${m% *}\" ] && end S \"${m##* }\" $k\n"
    "end X \"${m##* }\" $k\n";

/* $1 number: all that carries the mark, what they started, and their sessions; again until there is none, since processes
 * are born meanwhile. */
static const char killer[] =
    "i=0; while [ $i -lt 40 ]; do l=' '; s=' '; again=1\n"
    "for p in $(grep -l \"MANGO_RUN=$1\" /proc/[0-9]*/environ 2>/dev/null); do p=${p#/proc/}; l=\"$l${p%/*} \"; done\n"
    "while [ $again ]; do again=\n"
    "for f in /proc/[0-9]*/stat; do { read -r t <$f; } 2>/dev/null || continue\n"
    "p=${f#/proc/}; p=${p%/*}; set -- \"$1\" ${t##*) }\n"
    "[ \"$2\" = Z ] && continue\n"
    "case $l in *\" $p \"*) case $s in *\" $5 \"*) ;; *) [ \"$5\" = \"$p\" ] && { s=\"$s$5 \"; again=1; } ;; esac; "
    "continue ;; esac\n"
    "case $l in *\" $3 \"*) l=\"$l$p \"; again=1; continue ;; esac\n"
    "case $s in *\" $5 \"*) l=\"$l$p \"; again=1 ;; esac\n"
    "done; done\n"
    "[ \"$l\" = ' ' ] && exit 0\n"
    "kill -KILL $l 2>/dev/null; i=$((i+1)); done; exit 1";

/* What comes on one stream, up to the marker. */
struct tail {
    struct chunk *to;
    unsigned matched;  /* bytes of the marker that have come */
    bool found, whole; /* the marker came; what it tells too */
    unsigned n_tell;
    char tell[TELL_MAX];
};

struct plain {
    struct plain *next; /* guarded by the box's lock, with cut */
    struct box *box;
    struct plain_exec exec;
    struct plain_frames frames;
    char number[PLAIN_NUMBER_LEN + 1], mark[MARK_MAX];
    unsigned mark_len;
    struct tail tails[2];
    char words[SAID_MAX]; /* the Engine's */
    unsigned n_words;
    char *buf;

    bool has_writer;
    pthread_t writer;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    char *input;
    uint64_t n_input;
    bool eof, stop, broken;
};

/* ---- the box ---- */

void plain_cut_all(struct box *b)
{
    for (struct plain *p = b->plains; p; p = p->next)
        b->docker->host->conn_close(b->docker->host, p->exec.conn);
}

/* False when the box is on its way out. */
static bool enlist(struct box *b, struct plain *p)
{
    pthread_mutex_lock(&b->live.lock);
    bool ok = !b->live.dying;
    if (ok) {
        p->next = b->plains;
        b->plains = p;
    }
    pthread_mutex_unlock(&b->live.lock);
    return ok;
}

static void delist(struct plain *p)
{
    pthread_mutex_lock(&p->box->live.lock);
    for (struct plain **at = &p->box->plains; *at; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    pthread_mutex_unlock(&p->box->live.lock);
}

/* ---- start ---- */

static void plain_free(struct plain *p)
{
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->more);
    free(p->input);
    free(p->buf);
    free(p);
}

static struct plain *plain_new(struct box *b, struct run *r)
{
    struct plain *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    p->box = b;
    random_hex(p->number, PLAIN_NUMBER_LEN);
    p->mark_len = (unsigned)snprintf(p->mark, sizeof(p->mark), "\036mango-%s ", p->number);
    p->tails[0].to = &r->out;
    p->tails[1].to = &r->err;
    p->buf = malloc(READ_BYTES);
    p->input = malloc(INPUT_BYTES);
    if (p->buf && p->input)
        return p;
    plain_free(p);
    return NULL;
}

/* A relative folder must not be looked for in CDPATH. */
static void put_folder(struct text *t, struct mango_sv cwd)
{
    if (cwd.len > 0 && cwd.ptr[0] != '/')
        text_add(t, "./");
    text_sv(t, cwd);
}

mango_status plain_start(struct box *b, const struct mango_call *call, const struct mango_exec_req *req, int flags,
                         struct run *r)
{
    text_auto struct text folder = {0};
    struct plain *p = plain_new(b, r);
    struct mango_sv *args = p ? calloc(req->n_argv + 4, sizeof(*args)) : NULL;
    put_folder(&folder, req->cwd);
    mango_status s = args && !folder.bad ? plain_ready(b, call) : MANGO_ERETRY;
    if (s == MANGO_OK) {
        const struct mango_sv own[] = {sv_z(p->number), sv_z(b->root), text_view(&folder), sv_z(b->setsid)};
        memcpy(args, own, sizeof(own));
        memcpy(args + 4, req->argv, req->n_argv * sizeof(*args));
        const struct plain_spec spec = {.script = launcher,
                                        .args = args,
                                        .n_args = req->n_argv + 4,
                                        .mark = p->number,
                                        .env = b->env,
                                        .more = req,
                                        .input = flags != RUN_NO_STDIN};
        s = plain_begin(b, call, &spec, &p->exec);
    }
    free(args);
    if (s == MANGO_OK && !enlist(b, p)) {
        b->docker->host->conn_close(b->docker->host, p->exec.conn);
        s = fail(b->docker->host, call, MANGO_EGONE, "the sandbox is being removed");
    }
    if (s < 0) {
        if (p)
            plain_free(p);
        return s;
    }
    r->plain = p;
    return MANGO_OK;
}

/* ---- output ---- */

static void tail_feed(struct plain *p, struct tail *t, const char *s, uint64_t n)
{
    while (n > 0 && !t->found) {
        if (t->matched == 0) {
            const char *at = memchr(s, p->mark[0], n);
            uint64_t plain = at ? (uint64_t)(at - s) : n;
            if (plain)
                chunk_feed(t->to, s, plain);
            s += plain;
            n -= plain;
            if (n == 0)
                return;
        }
        if (*s == p->mark[t->matched]) {
            t->found = ++t->matched == p->mark_len;
            s++;
            n--;
        } else { /* its first byte stands nowhere else in it */
            chunk_feed(t->to, p->mark, t->matched);
            t->matched = 0;
        }
    }
    for (; n > 0 && !t->whole; s++, n--) {
        if (*s == '.' || t->n_tell == TELL_MAX - 1)
            t->whole = true;
        else
            t->tell[t->n_tell++] = *s;
    }
}

/* "X code oom", "S status oom", "E errno". */
static void understand(struct run *r, const char *tell)
{
    char how = '\0';
    int number = 0, oom = 0;
    int got = sscanf(tell, "%c %d %d", &how, &number, &oom); /* NOLINT(cert-err34-c): our own script's */
    r->ended = true;
    r->end = (struct mux_end){.oom = oom == 1, .out_bytes = r->out.seen, .err_bytes = r->err.seen};
    if (how == 'E' && got == 2) {
        r->end.error = number;
        snprintf(r->words, sizeof(r->words), "cwd");
    } else if (how == 'X' && got == 3) {
        r->end.how = MUX_HOW_ENDED;
        r->end.status = (number & 0xFF) << 8;
    } else if (how == 'S' && got == 3) {
        r->end.how = MUX_HOW_ENDED;
        r->end.status = number & 0x7F;
    } else {
        r->end.how = MUX_HOW_LOST;
    }
}

/* True when something was given to a sink, or the end is there. */
static bool feed(struct run *r, const char *s, uint64_t n)
{
    struct plain *p = r->plain;
    struct mango_sv piece;
    uint64_t before = r->out.seen + r->err.seen;
    for (int stream; (stream = plain_frame(&p->frames, &s, &n, &piece)) >= 0;) {
        if (stream == 1 || stream == 2) {
            tail_feed(p, &p->tails[stream - 1], piece.ptr, piece.len);
        } else if (stream == 0 && p->frames.raw) {
            size_t room = SAID_MAX - 1 - p->n_words, take = piece.len < room ? piece.len : room;
            memcpy(p->words + p->n_words, piece.ptr, take);
            p->n_words += (unsigned)take;
        }
    }
    if (p->tails[0].whole && p->tails[1].whole)
        understand(r, p->tails[0].tell);
    return r->ended || r->out.seen + r->err.seen > before;
}

/* The stream is over and the launcher has not told: it was killed, or never began. */
static void without_a_word(struct run *r, const struct mango_call *call)
{
    struct plain *p = r->plain;
    int code;
    struct mango_call own = call_within(r->docker, call, KILL_MS);
    own.token = NULL;
    if (p->n_words > 0 && plain_exec_ended(r->docker, &own, p->exec.id, &code) && (code == 126 || code == 127)) {
        r->ended = true;
        r->end = (struct mux_end){.error = strstr(p->words, "too long")      ? E2BIG
                                           : strstr(p->words, "temporarily") ? EAGAIN
                                                                             : ENOEXEC};
        snprintf(r->words, sizeof(r->words), "%.*s", MUX_TEXT_MAX, p->words);
        return;
    }
    r->lost = true;
}

static bool has_room(struct plain *p)
{
    pthread_mutex_lock(&p->lock);
    bool room = p->n_input == 0 || p->broken;
    pthread_mutex_unlock(&p->lock);
    return room;
}

int plain_wait(struct run *r, const struct mango_call *call, uint64_t until_ns, bool want_room)
{
    struct docker *d = r->docker;
    struct plain *p = r->plain;
    for (;;) {
        if (r->ended || r->lost)
            return RUN_END;
        if (want_room && has_room(p))
            return RUN_ROOM;
        uint64_t n = 0, now = now_ns(d->host), look = now + ROOM_MS * UINT64_C(1000000);
        struct mango_call own = {
            .struct_size = sizeof(own), .deadline_ns = until_ns, .token = call->token, .err = call->err};
        if (want_room && (!until_ns || look < until_ns))
            own.deadline_ns = look;
        mango_status s = d->host->conn_read(d->host, &own, p->exec.conn, p->buf, READ_BYTES, &n);
        if (s == MANGO_ECANCELED && d->host->cancelled(d->host, call))
            return RUN_CANCEL;
        if (s == MANGO_ETIMEOUT) {
            if (until_ns && now_ns(d->host) >= until_ns)
                return RUN_TIME;
            continue;
        }
        if (s < 0 || n == 0)
            without_a_word(r, call);
        else if (feed(r, p->buf, n) && !r->ended)
            return RUN_OUTPUT;
    }
}

/* ---- input ---- */

/* Writing waits for the command to read, and meanwhile its output must be taken: so it has a thread. */
static void *write_all(void *arg)
{
    struct plain *p = arg;
    const struct mango_host *h = p->box->docker->host;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && !p->broken) {
        if (p->n_input == 0 && !p->eof) {
            pthread_cond_wait(&p->more, &p->lock);
            continue;
        }
        uint64_t n = p->n_input;
        pthread_mutex_unlock(&p->lock);
        struct mango_call own = {.struct_size = sizeof(own),
                                 .deadline_ns = h->now_ns(h) + INPUT_MS * UINT64_C(1000000)};
        mango_status s =
            n ? h->conn_write(h, &own, p->exec.conn, p->input, n) : h->conn_shutdown(h, &own, p->exec.conn);
        pthread_mutex_lock(&p->lock);
        p->n_input = 0;
        p->broken = s < 0 || n == 0;
        pthread_cond_broadcast(&p->more);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static bool writer(struct plain *p)
{
    if (!p->has_writer)
        p->has_writer = pthread_create(&p->writer, NULL, write_all, p) == 0;
    return p->has_writer;
}

bool plain_input(struct run *r, struct mango_sv data, uint64_t *ret_n)
{
    struct plain *p = r->plain;
    *ret_n = 0;
    if (!writer(p))
        return false;
    pthread_mutex_lock(&p->lock);
    bool broken = p->broken;
    if (broken) {
        *ret_n = data.len; /* nobody reads it: as a pipe into a program that has closed its input */
    } else if (p->n_input == 0) {
        uint64_t n = data.len < INPUT_BYTES ? data.len : INPUT_BYTES;
        memcpy(p->input, data.ptr, n);
        p->n_input = *ret_n = n;
        pthread_cond_broadcast(&p->more);
    }
    pthread_mutex_unlock(&p->lock);
    return true;
}

int plain_room(struct run *r, const struct mango_call *call, uint64_t until_ns)
{
    struct plain *p = r->plain;
    const struct mango_host *h = r->docker->host;
    int what = 0;
    pthread_mutex_lock(&p->lock);
    while (!what) {
        struct timespec ts;
        if (p->n_input == 0 || p->broken) {
            what = RUN_ROOM;
        } else if (h->cancelled(h, call)) {
            what = RUN_CANCEL;
        } else if (until_ns && h->now_ns(h) >= until_ns) {
            what = RUN_TIME;
        } else {
            clock_gettime(CLOCK_REALTIME, &ts);
            ts.tv_nsec += ROOM_MS * 1000000L;
            ts.tv_sec += ts.tv_nsec / 1000000000;
            ts.tv_nsec %= 1000000000;
            (void)pthread_cond_timedwait(&p->more, &p->lock, &ts);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return what;
}

void plain_eof(struct run *r)
{
    struct plain *p = r->plain;
    if (!writer(p))
        return;
    pthread_mutex_lock(&p->lock);
    p->eof = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the end ---- */

/* *ret_code 0: nothing of it is left. */
static mango_status kill_marked(const struct plain *p, const struct mango_call *call, int *ret_code)
{
    char said[64];
    struct mango_sv number = sv_z(p->number);
    const struct plain_spec spec = {.script = killer, .args = &number, .n_args = 1};
    return plain_exec_run(p->box->docker, call, p->box->live.id, &spec, said, sizeof(said), ret_code);
}

void plain_kill(struct run *r, const struct mango_call *call)
{
    struct docker *d = r->docker;
    struct plain *p = r->plain;
    int code = -1;
    uint64_t until = now_ns(d->host) + KILL_MS * UINT64_C(1000000);
    struct mango_call own = {.struct_size = sizeof(own), .deadline_ns = until, .err = call->err};
    mango_status s = kill_marked(p, &own, &code);
    /* No room for one more process, or more are born than die: then all of the container ends, and starts again. */
    if ((s == MANGO_OK && code != 0) || (s < 0 && s != MANGO_ENOENT)) {
        (void)container_restart(d, &own, p->box->live.id);
        pthread_mutex_lock(&p->box->live.lock);
        p->box->plain_ready = false;
        pthread_mutex_unlock(&p->box->live.lock);
    }
    until = now_ns(d->host) + KILL_WAIT_MS * UINT64_C(1000000);
    while (plain_wait(r, &own, until, false) == RUN_OUTPUT) {
        if (now_ns(d->host) >= until)
            break;
    }
}

void plain_close(struct run *r)
{
    struct plain *p = r->plain;
    const struct mango_host *h = r->docker->host;
    if (r->lost && !live_is_dying(&p->box->live)) { /* nobody hears of it any more: it does not go on unseen */
        int code = -1;
        const struct mango_call own = {.struct_size = sizeof(own),
                                       .deadline_ns = now_ns(h) + LOST_MS * UINT64_C(1000000)};
        for (int i = 0; i < LOST_TRIES && code != 0; i++) /* what took the connection may take another */
            (void)kill_marked(p, &own, &code);
    }
    delist(p);
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    h->conn_close(h, p->exec.conn);
    if (p->has_writer)
        pthread_join(p->writer, NULL);
    plain_free(p);
    r->plain = NULL;
}
