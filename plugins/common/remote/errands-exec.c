#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "common/parcel.h"
#include "common/remote/errand-call.h"

/* A command: started once under its number, then asked for until it has ended. */

enum {
    LATE_MS = 5000,       /* past a limit that the program in the sandbox keeps itself, before it is told to */
    KILL_CALL_MS = 15000, /* for all tries to kill; the caller has given up */
    UNKNOWN_MS = 120000,  /* a sandbox that is there and does not answer: for so long it is asked */
    ARGS_MAX = 4096,
    UTF8_MAX = 4,
};

struct exec {
    struct errands *e;
    struct errands_box *b;
    const struct mango_call *call;
    const struct mango_exec_req *req;
    char id[ERRAND_ID_LEN + 1];
    struct chunk out[2];
    uint64_t at[2];    /* bytes of each stream that have come */
    uint64_t until[2]; /* so far it is to be fetched as a file */
    bool sent;         /* the start may have reached the sandbox */
};

/* ---- output ---- */

static void on_output(void *ctx, char kind, uint64_t offset, const char *p, uint64_t n)
{
    struct exec *x = ctx;
    int i = kind == 'e';
    if (kind == 'd' || offset > x->at[i] || offset + n <= x->at[i])
        return; /* told before, in an answer that was cut */
    p += x->at[i] - offset;
    n -= x->at[i] - offset;
    x->at[i] += n;
    chunk_feed(&x->out[i], p, n);
}

/* Noted only: the answer is still coming, and its last lines are behind. */
static void on_fetch(void *ctx, int stream, uint64_t offset, uint64_t n)
{
    struct exec *x = ctx;
    if (offset <= x->at[stream - 1])
        x->until[stream - 1] = offset + n;
}

struct piece {
    struct exec *x;
    int i;
};

static int32_t on_piece(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    const struct piece *f = ctx;
    (void)stream;
    f->x->at[f->i] += n;
    chunk_feed(&f->x->out[f->i], p, n);
    return f->x->out[f->i].stopped;
}

/* What was too much for the answer's lines. */
static mango_status fetch(struct exec *x)
{
    char name[64];
    uint64_t got;
    mango_status s = MANGO_OK;
    for (int i = 0; i < 2 && s == MANGO_OK; i++) {
        struct piece f = {x, i};
        uint64_t n = x->until[i] > x->at[i] ? x->until[i] - x->at[i] : 0;
        snprintf(name, sizeof(name), "run-%s/%s", x->id, i ? "err" : "out");
        if (n > 0 && x->out[i].stopped)
            x->at[i] += n;
        else if (n > 0)
            s = content_fetch(x->e, x->call, x->b, name, x->at[i], n, on_piece, &f, &got);
    }
    return s;
}

/* ---- the request ---- */

