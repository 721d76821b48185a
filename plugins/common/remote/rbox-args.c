#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/brought.h"
#include "common/remote/rbox.h"

/* What goes into a sandbox: the program, and the arguments of its operations. */

enum { CHARACTER_MAX = 4 /* bytes beyond the bound: whether a character ends there is seen by what follows */ };

/* ---- the program ---- */

mango_status rbox_load(const struct mango_host *h, const struct mango_call *call, const char *variable,
                       struct rbox_program *ret)
{
    char remedy[128];
    struct brought p;
    snprintf(remedy, sizeof(remedy), "install it or set %s to its path", variable);
    const struct brought_file f = {.name = RBOX_PROGRAM, .title = "", .remedy = remedy, .max = RBOX_PROGRAM_MAX};
    mango_status s = brought_load(h, call, &f, remote_setting(h, variable), &p);
    ret->bytes = p.bytes;
    snprintf(ret->name, sizeof(ret->name), "box-%016" PRIx64, p.hash);
    return s;
}

void rbox_unload(const struct mango_host *h, struct rbox_program *p)
{
    h->buf_free(h, p->bytes);
    p->bytes = NULL;
}

void rbox_new_id(char out[RBOX_NEW_ID + 1])
{
    random_hex(out, RBOX_NEW_ID);
}

/* ---- arguments ---- */

/* The whole text is UTF-8 that a JSON string takes as it is. */
static bool is_text(struct mango_sv s)
{
    for (uint64_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.ptr[i];
        unsigned len = c < 0x80                 ? 1
                       : c >= 0xC2 && c <= 0xDF ? 2
                       : (c & 0xF0) == 0xE0     ? 3
                       : c >= 0xF0 && c <= 0xF4 ? 4
                                                : 0;
        if (len == 0 || len > s.len - i)
            return false;
        for (unsigned k = 1; k < len; k++) {
            if (((unsigned char)s.ptr[i + k] & 0xC0) != 0x80)
                return false;
        }
        unsigned char d = len > 1 ? (unsigned char)s.ptr[i + 1] : 0;
        if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d >= 0xA0) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d >= 0x90))
            return false;
        i += len;
    }
    return true;
}

void rbox_arg(struct rbox_args *a, struct mango_sv s)
{
    if (s.len > RBOX_ARG_MAX || a->n == RBOX_ARGS_MAX || a->bytes.len + s.len >= RBOX_REQUEST_MAX ||
        (s.len > 0 && memchr(s.ptr, '\0', s.len))) {
        a->too_big = true;
        return;
    }
    a->encoded |= !is_text(s);
    text_sv(&a->bytes, s);
    text_bytes(&a->bytes, "", 1);
    a->n++;
}

void rbox_argz(struct rbox_args *a, const char *z)
{
    rbox_arg(a, sv_z(z));
}

void rbox_argn(struct rbox_args *a, uint64_t n)
{
    char z[24];
    snprintf(z, sizeof(z), "%" PRIu64, n);
    rbox_argz(a, z);
}

void rbox_args_free(struct rbox_args *a)
{
    text_free(&a->bytes);
    *a = (struct rbox_args){0};
}

static void encode(struct text *out, struct mango_sv s)
{
    for (uint64_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c == '%' || c >= 0x80)
            text_printf(out, "%%%02X", c);
        else
            text_bytes(out, s.ptr + i, 1);
    }
}

/* *pos: 0 is the option, then places in bytes, one on; the subcommand itself is never encoded. */
bool rbox_args_next(const struct rbox_args *a, uint64_t *pos, struct text *out)
{
    text_free(out);
    if (*pos == 0 && ++*pos && a->encoded) {
        text_add(out, "-x");
        return true;
    }
    uint64_t at = *pos - 1;
    if (at >= a->bytes.len)
        return false;
    struct mango_sv s = sv_z(a->bytes.ptr + at);
    *pos += s.len + 1;
    text_bytes(out, "", 0);
    if (a->encoded)
        encode(out, s);
    else
        text_sv(out, s);
    return true;
}

void rbox_run_args(struct rbox_args *a, const char *root, const char *id, const struct mango_exec_req *req,
                   char *const *env, uint64_t offset, uint64_t limit_ms, bool in)
{
    uint64_t n = 0;
    while (env && env[n])
        n++;
    rbox_argz(a, "run");
    rbox_argz(a, root);
    rbox_argz(a, id);
    rbox_argn(a, offset);
    rbox_argn(a, limit_ms);
    rbox_argn(a, req->max_output ? req->max_output + CHARACTER_MAX : 0);
    rbox_argn(a, in);
    rbox_arg(a, req->cwd);
    rbox_argn(a, n + req->n_env);
    for (uint64_t i = 0; i < n; i++)
        rbox_argz(a, env[i]);
    for (uint64_t i = 0; i < req->n_env; i++)
        rbox_arg(a, req->env[i]);
    for (uint64_t i = 0; i < req->n_argv; i++)
        rbox_arg(a, req->argv[i]);
}
