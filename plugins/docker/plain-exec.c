#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/json.h"
#include "docker/plain.h"

/* Execs of the Engine: made, started, read, asked about. */

enum {
    FRAME_HEAD = 8,
    READ_BYTES = 32 * 1024,
    ENDED_TRIES = 40, /* looks at an exec whose stream has ended, before its end counts as unknown */
    ENDED_PAUSE_MS = 25,
};

/* ---- the request ---- */

static bool is_utf8(struct mango_sv s)
{
    for (uint64_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.ptr[i];
        uint64_t more = c < 0x80 ? 0 : (c & 0xE0) == 0xC0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : (c & 0xF8) == 0xF0 ? 3 : 9;
        if (more > s.len - i - 1 || c == 0xC0 || c == 0xC1 || c > 0xF4)
            return false;
        unsigned char d = more ? (unsigned char)s.ptr[i + 1] : 0;
        if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F))
            return false;
        for (uint64_t k = 1; k <= more; k++) {
            if ((s.ptr[i + k] & 0xC0) != 0x80)
                return false;
        }
        i += more + 1;
    }
    return true;
}

/* JSON carries characters, and an argument may be any bytes: those that are no UTF-8 are written into the script, in
 * octal, which the shell puts in the argument's place. */
static void put_bytes(struct text *script, uint64_t number, struct mango_sv s)
{
    text_printf(script, "a%llu=$(printf '%%b.' '", (unsigned long long)number);
    for (uint64_t i = 0; i < s.len; i++)
        text_printf(script, "\\0%03o", (unsigned)(unsigned char)s.ptr[i]);
    text_printf(script, "'); a%llu=${a%llu%%.}; ", (unsigned long long)number, (unsigned long long)number);
}

static void put_script(struct text *body, const struct plain_spec *x)
{
    text_auto struct text script = {0};
    bool any = false;
    for (uint64_t i = 0; i < x->n_args; i++) {
        if (is_utf8(x->args[i]))
            continue;
        put_bytes(&script, i + 1, x->args[i]);
        any = true;
    }
    if (any) {
        text_add(&script, "set --");
        for (uint64_t i = 0; i < x->n_args; i++)
            text_printf(&script, is_utf8(x->args[i]) ? " \"${%llu}\"" : " \"$a%llu\"", (unsigned long long)i + 1);
        text_add(&script, "; ");
    }
    text_add(&script, x->script);
    text_json(body, text_view(&script));
    body->bad |= script.bad;
}

static bool overridden(const struct mango_exec_req *req, const char *v)
{
    uint64_t name = (uint64_t)(strchrnul(v, '=') - v);
    for (uint64_t i = 0; req && i < req->n_env; i++) {
        if (req->env[i].len > name && memcmp(req->env[i].ptr, v, name) == 0 && req->env[i].ptr[name] == '=')
            return true;
    }
    return false;
}

static mango_status put_env(const struct docker *d, const struct mango_call *call, const struct plain_spec *x,
                            struct text *body)
{
    text_add(body, ",\"Env\":[");
    if (x->mark) {
        text_auto struct text mark = {0};
        text_printf(&mark, "MANGO_RUN=%s", x->mark);
        text_json(body, text_view(&mark));
    } else {
        text_jsonz(body, "MANGO_HELPER=1");
    }
    for (char *const *e = x->env; e && *e; e++) {
        if (overridden(x->more, *e))
            continue;
        text_add(body, ",");
        text_jsonz(body, *e);
    }
    for (uint64_t i = 0; x->more && i < x->more->n_env; i++) {
        if (!is_utf8(x->more->env[i]))
            return fail(d->host, call, MANGO_EINVALID, "a variable that is no UTF-8 needs mango-box in the container");
        text_add(body, ",");
        text_json(body, x->more->env[i]);
    }
    text_add(body, "]");
    return MANGO_OK;
}

static mango_status make(const struct docker *d, const struct mango_call *call, const char *container,
                         struct mango_sv body, char ret_id[80])
{
    char path[128];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/containers/%s/exec", container);
    const struct engine_req req = {.method = "POST", .path = path, .body = body, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && (r.status == 404 || r.status == 409))
        s = MANGO_ENOENT;
    else if (s == MANGO_OK && (r.status != 201 || !json_copy(engine_body(d, &r), "Id", ret_id, 80)))
        s = engine_fail(d, call, &r, "make an exec");
    engine_free(d, &r);
    return s;
}

