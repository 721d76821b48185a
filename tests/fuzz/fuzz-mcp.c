/* What MCP servers say: whatever it is, what goes on to the model is legal JSON of blocks that endpoints take, and the tools have plain names and
 * schemas that are objects. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "json/json.h"
#include "mcp/result.h"
#include "mcp/rpc.h"
#include "mcp/tool-list.h"

enum { DEPTH = 512 };

static const char *keep(void *ctx, const char *suffix, struct mg_sv bytes, const char **ret_why)
{
    (void)bytes;
    fuzz_check(strlen(suffix) < 32 && !strchr(suffix, '/'), "a suffix is safe in a file name");
    *ret_why = "there is none";
    return *(bool *)ctx ? "/work/kept" : NULL;
}

static void check_blocks(struct mg_arena *a, struct mg_sv text)
{
    struct mg_json *v = NULL;
    fuzz_check(mg_json_parse(a, text, &mg_json_raw_limits, &v, NULL) == MG_OK, "the content is JSON");
    fuzz_check(v->type == MG_JSON_ARRAY && v->n > 0, "the content has blocks");
    for (const struct mg_json *b = v->child; b; b = b->next) {
        bool is_text = mg_sv_eqz(mg_json_get_str(a, b, "type"), "text");
        fuzz_check(!is_text || mg_sv_trim(mg_json_get_str(a, b, "text")).len > 0, "no text is blank");
        fuzz_check(!memchr(mg_json_get_str(a, b, "text").ptr, 0, mg_json_get_str(a, b, "text").len),
                   "no text has a NUL");
    }
}

static void render(struct mg_sv text, bool keeps)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_buf out = MG_BUF_INIT(MG_MCP_CONTENT_MAX);
    struct mg_err err = {0};
    bool is_error;
    mg_rc rc = mg_mcp_render(text, keep, &keeps, &out, &is_error, &err);
    fuzz_check_err(rc, &err);
    if (rc == MG_OK)
        check_blocks(a, mg_buf_view(&out));
    mg_buf_done(&out);
    mg_arena_free(a);
}

static void list(struct mg_arena *a, const struct mg_json *result)
{
    struct mg_mcp_tool_list l;
    struct mg_json *v = NULL;
    struct mg_err err = {0};
    char alias[MG_MCP_ALIAS_MAX + 1];
    mg_mcp_tool_list_init(&l);
    mg_rc rc = mg_mcp_tool_list_add(a, &l, result, &err);
    fuzz_check_err(rc, &err);
    mg_mcp_tool_list_end(&l);
    if (rc == MG_OK) {
        fuzz_check(mg_json_parse(a, mg_buf_view(&l.tools), &mg_json_raw_limits, &v, NULL) == MG_OK, "a list is JSON");
        fuzz_check((int)v->n == l.n_tools && l.n_tools <= MG_MCP_TOOLS_MAX, "a list is bounded");
        for (const struct mg_json *t = v->child; t; t = t->next) {
            mg_mcp_alias(MG_SV("s"), mg_json_get_str(a, t, "name"), alias);
            fuzz_check(!mg_mcp_schema_problem(a, mg_json_get(t, "input_schema")), "a listed schema is one");
        }
        fuzz_check(!l.cursor[0] || mg_json_check(mg_sv_of(l.cursor), DEPTH, NULL) == MG_OK,
                   "a cursor is a JSON string");
    }
    mg_mcp_tool_list_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_rpc m[MG_RPC_BATCH_MAX];
    struct mg_err err = {0};
    char text[128];
    int n = 0;
    mg_rc rc = mg_rpc_parse(a, fuzz_text(data, size), m, &n, &err);
    fuzz_check_err(rc, &err);
    for (int i = 0; rc == MG_OK && i < n; i++) {
        if (m[i].kind == MG_RPC_RESULT)
            list(a, m[i].body);
        if (m[i].kind == MG_RPC_ERROR)
            mg_rpc_error_text(a, m[i].body, text, sizeof(text));
        struct mg_buf b = MG_BUF_INIT(4096);
        if (m[i].kind == MG_RPC_REQUEST && m[i].id.len <= MG_RPC_ID_MAX &&
            mg_rpc_answer(&b, m[i].id, m[i].method) == MG_OK)
            fuzz_check(mg_json_check(mg_buf_view(&b), DEPTH, NULL) == MG_OK, "an answer of ours is JSON");
        mg_buf_done(&b);
    }
    mg_arena_free(a);
    render(fuzz_text(data, size), size % 2 == 0);
    return 0;
}
