#include "http/router.h"

#include <stdio.h>

#include "base/mem.h"

enum { SEGS = 8, PARAMS = 4 };

struct pattern {
    const struct mg_route *route;
    int n;
    unsigned wild; /* bit i: segment i is {} */
    struct mg_sv seg[SEGS];
};

struct mg_router {
    size_t n;
    struct pattern p[];
};

static const char *const method_names[] = {
    [MG_GET] = "GET", [MG_POST] = "POST", [MG_DELETE] = "DELETE", [MG_HEAD] = "HEAD", [MG_OPTIONS] = "OPTIONS",
};

static void compile(struct pattern *p, const struct mg_route *route)
{
    struct mg_sv rest = mg_sv_from(mg_sv_of(route->pattern), 1);
    bool more = true;
    *p = (struct pattern){.route = route};
    while (more && p->n < SEGS) {
        size_t at = mg_sv_find(rest, '/');
        more = at < rest.len;
        p->seg[p->n] = mg_sv_n(rest.ptr, at);
        if (mg_sv_eqz(p->seg[p->n], "{}"))
            p->wild |= 1U << p->n;
        p->n++;
        rest = mg_sv_from(rest, at + 1);
    }
}

struct mg_router *mg_router_new(const struct mg_route *routes)
{
    size_t n = 0;
    while (routes && routes[n].pattern)
        n++;
    struct mg_router *r = mg_xmalloc(sizeof(*r) + n * sizeof(r->p[0]));
    r->n = n;
    for (size_t i = 0; i < n; i++)
        compile(&r->p[i], &routes[i]);
    return r;
}

void mg_router_free(struct mg_router *r)
{
    free(r);
}

int mg_route_params(const struct mg_route *route)
{
    struct pattern p;
    compile(&p, route);
    return __builtin_popcount(p.wild);
}

static bool matches(const struct pattern *p, const struct mg_http_req *req)
{
    if (p->n != req->n_seg)
        return false;
    for (int i = 0; i < p->n; i++) {
        if (p->wild & 1U << i) {
            if (req->seg[i].len == 0)
                return false;
        } else if (!mg_sv_eq(p->seg[i], req->seg[i])) {
            return false;
        }
    }
    return true;
}

/* The leftmost segment in which the two differ decides: the literal wins. */
static bool more_literal(unsigned wild, unsigned than)
{
    unsigned diff = wild ^ than;
    return diff && !(wild & (diff & -diff));
}

static bool answers(const struct mg_route *route, enum mg_http_method m)
{
    return route->method == m || (m == MG_HEAD && route->method == MG_GET);
}

static void add_allow(char *allow, enum mg_http_method m)
{
    size_t len = strlen(allow);
    if (m >= sizeof(method_names) / sizeof(method_names[0]) || strstr(allow, method_names[m]))
        return;
    (void)snprintf(allow + len, MG_ALLOW_MAX - len, "%s%s", len ? ", " : "", method_names[m]);
}

static void fill_params(const struct pattern *p, struct mg_http_req *req)
{
    int n = 0;
    for (int i = 0; i < p->n; i++)
        if (p->wild & 1U << i && n < PARAMS)
            req->param[n++] = req->seg[i];
}

mg_rc mg_router_find(const struct mg_router *r, struct mg_http_req *req, const struct mg_route **ret,
                     char allow[MG_ALLOW_MAX], struct mg_err *err)
{
    const struct pattern *best = NULL, *shown = NULL;
    allow[0] = '\0';
    for (size_t i = 0; i < r->n; i++) {
        const struct pattern *p = &r->p[i];
        if (!matches(p, req))
            continue;
        if (!shown || more_literal(p->wild, shown->wild))
            shown = p;
        if (answers(p->route, req->method) && (!best || more_literal(p->wild, best->wild)))
            best = p;
    }
    /* A literal path of another method hides a pattern: DELETE /things/new is not DELETE /things/{}. */
    if (best && more_literal(shown->wild, best->wild))
        best = NULL;
    if (best) {
        fill_params(best, req);
        *ret = best->route;
        return MG_OK;
    }
    if (!shown)
        return mg_err_set(err, MG_ENOTFOUND, "there is no endpoint at this path");
    for (size_t i = 0; i < r->n; i++) {
        if (!matches(&r->p[i], req) || r->p[i].wild != shown->wild)
            continue;
        add_allow(allow, r->p[i].route->method);
        if (r->p[i].route->method == MG_GET && !(r->p[i].route->flags & (MG_ROUTE_STREAM | MG_ROUTE_WS)))
            add_allow(allow, MG_HEAD);
    }
    return mg_err_set(err, MG_EMETHOD, "this endpoint does not have that method; it has: %s", allow);
}