mango_status plain_exec_start(const struct docker *d, const struct mango_call *call, const char *container,
                              const struct plain_spec *spec, struct plain_exec *ret)
{
    text_auto struct text body = {0};
    char path[128];
    struct engine_res r = {0};
    text_printf(&body, "{\"AttachStdin\":%s,\"AttachStdout\":true,\"AttachStderr\":true,\"Tty\":false",
                spec->input ? "true" : "false");
    text_add(&body, ",\"Cmd\":[\"/bin/sh\",\"-c\",");
    put_script(&body, spec);
    text_add(&body, ",\"mango\"");
    for (uint64_t i = 0; i < spec->n_args; i++) {
        text_add(&body, ",");
        text_json(&body, is_utf8(spec->args[i]) ? spec->args[i] : no_text());
    }
    text_add(&body, "]");
    mango_status s = put_env(d, call, spec, &body);
    text_add(&body, "}");
    if (s == MANGO_OK && body.bad)
        s = fail(d->host, call, MANGO_ERETRY, "out of memory");
    if (s == MANGO_OK)
        s = make(d, call, container, text_view(&body), ret->id);
    if (s < 0)
        return s;
    snprintf(path, sizeof(path), "/exec/%.64s/start", ret->id);
    s = engine_hijack(d, call, path, sv_z("{\"Detach\":false,\"Tty\":false}"), &r, &ret->conn);
    if (s == MANGO_OK && !ret->conn)
        s = r.status == 404 || r.status == 409 ? MANGO_ENOENT : engine_fail(d, call, &r, "start an exec");
    engine_free(d, &r);
    return s;
}

mango_status plain_detached(const struct docker *d, const struct mango_call *call, const char *container,
                            const char *const *argv)
{
    text_auto struct text body = {0};
    char path[128], id[80];
    struct engine_res r = {0};
    text_add(&body, "{\"Cmd\":[");
    for (int i = 0; argv[i]; i++) {
        text_add(&body, i ? "," : "");
        text_jsonz(&body, argv[i]);
    }
    text_add(&body, "]}");
    mango_status s = make(d, call, container, text_view(&body), id);
    if (s < 0)
        return s;
    snprintf(path, sizeof(path), "/exec/%.64s/start", id);
    const struct engine_req req = {
        .method = "POST", .path = path, .body = sv_z("{\"Detach\":true}"), .control = true, .once = true};
    s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "start an exec");
    engine_free(d, &r);
    return s;
}

/* ---- the answer ---- */

int plain_frame(struct plain_frames *f, const char **p, uint64_t *n, struct mango_sv *ret)
{
    while (*n > 0 && !f->raw && f->left == 0) {
        f->head[f->n_head++] = (unsigned char)**p;
        ++*p;
        --*n;
        f->raw = f->n_head == 1 && f->head[0] > 2;
        if (f->raw) { /* the byte is the first of the words */
            f->n_head = 0;
            --*p;
            ++*n;
        } else if (f->n_head == FRAME_HEAD) {
            f->left = (uint32_t)f->head[4] << 24 | (uint32_t)f->head[5] << 16 | (uint32_t)f->head[6] << 8 | f->head[7];
            f->n_head = 0;
        }
    }
    if (*n == 0)
        return -1;
    uint64_t take = f->raw || *n < f->left ? *n : f->left;
    *ret = (struct mango_sv){*p, take};
    *p += take;
    *n -= take;
    f->left -= f->raw ? 0 : (uint32_t)take;
    return f->raw ? 0 : f->head[0];
}

bool plain_exec_ended(const struct docker *d, const struct mango_call *call, const char *id, int *ret_code)
{
    char path[128];
    *ret_code = -1;
    for (int i = 0; i < ENDED_TRIES; i++) {
        struct engine_res r = {0};
        int64_t code = -1;
        snprintf(path, sizeof(path), "/exec/%.64s/json", id);
        const struct engine_req req = {.method = "GET", .path = path, .control = true};
        mango_status s = engine_call(d, call, &req, &r);
        struct mango_sv doc = s == MANGO_OK && r.status == 200 ? engine_body(d, &r) : no_text();
        bool known = doc.len > 0, running = json_true(doc, "Running");
        if (known && !running && json_int(doc, "ExitCode", &code))
            *ret_code = (int)code;
        engine_free(d, &r);
        if (!known || !running)
            return known;
        nanosleep(&(struct timespec){.tv_nsec = ENDED_PAUSE_MS * 1000000L}, NULL);
    }
    return false;
}

mango_status plain_exec_run(const struct docker *d, const struct mango_call *call, const char *container,
                            const struct plain_spec *spec, char *out, size_t size, int *ret_code)
{
    struct plain_exec x = {0};
    struct plain_frames f = {0};
    size_t len = 0;
    char *buf = malloc(READ_BYTES);
    out[0] = '\0';
    *ret_code = -1;
    mango_status s = buf ? plain_exec_start(d, call, container, spec, &x) : MANGO_ERETRY;
    for (uint64_t n = 1; s == MANGO_OK && n > 0;) {
        s = d->host->conn_read(d->host, call, x.conn, buf, READ_BYTES, &n);
        const char *p = buf;
        struct mango_sv piece;
        for (uint64_t left = s == MANGO_OK ? n : 0; plain_frame(&f, &p, &left, &piece) >= 0;) {
            size_t room = size - 1 - len, take = piece.len < room ? piece.len : room;
            memcpy(out + len, piece.ptr, take);
            len += take;
            out[len] = '\0';
        }
    }
    if (x.conn)
        d->host->conn_close(d->host, x.conn);
    if (s == MANGO_OK)
        (void)plain_exec_ended(d, call, x.id, ret_code);
    free(buf);
    return s;
}
