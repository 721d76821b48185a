/* Path and query of a request target. */
#include "fuzz/fuzz.h"
#include "http/query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const allowed[] = {"limit", "page", "statuses[]", NULL};
    struct mg_arena *a = mg_arena_new();
    struct mg_sv text = fuzz_text(data, size);
    struct mg_http_req *req = mg_arena_new_of(a, struct mg_http_req);
    struct mg_err err = {0};
    req->arena = a;
    size_t mark = mg_sv_find(text, '?');
    fuzz_check_err(mg_path_parse(a, mg_sv_n(text.ptr, mark), req, &err), &err);
    mg_rc rc = mg_query_parse(a, mg_sv_from(text, mark + 1), req, &err);
    fuzz_check_err(rc, &err);
    if (rc == MG_OK) {
        fuzz_check(req->n_query >= 0 && req->n_query <= MG_QUERY_MAX, "the number of parameters is bounded");
        fuzz_check_err(mg_query_check(req, allowed, &err), &err);
        struct mg_sv out[4];
        (void)mg_http_query_all(req, "statuses", out, 4);
    }
    mg_arena_free(a);
    return 0;
}