static uint64_t fnv(struct mango_sv s, uint64_t h)
{
    for (uint64_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * UINT64_C(1099511628211);
    return h;
}

static void number_it(struct exec *x)
{
    struct mango_sv s = MANGO_REACHES(x->req, exec_id) ? x->req->exec_id : no_text();
    if (sv_hex(s, ERRAND_ID_LEN))
        snprintf(x->id, sizeof(x->id), "%.*s", ERRAND_ID_LEN, s.ptr);
    else if (s.len > 0)
        snprintf(x->id, sizeof(x->id), "%016llx%016llx", (unsigned long long)fnv(s, UINT64_C(14695981039346656037)),
                 (unsigned long long)fnv(s, UINT64_C(0x9E3779B97F4A7C15)));
    else
        random_hex(x->id, ERRAND_ID_LEN);
}

static void put_wait(const struct exec *x, struct text *body, uint64_t ms)
{
    request_text(body, sv_z(x->id));
    request_number(body, x->at[0]);
    request_number(body, x->at[1]);
    request_number(body, ms);
    request_number(body, x->e->service->soon_ms);
}

static void put_command(const struct exec *x, struct text *body, const char *input)
{
    const struct mango_exec_req *req = x->req;
    uint64_t n_env = 1, now = now_ns(x->e->host);
    char mark[sizeof(MARK_NAME "=") + ERRAND_ID_LEN];
    for (char **v = x->b->env; *v; v++)
        n_env++;
    request_number(body, req->limit_ns ? (req->limit_ns > now ? (req->limit_ns - now) / 1000000 + 1 : 1) : 0);
    /* A little more, so that it is seen whether a character at the bound is whole. */
    request_number(body, req->max_output ? req->max_output + UTF8_MAX : 0);
    request_text(body, sv_z(input));
    request_text(body, req->cwd);
    request_number(body, req->n_argv);
    for (uint64_t i = 0; i < req->n_argv; i++)
        request_text(body, req->argv[i]);
    request_number(body, n_env + req->n_env);
    for (char **v = x->b->env; *v; v++)
        request_text(body, sv_z(*v));
    for (uint64_t i = 0; i < req->n_env; i++)
        request_text(body, req->env[i]);
    snprintf(mark, sizeof(mark), MARK_NAME "=%s", x->id);
    request_text(body, sv_z(mark));
}

/* ---- the end ---- */

/* The command could not be started: told as a shell would, so that it is a result and not a broken sandbox. */
static mango_status not_started(struct exec *x, int errnum, struct mango_exec_result *ret)
{
    char name[SHOWN_MAX + 1], text[SHOWN_MAX + 128];
    const struct mango_host *h = x->e->host;
    if (errnum >= ERRAND_FOLDER)
        return fail_path(h, x->call, errnum - ERRAND_FOLDER, x->req->cwd);
    if (errnum == E2BIG)
        return fail(h, x->call, MANGO_ETOOBIG,
                    "the arguments are larger than the kernel takes; pass content through stdin or a file");
    if (errnum == EAGAIN || errnum == ENOMEM)
        return fail(h, x->call, MANGO_ERETRY, "the sandbox has no room for another process: %s", strerror(errnum));
    shown(x->req->argv[0], name);
    int n = snprintf(text, sizeof(text), "mango: %s: %s\n", name, errnum == ENOENT ? "not found" : strerror(errnum));
    chunk_feed(&x->out[1], text, (uint64_t)n);
    ret->exited = 1;
    ret->exit_code = errnum == ENOENT || errnum == ENOTDIR ? 127 : 126;
    ret->stderr_bytes = (uint64_t)n;
    return MANGO_OK;
}

static mango_status ended(struct exec *x, const char *line, struct mango_exec_result *ret)
{
    char kind;
    int number;
    unsigned long long out, err, peak;
    if (sscanf(line, "%c %d %llu %llu %llu", &kind, &number, &out, &err, &peak) != 5) /* NOLINT(cert-err34-c) */
        return fail(x->e->host, x->call, MANGO_EINTERNAL, "mango-rbox gave an answer that makes no sense");
    ret->stdout_bytes = out;
    ret->stderr_bytes = err;
    ret->peak_memory = peak * 1024;
    switch (kind) {
    case 'x':
        ret->exited = 1;
        ret->exit_code = number;
        return MANGO_OK;
    case 's':
        ret->signal = number;
        return MANGO_OK;
    case 't':
        ret->timed_out = 1;
        return MANGO_OK;
    case 'c':
        ret->cancelled = 1;
        return fail(x->e->host, x->call, MANGO_ECANCELED, "cancelled; the command and what it started were killed");
    case 'f':
        return not_started(x, number, ret);
    default:
        ret->unknown = 1;
        return MANGO_OK;
    }
}

/* Sends and takes in the output that the answer names. */
static mango_status ask(struct exec *x, uint64_t op, const struct text *body, uint64_t ms, struct reply *r)
{
    *r = (struct reply){.on_content = on_output, .on_fetch = on_fetch, .ctx = x};
    mango_status s = errand_send(x->e, x->call, x->b, op, body, (uint32_t)ms, r);
    return s == MANGO_OK ? fetch(x) : s;
}

/* What is left of the output of a command that was killed. */
static void last_words(struct exec *x)
{
    text_auto struct text body = {0};
    struct reply r;
    put_wait(x, &body, 0);
    (void)ask(x, ERRAND_WAIT, &body, 0, &r);
}

/* A call of its own, since the end of a connection ends nothing. It says how the command ended, if it was first. */
static mango_status kill_it(struct exec *x, bool limit, struct mango_exec_result *ret)
{
    const struct mango_call *theirs = x->call;
    struct mango_call own = remote_anyway(x->e->host, theirs, KILL_CALL_MS);
    text_auto struct text body = {0};
    struct reply r = {0};
    request_text(&body, sv_z(x->id));
    request_number(&body, limit ? 1 : 0);
    mango_status s = errand_send(x->e, &own, x->b, ERRAND_KILL, &body, ERRAND_KILL_MS, &r);
    if (s == MANGO_OK && r.last == '.') {
        x->call = &own;
        last_words(x);
        x->call = theirs;
        return ended(x, r.rest, ret);
    }
    if (s == MANGO_EGONE)
        return s;
    ret->unknown = 1;
    return limit ? MANGO_OK
                 : fail(x->e->host, theirs, MANGO_ECANCELED,
                        "cancelled, but the sandbox did not confirm that the command was killed");
}

/* ---- the wait ---- */

static uint64_t slice(const struct exec *x, uint64_t until)
{
    uint64_t now = now_ns(x->e->host), ms = x->e->service->slice_ms;
    uint64_t left = until ? (until > now ? (until - now) / 1000000 + 1 : 1) : ms;
    return left < ms ? left : ms;
}

/* The answer "!": nothing was started, or the command's folder was removed from inside of the sandbox. */
static mango_status refused(struct exec *x, const struct reply *r, bool started, struct mango_exec_result *ret)
{
    int e = (int)strtol(r->rest, NULL, 10);
    if (!started)
        return e == E2BIG ? not_started(x, e, ret) : errand_refused(x->e, x->call, r, x->req->cwd);
    ret->unknown = 1;
    return MANGO_OK;
}

/* The call's own deadline, not the command's limit: nothing of it is left, and the caller is told so. */
static mango_status out_of_time(struct exec *x, struct mango_exec_result *ret)
{
    uint64_t deadline = x->call->deadline_ns;
    bool limit = x->req->limit_ns && x->req->limit_ns <= deadline;
    mango_status s = kill_it(x, true, ret);
    if (s < 0 || limit || !ret->timed_out)
        return s;
    return fail(x->e->host, x->call, MANGO_ETIMEOUT,
                "the deadline passed; the command and what it started were killed");
}

/* The service does not answer for long. Nothing of a start went out: it is not running. Else nobody knows. */
static mango_status given_up(struct exec *x, mango_status s, struct mango_exec_result *ret)
{
    struct mango_exec_result none = {.struct_size = sizeof(none)};
    if (!x->sent)
        return s;
    if (kill_it(x, false, &none) == MANGO_ECANCELED && none.cancelled)
        return fail(x->e->host, x->call, MANGO_ERETRY, "the sandbox did not answer; the command was killed");
    ret->unknown = 1;
    return MANGO_OK;
}

static mango_status follow(struct exec *x, const char *input, struct mango_exec_result *ret)
{
    const struct mango_host *h = x->e->host;
    uint64_t deadline = x->call->deadline_ns, silent_since = 0;
    uint64_t late = x->req->limit_ns ? x->req->limit_ns + LATE_MS * UINT64_C(1000000) : 0;
    for (bool started = false;;) {
        struct reply r;
        text_auto struct text body = {0};
        uint64_t ms = slice(x, late && (!deadline || late < deadline) ? late : deadline);
        put_wait(x, &body, ms);
        if (!started)
            put_command(x, &body, input);
        mango_status s = ask(x, started ? ERRAND_WAIT : ERRAND_RUN, &body, ms, &r);
        uint64_t now = now_ns(h);
        x->sent |= r.sent;
        if (s == MANGO_OK && r.last == '.')
            return ended(x, r.rest, ret);
        if (s == MANGO_OK && r.last == '!')
            return refused(x, &r, started, ret);
        if (h->cancelled(h, x->call) || s == MANGO_ECANCELED)
            return kill_it(x, false, ret);
        if (s == MANGO_ETIMEOUT || (deadline && now >= deadline))
            return out_of_time(x, ret);
        if (late && now >= late)
            return kill_it(x, true, ret);
        if (s < 0 && s != MANGO_ERETRY)
            return s;
        silent_since = s == MANGO_OK ? 0 : silent_since ? silent_since : now;
        if (silent_since && now - silent_since >= UNKNOWN_MS * UINT64_C(1000000))
            return given_up(x, s, ret);
        started |= s == MANGO_OK; /* the same number again: what was started is found, what was not is started now */
    }
}

static mango_status box_exec(struct errands *e, const struct mango_call *call, struct errands_box *b,
                             const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    struct exec x = {.e = e, .b = b, .call = call, .req = req};
    char input[32] = "";
    uint64_t bytes;
    if (e->host->cancelled(e->host, call)) {
        ret->cancelled = 1;
        return fail(e->host, call, MANGO_ECANCELED, "cancelled before the command was started");
    }
    if (req->n_argv == 0 || req->n_argv > ARGS_MAX || req->n_env > ARGS_MAX)
        return fail(e->host, call, MANGO_EINVALID, "a command has 1 to %d arguments and at most as many variables",
                    ARGS_MAX);
    x.out[0] = chunk_to(req->sink, req->sink_ctx, 1, req->max_output);
    x.out[1] = chunk_to(req->sink, req->sink_ctx, 2, req->max_output);
    number_it(&x);
    if (req->stdin_source || req->stdin_data.len > 0) {
        content_name(input);
        mango_status s =
            content_upload(e, call, b, input, req->stdin_data, req->stdin_source, req->stdin_ctx, -1, &bytes);
        if (s < 0)
            return s;
    }
    mango_status s = follow(&x, input, ret);
    if (*input)
        box_forget(b, "", input); /* the program has removed it; what was never started has not */
    chunk_end(&x.out[0]);
    chunk_end(&x.out[1]);
    if (ret->exited || ret->signal || ret->timed_out || ret->cancelled)
        box_forget(b, "run-", x.id);
    return s;
}

mango_status errands_exec(struct errands *e, const struct mango_call *call, struct mango_sv id,
                          const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    struct errands_box *b;
    mango_status s = errands_enter(e, call, id, &b);
    if (s < 0)
        return s;
    s = box_exec(e, call, b, req, ret);
    errands_leave(e, b);
    return s;
}
