#include "docker/plain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    ARGS_MAX = 4096,
    STRING_MAX = 131071, /* bytes of one string: the kernel's MAX_ARG_STRLEN without the NUL */
    CHAR_SLACK = 4,      /* bytes beyond the bound, so that the last character of it is seen whole */
};

/* ---- the request ---- */

static mango_status too_long(const struct box *b, const struct mango_call *call, const char *what)
{
    return fail(b->docker->host, call, MANGO_ETOOBIG,
                "%s holds a NUL byte, or one string of more than %d bytes, or more than %d bytes in all; pass large "
                "content through stdin or a file",
                what, STRING_MAX, MUX_STRINGS_MAX);
}

/* False when s cannot be passed on. */
static bool put(struct text *t, struct mango_sv s)
{
    if (s.len > STRING_MAX || (s.len && memchr(s.ptr, '\0', s.len)))
        return false;
    text_sv(t, s);
    text_bytes(t, "", 1);
    return true;
}

/* True when one of the request's variables has the name of v. */
static bool overridden(const struct mango_exec_req *req, const char *v)
{
    uint64_t name = (uint64_t)(strchrnul(v, '=') - v);
    for (uint64_t i = 0; i < req->n_env; i++) {
        if (req->env[i].len > name && memcmp(req->env[i].ptr, v, name) == 0 && req->env[i].ptr[name] == '=')
            return true;
    }
    return false;
}

static mango_status pack(const struct box *b, const struct mango_call *call, const struct mango_exec_req *req,
                         int flags, struct text *t)
{
    struct mux_exec x = {.flags = (uint32_t)flags,
                         .argc = (uint32_t)req->n_argv,
                         .cwd_len = (uint32_t)req->cwd.len,
                         .max_output = req->max_output ? req->max_output + CHAR_SLACK : 0};
    text_auto struct text strings = {0};
    if (req->n_argv == 0 || req->n_argv > ARGS_MAX || req->n_env > ARGS_MAX)
        return fail(b->docker->host, call, MANGO_EINVALID, "a command has 1 to %d arguments and at most %d variables",
                    ARGS_MAX, ARGS_MAX);
    if (req->cwd.len > MUX_PATH_MAX)
        return fail_path(b->docker->host, call, ENAMETOOLONG, req->cwd);
    for (uint64_t i = 0; i < req->n_argv; i++) {
        if (!put(&strings, req->argv[i]))
            return too_long(b, call, "an argument");
    }
    for (char **e = b->env; *e; e++) {
        if (overridden(req, *e))
            continue;
        (void)put(&strings, sv_z(*e));
        x.envc++;
    }
    for (uint64_t i = 0; i < req->n_env; i++, x.envc++) {
        if (!put(&strings, req->env[i]))
            return too_long(b, call, "a variable");
    }
    if (strings.len > MUX_STRINGS_MAX)
        return too_long(b, call, "the command");
    text_bytes(t, (const char *)&x, sizeof(x));
    text_sv(t, req->cwd);
    text_sv(t, text_view(&strings));
    return t->bad || strings.bad ? fail(b->docker->host, call, MANGO_ERETRY, "out of memory") : MANGO_OK;
}

mango_status run_start(struct box *b, const struct mango_call *call, const struct mango_exec_req *req, int flags,
                       struct run *r, bool *ret_unsent)
{
    text_auto struct text payload = {0};
    struct mux *m = NULL;
    r->docker = b->docker;
    *ret_unsent = false;
    mango_status s = pack(b, call, req, flags, &payload);
    if (s == MANGO_OK && b->plain)
        return plain_start(b, call, req, flags, r);
    if (s == MANGO_OK)
        s = box_mux(b, call, &m);
    if (s < 0)
        return s;
    r->chan = mux_chan_open(m);
    mux_unref(m);
    if (!r->chan)
        return fail(b->docker->host, call, MANGO_ERETRY, "out of memory");
    if (mux_send(r->chan, call, MUX_EXEC, text_view(&payload)))
        return MANGO_OK;
    *ret_unsent = true; /* a frame that is not whole is never looked at */
    run_close(r, call);
    return fail(b->docker->host, call, MANGO_ERETRY, "the connection into the container was lost");
}

/* ---- events ---- */

static int on_data(struct run *r, const struct mango_call *call, const struct frame *f)
{
    chunk_feed(f->head.stream == 2 ? &r->err : &r->out, f->data, f->head.len);
    mux_used(r->chan, call, f->head.len);
    return RUN_OUTPUT;
}

