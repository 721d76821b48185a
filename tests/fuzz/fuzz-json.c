/* JSON: what parses is what checks, spans lie inside of the text, and a value equals itself. */
#include "fuzz/fuzz.h"
#include "json/json.h"

static void walk(struct mg_arena *a, const struct mg_json *v, struct mg_sv text)
{
    fuzz_check(v->raw.ptr >= text.ptr && v->raw.ptr + v->raw.len <= text.ptr + text.len, "a span lies in the text");
    int64_t n;
    if (mg_json_is(v, MG_JSON_STRING))
        (void)mg_json_str(a, v);
    if (mg_json_is(v, MG_JSON_NUMBER))
        (void)mg_json_i64(v, &n);
    uint32_t children = 0;
    for (const struct mg_json *c = v->child; c; c = c->next, children++)
        walk(a, c, text);
    fuzz_check(children == v->n, "n counts the children");
}

static bool parse(struct mg_arena *a, struct mg_sv text, const struct mg_json_limits *lim, struct mg_json **ret)
{
    struct mg_err err = {0};
    mg_rc rc = mg_json_parse(a, text, lim, ret, &err);
    fuzz_check_err(rc, &err);
    return rc == MG_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_sv text = fuzz_text(data, size);
    struct mg_json *strict = NULL, *raw = NULL;
    struct mg_err err = {0};
    bool ok_strict = parse(a, text, &mg_json_api_limits, &strict), ok_raw = parse(a, text, &mg_json_raw_limits, &raw);
    bool ok_check = mg_json_check(text, mg_json_raw_limits.max_depth, &err) == MG_OK;
    fuzz_check(!ok_strict || ok_raw, "strict is narrower than lenient");
    fuzz_check(!ok_raw || ok_check, "what parses passes the check");
    if (ok_strict) {
        walk(a, strict, text);
        fuzz_check(mg_json_equal(a, strict, raw), "a value equals itself");
    }
    if (ok_raw)
        walk(a, raw, text);
    mg_arena_free(a);
    return 0;
}
