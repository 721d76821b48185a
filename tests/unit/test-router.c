#include "unit.h"

#include "http/query.h"
#include "http/router.h"

static mg_rc nothing(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    (void)q;
    (void)s;
    (void)err;
    return MG_OK;
}

static const struct mg_route routes[] = {
    {.method = MG_GET, .pattern = "/v1/things", .handler = nothing},
    {.method = MG_POST, .pattern = "/v1/things", .handler = nothing},
    {.method = MG_GET, .pattern = "/v1/things/{}", .handler = nothing},
    {.method = MG_DELETE, .pattern = "/v1/things/{}", .handler = nothing},
    {.method = MG_POST, .pattern = "/v1/things/new", .handler = nothing},
    {.method = MG_GET, .pattern = "/v1/{}/special", .handler = nothing},
    {.method = MG_GET, .pattern = "/v1/things/{}/parts/{}", .handler = nothing},
    {.pattern = NULL},
};

struct found {
    mg_rc rc;
    const struct mg_route *route;
    struct mg_http_req req;
    struct mg_err err;
    char allow[MG_ALLOW_MAX];
};

static struct found find(struct mg_arena *a, enum mg_http_method m, const char *path)
{
    struct found f = {.req.method = m};
    struct mg_router *r = mg_router_new(routes);
    f.rc = mg_path_parse(a, mg_sv_of(path), &f.req, &f.err);
    if (f.rc >= 0)
        f.rc = mg_router_find(r, &f.req, &f.route, f.allow, &f.err);
    mg_router_free(r);
    return f;
}

static void literals_win_over_parameters(void **state)
{
    struct mg_arena *a = mg_arena_new();
    (void)state;
    assert_ptr_equal(find(a, MG_POST, "/v1/things/new").route, &routes[4]);
    assert_ptr_equal(find(a, MG_GET, "/v1/things/special").route, &routes[2]); /* the leftmost literal decides */
    assert_ptr_equal(find(a, MG_GET, "/v1/other/special").route, &routes[5]);
    mg_arena_free(a);
}

static void parameters_are_decoded_and_in_order(void **state)
{
    struct mg_arena *a = mg_arena_new();
    (void)state;
    struct found f = find(a, MG_GET, "/v1/things/a%2Fb%20c/parts/%C3%A9");
    assert_int_equal(f.rc, 0);
    assert_sv_equal(f.req.param[0], "a/b c");
    assert_sv_equal(f.req.param[1], "\xc3\xa9");
    mg_arena_free(a);
}

static void unknown_paths_are_not_found(void **state)
{
    static const char *const paths[] = {"/",
                                        "/v1",
                                        "/v1/things/",
                                        "/v1//special",
                                        "//v1/things",
                                        "/v1/things/x/parts",
                                        "/V1/things",
                                        "/v1/things/x/parts/y/z",
                                        "/a/b/c/d/e/f/g/h/i/j/k"};
    struct mg_arena *a = mg_arena_new();
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_int_equal(find(a, MG_GET, paths[i]).rc, MG_ENOTFOUND);
    mg_arena_free(a);
}

static void a_wrong_method_names_the_right_ones(void **state)
{
    struct mg_arena *a = mg_arena_new();
    (void)state;
    struct found f = find(a, MG_DELETE, "/v1/things");
    assert_int_equal(f.rc, MG_EMETHOD);
    assert_string_equal(f.allow, "GET, HEAD, POST");
    f = find(a, MG_GET, "/v1/things/new");
    assert_int_equal(f.rc, MG_EMETHOD);
    assert_string_equal(f.allow, "POST");
    assert_int_equal(find(a, MG_METHOD_OTHER, "/v1/things/x").rc, MG_EMETHOD);
    assert_ptr_equal(find(a, MG_HEAD, "/v1/things/x").route, &routes[2]);
    mg_arena_free(a);
}

static void bad_escapes_are_refused(void **state)
{
    static const char *const paths[] = {"/v1/things/%00", "/v1/things/%",      "/v1/things/%4",  "/v1/things/%zz",
                                        "/v1/things/%ff", "/v1/things/%C0%80", "/v1/things/\xff"};
    struct mg_arena *a = mg_arena_new();
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_int_equal(find(a, MG_GET, paths[i]).rc, MG_EINVAL);
    mg_arena_free(a);
}

static struct mg_http_req parse(struct mg_arena *a, const char *query)
{
    struct mg_http_req req = {0};
    struct mg_err err;
    assert_int_equal(mg_query_parse(a, mg_sv_of(query), &req, &err), 0);
    return req;
}

static void queries_keep_order_and_repeats(void **state)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_sv v[4];
    (void)state;
    struct mg_http_req req =
        parse(a, "statuses%5B%5D=idle&beta=true&x=1+2%2B3&statuses[]=running&statuses=a&empty=&flag&&beta");
    assert_int_equal(req.n_query, 6);
    assert_int_equal(mg_http_query_all(&req, "statuses", v, 4), 3);
    assert_sv_equal(v[0], "idle");
    assert_sv_equal(v[1], "running");
    assert_sv_equal(v[2], "a");
    assert_int_equal(mg_http_query_all(&req, "statuses[]", v, 1), 3);
    assert_sv_equal(mg_http_query(&req, "x"), "1 2+3");
    assert_sv_equal(mg_http_query(&req, "empty"), "");
    assert_non_null(mg_http_query(&req, "flag").ptr);
    assert_null(mg_http_query(&req, "beta").ptr);
    mg_arena_free(a);
}

static void unknown_parameters_are_refused_with_the_valid_ones(void **state)
{
    static const char *const allowed[] = {"limit", "created_at[gte]", "statuses[]", NULL};
    struct mg_arena *a = mg_arena_new();
    struct mg_err err;
    (void)state;
    struct mg_http_req req = parse(a, "limit=1&created_at%5Bgte%5D=x&statuses=idle&beta=true");
    assert_int_equal(mg_query_check(&req, allowed, &err), 0);
    req = parse(a, "limit=1&limt=2");
    assert_int_equal(mg_query_check(&req, allowed, &err), MG_EINVAL);
    assert_contains(err.text, "'limt'");
    assert_contains(err.text, "limit, created_at[gte], statuses[]");
    req = parse(a, "created_at[lt]=2");
    assert_int_equal(mg_query_check(&req, allowed, &err), MG_EINVAL);
    req = parse(a, "x=2");
    assert_int_equal(mg_query_check(&req, NULL, &err), MG_EINVAL);
    assert_contains(err.text, "takes none");
    mg_arena_free(a);
}

static void too_many_parameters_are_refused(void **state)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_http_req req = {0};
    struct mg_err err;
    char query[1024];
    (void)state;
    memset(query, '&', sizeof(query));
    assert_int_equal(mg_query_parse(a, mg_sv_n(query, sizeof(query)), &req, &err), MG_EINVAL);
    assert_int_equal(mg_query_parse(a, MG_SV("a=%0"), &req, &err), MG_EINVAL);
    assert_int_equal(mg_query_parse(a, MG_SV("a=%00"), &req, &err), MG_EINVAL);
    mg_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literals_win_over_parameters),
        cmocka_unit_test(parameters_are_decoded_and_in_order),
        cmocka_unit_test(unknown_paths_are_not_found),
        cmocka_unit_test(a_wrong_method_names_the_right_ones),
        cmocka_unit_test(bad_escapes_are_refused),
        cmocka_unit_test(queries_keep_order_and_repeats),
        cmocka_unit_test(unknown_parameters_are_refused_with_the_valid_ones),
        cmocka_unit_test(too_many_parameters_are_refused),
    };
    return RUN(tests);
}
