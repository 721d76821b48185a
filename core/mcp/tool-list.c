#include "mcp/tool-list.h"

#include <stdio.h>

#include "base/utf8.h"
#include "crypto/hash.h"
#include "json/write.h"

enum { HASH_DIGITS = 8 };

void mg_mcp_tool_list_init(struct mg_mcp_tool_list *l)
{
    *l = (struct mg_mcp_tool_list){.tools = MG_BUF_INIT(MG_MCP_LIST_MAX)};
    (void)mg_buf_char(&l->tools, '[');
}

void mg_mcp_tool_list_done(struct mg_mcp_tool_list *l)
{
    mg_buf_done(&l->tools);
}

void mg_mcp_tool_list_end(struct mg_mcp_tool_list *l)
{
    (void)mg_buf_char(&l->tools, ']');
}

static bool name_is_usable(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f)
            return false;
    return s.len >= 1 && s.len <= MG_MCP_TOOL_NAME_MAX;
}

/* Whether the list has a tool of this name already: looked for as its own writer writes it. */
static bool have(const struct mg_mcp_tool_list *l, struct mg_sv name)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(8 * MG_MCP_TOOL_NAME_MAX);
    (void)mg_buf_str(&b, "{\"name\":\"");
    mg_json_escape(&b, name);
    (void)mg_buf_str(&b, "\",\"description\":");
    return memmem(l->tools.ptr, l->tools.len, b.ptr, b.len) != NULL;
}

static void describe(struct mg_arena *a, const struct mg_json *tool, const char *problem, struct mg_buf *out)
{
    static const char CUT[] = "\n[cut: the server's description is longer]";
    struct mg_sv text = mg_json_get_str(a, tool, "description");
    if (text.len == 0)
        text = mg_json_get_str(a, tool, "title");
    size_t n = mg_utf8_floor(text, MG_MCP_DESCRIPTION_MAX);
    for (size_t i = 0; i < n; i++) /* PostgreSQL and many clients take no NUL */
        (void)mg_buf_char(out, text.ptr[i] ? text.ptr[i] : ' ');
    if (n < text.len)
        (void)mg_buf_str(out, CUT);
    if (problem)
        (void)mg_buf_printf(out,
                            "%s[The input schema of the server could not be used: %s. Any object is taken here; "
                            "the server may refuse it.]",
                            out->len ? "\n" : "", problem);
}

static void add_tool(struct mg_arena *a, struct mg_mcp_tool_list *l, const struct mg_json *tool)
{
    struct mg_sv name = mg_json_get_str(a, tool, "name");
    if (!mg_buf_ok(&l->tools) || !name_is_usable(name) || l->n_tools == MG_MCP_TOOLS_MAX || have(l, name)) {
        l->n_left_out++;
        return;
    }
    const struct mg_json *schema = mg_json_get(tool, "inputSchema");
    const char *problem = mg_mcp_schema_problem(a, schema);
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(2 * MG_MCP_DESCRIPTION_MAX);
    describe(a, tool, problem, &text);
    if (l->n_tools++)
        (void)mg_buf_char(&l->tools, ',');
    struct mg_jw w = mg_jw_to(&l->tools);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "name", name);
    mg_jw_kstr(&w, "description", mg_buf_view(&text));
    mg_jw_kraw(&w, "input_schema", problem ? MG_SV("{\"type\":\"object\"}") : schema->raw);
    mg_jw_obj_end(&w);
}

mg_rc mg_mcp_tool_list_add(struct mg_arena *a, struct mg_mcp_tool_list *l, const struct mg_json *result,
                           struct mg_err *err)
{
    const struct mg_json *tools = mg_json_get(result, "tools"), *next = mg_json_get(result, "nextCursor");
    if (!mg_json_is(tools, MG_JSON_ARRAY))
        return mg_err_set(err, MG_EINVAL, "the server's answer to tools/list has no array of tools");
    for (const struct mg_json *t = tools->child; t; t = t->next)
        add_tool(a, l, t);
    l->cursor[0] = '\0';
    if (!mg_buf_ok(&l->tools))
        return mg_err_set(err, MG_ETOOBIG, "the server's tools are over %d bytes", MG_MCP_LIST_MAX);
    if (!mg_json_is(next, MG_JSON_STRING))
        return MG_OK;
    if (next->raw.len > MG_MCP_CURSOR_MAX)
        return mg_err_set(err, MG_ETOOBIG, "the server's cursor for more tools is over %d bytes", MG_MCP_CURSOR_MAX);
    memcpy(l->cursor, next->raw.ptr, next->raw.len);
    l->cursor[next->raw.len] = '\0';
    return MG_OK;
}

/* ---- names for the model ---- */

static bool put_plain(struct mg_buf *b, struct mg_sv s)
{
    bool plain = true;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        plain &= ok;
        (void)mg_buf_char(b, ok ? c : '_');
    }
    return plain;
}

void mg_mcp_alias(struct mg_sv server, struct mg_sv tool, char out[MG_MCP_ALIAS_MAX + 1])
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4096), both = MG_BUF_INIT(4096);
    (void)mg_buf_str(&b, "mcp__");
    bool plain = put_plain(&b, server);
    (void)mg_buf_str(&b, "__");
    plain &= put_plain(&b, tool);
    /* A server "a__b" with a tool "c" must not be a server "a" with a tool "b__c". */
    plain &= !memmem(server.ptr, server.len, "__", 2) && !memmem(tool.ptr, tool.len, "__", 2);
    if (plain && b.len <= MG_MCP_ALIAS_MAX) {
        memcpy(out, b.ptr, b.len + 1);
        return;
    }
    char hex[MG_SHA256_HEX];
    (void)mg_buf_printf(&both, "%zu:", server.len);
    (void)mg_buf_sv(&both, server);
    (void)mg_buf_sv(&both, tool);
    mg_sha256_hex(mg_buf_view(&both), hex);
    size_t keep = MG_MCP_ALIAS_MAX - HASH_DIGITS - 1;
    (void)snprintf(out, MG_MCP_ALIAS_MAX + 1, "%.*s_%.*s", (int)(b.len < keep ? b.len : keep), b.ptr, HASH_DIGITS, hex);
}
