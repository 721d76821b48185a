#include "http/query.h"

#include <stdio.h>

#include "base/utf8.h"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes into arena memory, or gives s itself when there is nothing to decode. false: bad escape, NUL, not UTF-8. */
static bool decode(struct mg_arena *a, struct mg_sv s, bool plus, struct mg_sv *ret)
{
    if (!memchr(s.ptr, '%', s.len) && !(plus && memchr(s.ptr, '+', s.len))) {
        *ret = s;
        return memchr(s.ptr, 0, s.len) == NULL && mg_utf8_valid(s, NULL);
    }
    char *out = mg_arena_alloc(a, s.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '%') {
            int hi = i + 1 < s.len ? hex(s.ptr[i + 1]) : -1;
            int lo = i + 2 < s.len ? hex(s.ptr[i + 2]) : -1;
            if (hi < 0 || lo < 0)
                return false;
            c = (char)(hi * 16 + lo);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == '\0')
            return false;
        out[n++] = c;
    }
    *ret = mg_sv_n(out, n);
    return mg_utf8_valid(*ret, NULL);
}

mg_rc mg_path_parse(struct mg_arena *a, struct mg_sv path, struct mg_http_req *req, struct mg_err *err)
{
    enum { SEGS = sizeof(req->seg) / sizeof(req->seg[0]) };
    req->n_seg = 0;
    struct mg_sv rest = mg_sv_from(path, 1);
    bool more = true;
    while (more) {
        struct mg_sv dropped = {0}, raw = mg_sv_n(rest.ptr, mg_sv_find(rest, '/'));
        more = raw.len < rest.len;
        rest = mg_sv_from(rest, raw.len + 1);
        struct mg_sv *to = req->n_seg < SEGS ? &req->seg[req->n_seg] : &dropped;
        if (!decode(a, raw, false, to))
            return mg_err_set(err, MG_EINVAL,
                              "path: segment %d holds a bad percent escape, a NUL, or bytes that are not UTF-8",
                              req->n_seg + 1);
        if (req->n_seg <= SEGS)
            req->n_seg++;
    }
    return MG_OK;
}

static size_t count_pairs(struct mg_sv query)
{
    size_t n = query.len ? 1 : 0;
    for (size_t i = 0; i < query.len; i++)
        n += query.ptr[i] == '&';
    return n;
}

mg_rc mg_query_parse(struct mg_arena *a, struct mg_sv query, struct mg_http_req *req, struct mg_err *err)
{
    req->n_query = 0;
    size_t max = count_pairs(query);
    if (max == 0)
        return MG_OK;
    if (max > MG_QUERY_MAX)
        return mg_err_set(err, MG_EINVAL, "query: more than %d parameters", MG_QUERY_MAX);
    req->query = mg_arena_alloc(a, max * sizeof(*req->query));
    while (query.len) {
        struct mg_sv value = mg_sv_split(&query, '&');
        struct mg_sv name = mg_sv_split(&value, '=');
        struct mg_http_pair *p = &req->query[req->n_query];
        if (name.len == 0 && value.len == 0)
            continue;
        if (!decode(a, name, true, &p->name) || !decode(a, value, true, &p->value))
            return mg_err_set(err, MG_EINVAL,
                              "query: parameter %d holds a bad percent escape, a NUL, or bytes that are not UTF-8",
                              req->n_query + 1);
        if (!mg_sv_eqz(p->name, "beta"))
            req->n_query++;
    }
    return MG_OK;
}

/* `name` and `name[]` are the same parameter. */
static bool same_name(struct mg_sv have, struct mg_sv want)
{
    if (mg_sv_ends(have, "[]"))
        have.len -= 2;
    if (mg_sv_ends(want, "[]"))
        want.len -= 2;
    return mg_sv_eq(have, want);
}

static bool is_allowed(struct mg_sv name, const char *const *allowed)
{
    for (; allowed && *allowed; allowed++)
        if (same_name(name, mg_sv_of(*allowed)))
            return true;
    return false;
}

mg_rc mg_query_check(const struct mg_http_req *req, const char *const *allowed, struct mg_err *err)
{
    for (int i = 0; i < req->n_query; i++) {
        if (is_allowed(req->query[i].name, allowed))
            continue;
        mg_auto(buf) struct mg_buf names = MG_BUF_INIT(512);
        for (const char *const *n = allowed; n && *n; n++)
            (void)mg_buf_printf(&names, "%s%s", n == allowed ? "" : ", ", *n);
        size_t cut = mg_utf8_floor(req->query[i].name, 64);
        if (names.len == 0)
            return mg_err_set(err, MG_EINVAL, "query: unknown parameter '%.*s'; this endpoint takes none", (int)cut,
                              req->query[i].name.ptr);
        return mg_err_set(err, MG_EINVAL, "query: unknown parameter '%.*s'; valid are: %s", (int)cut,
                          req->query[i].name.ptr, names.ptr);
    }
    return MG_OK;
}

struct mg_sv mg_http_query(const struct mg_http_req *req, const char *name)
{
    struct mg_sv want = mg_sv_of(name);
    for (int i = 0; i < req->n_query; i++)
        if (mg_sv_eq(req->query[i].name, want))
            return req->query[i].value;
    return (struct mg_sv){NULL, 0};
}

int mg_http_query_all(const struct mg_http_req *req, const char *name, struct mg_sv *out, int max)
{
    int n = 0;
    for (int i = 0; i < req->n_query; i++) {
        if (!same_name(req->query[i].name, mg_sv_of(name)))
            continue;
        if (n < max)
            out[n] = req->query[i].value;
        n++;
    }
    return n;
}
