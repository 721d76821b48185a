#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/envd/connect.h"
#include "common/envd/envd.h"
#include "common/remote/base64.h"

/* process.Process/Start of mango-rbox. */

enum {
    NOT_FOUND = 127, /* a shell's word for a program that is not there */
    NOT_RUNNABLE = 126,
    USAGE = 64,      /* mango-rbox's */
    WORDS_MAX = 200, /* bytes of the sandbox's own words that are passed on */
};

struct stream {
    struct box *b;
    const struct mango_call *call;
    struct start *s;
    struct connect c;
    struct text bytes;  /* of one message */
    struct text errors; /* what the program's starter has to say */
    bool came;          /* any message */
    bool process_ended;
    int64_t exit_code;
};

/* ---- what comes ---- */

static bool on_output(struct stream *t, struct mango_sv data, const char *name, bool frames)
{
    struct mango_sv v = json_get(data, name);
    if (json_kind(v) != '"')
        return true;
    struct mango_sv digits = {v.ptr + 1, v.len - 2}; /* base64 has nothing that JSON escapes; '\/' is refused below */
    uint64_t n = 0;
    char *out = malloc(base64_room(digits.len));
    bool ok = out && base64_decode(digits, out, &n);
    if (ok && frames)
        ok = rbox_feed(&t->s->f, out, n);
    else if (ok && t->errors.len < 512)
        text_bytes(&t->errors, out, n < 512 ? n : 512);
    free(out);
    return ok;
}

static bool on_message(void *ctx, struct mango_sv json)
{
    struct stream *t = ctx;
    struct mango_sv event = json_get(json, "event"), data = json_get(event, "data"), end = json_get(event, "end");
    t->came = true;
    if (json_kind(json_get(event, "keepalive")) == '{')
        (void)box_touch(t->b, t->call);
    if (json_kind(end) == '{') {
        t->process_ended = true;
        if (!json_int(end, "exitCode", &t->exit_code) && !json_int(end, "exit_code", &t->exit_code))
            t->exit_code = 0; /* zero is left out */
    }
    if (json_kind(data) != '{')
        return true;
    return on_output(t, data, "stdout", true) && on_output(t, data, "stderr", false) && !t->s->f.stopped;
}

static int32_t on_body(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct stream *t = ctx;
    (void)stream;
    return connect_feed(&t->c, p, n) ? 0 : 1;
}

/* ---- what goes ---- */

static void process_json(const char *cmd, const struct rbox_args *a, const char *tag, struct text *out)
{
    text_auto struct text arg = {0};
    uint64_t pos = 0;
    bool first = true;
    text_add(out, "{\"process\":{\"cmd\":");
    text_jsonz(out, cmd);
    text_add(out, ",\"args\":[");
    while (rbox_args_next(a, &pos, &arg)) {
        text_add(out, first ? "" : ",");
        text_json(out, text_view(&arg));
        first = false;
    }
    text_add(out, "],\"cwd\":\"/\"}");
    if (tag)
        text_printf(out, ",\"tag\":\"mango-%s\"", tag);
    text_add(out, ",\"stdin\":false}");
}

/* One Start. The connection's fate is the result; what came is in t. */
static mango_status start_once(struct stream *t, const char *cmd, const struct rbox_args *a, struct data_req *req,
                               struct remote_res *res)
{
    text_auto struct text json = {0}, body = {0};
    process_json(cmd, a, t->s->id, &json);
    connect_envelope(&body, text_view(&json));
    *res = (struct remote_res){0};
    if (a->too_big)
        return fail(t->b->e->host, t->call, MANGO_ETOOBIG,
                    "the command's arguments and variables have more than %d bytes, or one of them more than %d",
                    RBOX_REQUEST_MAX, RBOX_ARG_MAX);
    if (a->bytes.bad || json.bad || body.bad)
        return envd_no_memory(t->b->e, t->call);
    *req = (struct data_req){.method = "POST",
                             .path = "/process.Process/Start",
                             .what = t->s->what,
                             .type = "application/connect+json",
                             .body = text_view(&body),
                             .sink = on_body,
                             .sink_ctx = t,
                             .stream = true};
    mango_status s = data_try(t->b, t->call, req, res);
    req->body = no_text();
    box_blank(t->b, &t->c.words);
    box_blank(t->b, &t->errors);
    t->s->sent |= res->sent && !(t->c.error && !t->came && connect_not_begun(t->c.code));
    return s;
}

/* ---- what did not go right ---- */

/* MANGO_OK: again. The stream's own error, told at its end, means what the same code means as an answer's status; but there who
 * lacks a permission lacks it with every token. */
static mango_status after(struct stream *t, const struct data_req *req, mango_status s, struct remote_res *res,
                          unsigned n)
{
    const struct envd *e = t->b->e;
    char words[WORDS_MAX];
    if (!t->c.error)
        return envd_after(t->b, t->call, req, s, res, n);
    int status = connect_status(t->c.code);
    mango_status means = remote_class(status, MANGO_ERETRY), rc = means;
    res->status = status;
    if (means != MANGO_EDENIED || status == 401)
        rc = envd_after(t->b, t->call, req, MANGO_OK, res, n);
    if (rc != means || (means == MANGO_ERETRY && n < ENVD_TRIES))
        return rc;
    remote_words(&e->r, text_view(&t->c.words), words, sizeof(words));
    return fail(e->host, t->call, rc, "the sandbox could not %s: %s%s%s", req->what, t->c.code, words[0] ? ": " : "",
                words);
}

/* ---- the program ---- */