static int on_end(struct run *r, const struct frame *f)
{
    if (f->head.len < sizeof(r->end)) {
        r->lost = true;
        return RUN_END;
    }
    memcpy(&r->end, f->data, sizeof(r->end));
    size_t n = f->head.len - sizeof(r->end);
    n = n < MUX_TEXT_MAX ? n : MUX_TEXT_MAX;
    memcpy(r->words, f->data + sizeof(r->end), n);
    r->words[n] = '\0';
    r->ended = true;
    return RUN_END;
}

/* 0: nothing that the caller waits for. */
static int on_frame(struct run *r, const struct mango_call *call, const struct frame *f)
{
    switch (f->head.kind) {
    case MUX_DATA:
        return on_data(r, call, f);
    case MUX_END:
        return on_end(r, f);
    case MUX_STARTED:
        r->started = true;
        return 0;
    default:
        return 0;
    }
}

int run_wait(struct run *r, const struct mango_call *call, uint64_t until_ns, bool want_room)
{
    if (r->plain)
        return plain_wait(r, call, until_ns, want_room);
    for (;;) {
        struct frame *f;
        if (r->ended || r->lost)
            return RUN_END;
        switch (mux_wait(r->chan, call, until_ns, want_room, &f)) {
        case MUX_ROOM:
            return RUN_ROOM;
        case MUX_TIME:
            return RUN_TIME;
        case MUX_CANCEL:
            return RUN_CANCEL;
        case MUX_LOST:
            r->lost = true;
            return RUN_END;
        default:
            break;
        }
        int what = on_frame(r, call, f);
        free(f);
        if (what)
            return what;
    }
}

bool run_input(struct run *r, const struct mango_call *call, struct mango_sv data, uint64_t *ret_n)
{
    *ret_n = 0;
    if (r->plain)
        return plain_input(r, data, ret_n);
    while (data.len > *ret_n) {
        uint64_t want = data.len - *ret_n < MUX_DATA_MAX ? data.len - *ret_n : MUX_DATA_MAX;
        uint32_t n = mux_take_room(r->chan, want);
        if (n == 0)
            break;
        if (!mux_send(r->chan, call, MUX_DATA, (struct mango_sv){data.ptr + *ret_n, n})) {
            r->lost = true;
            return false;
        }
        *ret_n += n;
    }
    return true;
}

int run_room(struct run *r, const struct mango_call *call, uint64_t until_ns)
{
    if (r->plain)
        return plain_room(r, call, until_ns);
    switch (mux_wait(r->chan, call, until_ns, true, NULL)) {
    case MUX_CANCEL:
        return RUN_CANCEL;
    case MUX_TIME:
        return RUN_TIME;
    case MUX_LOST:
        return RUN_END;
    default:
        return RUN_ROOM;
    }
}

void run_eof(struct run *r, const struct mango_call *call)
{
    if (r->plain)
        return plain_eof(r);
    if (!mux_send(r->chan, call, MUX_EOF, no_text()))
        r->lost = true;
}

void run_kill(struct run *r, const struct mango_call *call)
{
    struct docker *d = r->docker;
    const struct mango_call own = {.struct_size = sizeof(own), .err = call->err};
    uint64_t until = now_ns(d->host) + KILL_WAIT_MS * UINT64_C(1000000);
    if (r->plain)
        return plain_kill(r, call);
    if (r->ended && r->end.held && !r->lost) {
        mux_chan_reopen(r->chan);
        r->ended = false;
    }
    if (r->ended || r->lost || !mux_send(r->chan, &own, MUX_KILL, no_text()))
        return;
    while (run_wait(r, &own, until, false) == RUN_OUTPUT) {
        if (now_ns(d->host) >= until)
            break;
    }
}

void run_result(struct run *r, struct mango_exec_result *ret)
{
    uint32_t size = ret->struct_size;
    chunk_end(&r->out);
    chunk_end(&r->err);
    memset(ret, 0, sizeof(*ret));
    ret->struct_size = size;
    ret->stdout_bytes = r->ended ? r->end.out_bytes : r->out.seen;
    ret->stderr_bytes = r->ended ? r->end.err_bytes : r->err.seen;
    if (r->ended && r->end.how == MUX_HOW_ENDED && WIFEXITED(r->end.status)) {
        ret->exited = 1;
        ret->exit_code = WEXITSTATUS(r->end.status);
    } else if (r->ended && r->end.how == MUX_HOW_ENDED && WIFSIGNALED(r->end.status)) {
        ret->signal = WTERMSIG(r->end.status);
    } else {
        ret->unknown = 1;
    }
    ret->oom = r->ended && r->end.oom;
    ret->peak_memory = r->ended ? r->end.peak_kib * 1024 : 0;
}

void run_close(struct run *r, const struct mango_call *call)
{
    if (r->plain)
        return plain_close(r);
    if (!r->chan)
        return;
    mux_chan_close(r->chan, call);
    r->chan = NULL;
}