static void program_path(const struct box *b, const char *name, const char *behind, struct text *out)
{
    text_printf(out, "%s/" RBOX_DIR "/%s%s", b->root, name, behind);
}

/* Another sandbox's program may run under that name: it gets a name of its own first. Of each try: one whose answer was lost may
 * still be under way, and would take what the next one has put in. The start itself may come twice: a name that is gone has been
 * taken by the other. */
mango_status envd_provision(struct box *b, const struct mango_call *call)
{
    struct envd *e = b->e;
    text_auto struct text path = {0}, before = {0};
    program_path(b, e->program.name, "", &path);
    text_add(&before, "");
    for (unsigned n = 1;; n++) {
        char id[RBOX_NEW_ID + 1];
        text_auto struct text temp = {0};
        rbox_new_id(id);
        program_path(b, id, ".box", &temp);
        if (temp.bad || path.bad || before.bad)
            return envd_no_memory(e, call);
        mango_status s = data_upload(b, call, temp.ptr, e->host->buf_view(e->host, e->program.bytes), NULL, NULL, -1);
        if (s < 0)
            return s;
        struct rbox_args a = {0};
        struct start st = {.what = "start our program in the sandbox"};
        struct stream t = {.b = b, .call = call, .s = &st, .c = {.message = on_message}};
        struct data_req req = {0};
        struct remote_res res = {0};
        t.c.ctx = &t;
        rbox_argz(&a, "-c");
        rbox_argz(
            &a, "{ chmod 755 \"$1\" && mv -f \"$1\" \"$2\"; } || [ ! -e \"$1\" ] && { [ -z \"$4\" ] || rm -f \"$4\"; } "
                "&& exec \"$2\" hello \"$3\"");
        rbox_argz(&a, "mango");
        rbox_argz(&a, temp.ptr);
        rbox_argz(&a, path.ptr);
        rbox_argz(&a, b->root);
        rbox_argz(&a, before.ptr);
        s = start_once(&t, "/bin/sh", &a, &req, &res);
        rbox_args_free(&a);
        bool told = st.f.ended && !st.f.bad;
        if (told)
            s = rbox_file_result(e->host, call, &st.f, sv_z(b->root));
        else if (t.process_ended)
            s = fail(e->host, call, MANGO_EUNSUPPORTED,
                     "our program does not run in the sandbox (exit code %lld: %.200s); is it for another processor? "
                     "%s_RBOX names the one to use",
                     (long long)t.exit_code, t.errors.ptr ? t.errors.ptr : "", e->flavor->prefix);
        else
            s = after(&t, &req, s, &res, n);
        told |= t.process_ended;
        remote_free(&e->r, &res);
        connect_free(&t.c);
        text_free(&t.errors);
        if (told || s < 0)
            return s;
        text_free(&before);
        text_sv(&before, text_view(&temp));
    }
}

/* ---- one operation ---- */

/* What to do about a start that told no result. MANGO_OK: again. */
static mango_status next(struct stream *t, const struct data_req *req, mango_status s, struct remote_res *res,
                         unsigned n, bool *provisioned)
{
    struct envd *e = t->b->e;
    bool missing = t->process_ended && !t->s->f.began && (t->exit_code == NOT_FOUND || t->exit_code == NOT_RUNNABLE);
    char words[WORDS_MAX];
    remote_words(&e->r, text_view(&t->c.words), words, sizeof(words));
    if (missing && !*provisioned) {
        *provisioned = true;
        return envd_provision(t->b, t->call);
    }
    if (missing || (t->process_ended && t->exit_code == USAGE && !t->s->f.began))
        return fail(e->host, t->call, MANGO_EINTERNAL,
                    "our program in the sandbox does not do what it should: exit code "
                    "%lld",
                    (long long)t->exit_code);
    if (t->s->f.bad && t->s->id)
        return fail(e->host, t->call, MANGO_EINTERNAL, "the command's output came back mangled");
    if (!t->c.error && s == MANGO_OK && remote_good(res)) { /* a stream that ended too early, or is none */
        s = MANGO_ERETRY;
        (void)fail(e->host, t->call, s, "the sandbox's answer broke off%s%s", words[0] ? ": " : "", words);
    }
    return after(t, req, s, res, n);
}

mango_status envd_start(struct box *b, const struct mango_call *call, struct start *s)
{
    text_auto struct text path = {0};
    bool provisioned = false;
    struct rbox_frames fresh = s->f;
    program_path(b, b->e->program.name, "", &path);
    if (path.bad)
        return envd_no_memory(b->e, call);
    for (unsigned n = 1;; n++) {
        struct rbox_args a = {0};
        struct data_req req = {0};
        struct remote_res res = {0};
        struct stream t = {.b = b, .call = call, .s = s, .c = {.message = on_message}};
        uint64_t before = s->f.bytes;
        t.c.ctx = &t;
        s->args(s->ctx, &a, &s->f);
        mango_status rc = start_once(&t, path.ptr, &a, &req, &res);
        bool told = (s->f.ended && !s->f.bad) || s->f.stopped, final = a.too_big;
        rbox_args_free(&a);
        n = s->f.bytes > before ? 1 : n; /* it goes on */
        if (!told && !final)
            rc = next(&t, &req, rc, &res, n, &provisioned);
        remote_free(&b->e->r, &res);
        connect_free(&t.c);
        text_free(&t.errors);
        if (told || rc < 0)
            return told ? MANGO_OK : rc;
        if (!s->id || s->f.bad) { /* told from the beginning again */
            uint64_t content = s->f.content_bytes;
            s->f = fresh;
            s->f.content_bytes = content;
        }
    }
}
