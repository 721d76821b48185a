#include "support/endpoint-check.h"

#include <stdarg.h>
#include <stdio.h>

#include "support/endpoint-script.h"

static const char *const top_members[] = {
    "model",          "max_tokens",
    "messages",       "system",
    "tools",          "tool_choice",
    "stream",         "temperature",
    "top_p",          "top_k",
    "stop_sequences", "metadata",
    "thinking",       "output_config",
    "speed",          "service_tier",
    "container",      "mcp_servers",
    "inference_geo",  "betas",
    "cache_control",  "context_management",
};

static const char *say(struct mg_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *say(struct mg_arena *a, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return mg_arena_strdup(a, mg_sv_of(text));
}

static bool of_type(struct mg_arena *a, const struct mg_json *block, const char *type)
{
    return mg_sv_eqz(mg_json_get_str(a, block, "type"), type);
}

static const char *check_block(struct mg_arena *a, const struct mg_json *b, unsigned i, unsigned k)
{
    if (of_type(a, b, "text") && mg_json_get_str(a, b, "text").len == 0)
        return say(a, "messages: text content blocks must be non-empty");
    if (of_type(a, b, "tool_use") && !mg_json_is(mg_json_get(b, "input"), MG_JSON_OBJECT))
        return say(a, "messages.%u.content.%u.tool_use.input: Input should be a valid dictionary", i, k);
    if (of_type(a, b, "tool_use") && mg_json_get_str(a, b, "name").len == 0)
        return say(a, "messages.%u.content.%u.tool_use.name: Field required", i, k);
    if (of_type(a, b, "thinking")) {
        char signature[32];
        endpoint_signature(mg_json_get_str(a, b, "thinking"), signature);
        if (!mg_sv_eqz(mg_json_get_str(a, b, "signature"), signature))
            return say(a, "messages.%u.content.%u: Invalid `signature` in `thinking` block", i, k);
    }
    if (of_type(a, b, "tool_result")) {
        const struct mg_json *c = mg_json_get(b, "content");
        for (const struct mg_json *v = mg_json_is(c, MG_JSON_ARRAY) ? c->child : NULL; v; v = v->next) {
            if (of_type(a, v, "text") && mg_json_get_str(a, v, "text").len == 0)
                return say(a, "messages: text content blocks must be non-empty");
        }
    }
    return NULL;
}

static int count_ids(struct mg_arena *a, const struct mg_json *content, const char *type, const char *member,
                     struct mg_sv id)
{
    int n = 0;
    for (const struct mg_json *b = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL; b; b = b->next)
        n += of_type(a, b, type) && mg_sv_eq(mg_json_get_str(a, b, member), id);
    return n;
}

/* Every call of an assistant message has its result at the front of the next message. */
static const char *check_calls(struct mg_arena *a, const struct mg_json *m, unsigned i)
{
    const struct mg_json *content = mg_json_get(m, "content"), *next = m->next ? mg_json_get(m->next, "content") : NULL;
    for (const struct mg_json *b = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL; b; b = b->next) {
        struct mg_sv id = mg_json_get_str(a, b, "id");
        if (!of_type(a, b, "tool_use"))
            continue;
        if (count_ids(a, content, "tool_use", "id", id) > 1)
            return say(a, "messages.%u: `tool_use` ids must be unique", i);
        if (count_ids(a, next, "tool_result", "tool_use_id", id) == 0)
            return say(a,
                       "messages.%u: `tool_use` ids were found without `tool_result` blocks immediately after: %.*s. "
                       "Each `tool_use` "
                       "block must have a corresponding `tool_result` block in the next message.",
                       i, MG_SV_ARG(id));
    }
    return NULL;
}

static const char *check_results(struct mg_arena *a, const struct mg_json *before, const struct mg_json *m, unsigned i)
{
    const struct mg_json *content = mg_json_get(m, "content");
    bool other = false;
    unsigned k = 0;
    for (const struct mg_json *b = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL; b; b = b->next, k++) {
        struct mg_sv id = mg_json_get_str(a, b, "tool_use_id");
        if (!of_type(a, b, "tool_result")) {
            other = true;
            continue;
        }
        if (!before || count_ids(a, mg_json_get(before, "content"), "tool_use", "id", id) == 0)
            return say(a,
                       "messages.%u.content.%u: unexpected `tool_use_id` found in `tool_result` blocks: %.*s. Each "
                       "`tool_result` block "
                       "must have a corresponding `tool_use` block in the previous message.",
                       i, k, MG_SV_ARG(id));
        if (count_ids(a, content, "tool_result", "tool_use_id", id) > 1)
            return say(a,
                       "messages.%u.content.%u: each tool_use must have a single result. Found multiple `tool_result` "
                       "blocks with id: %.*s",
                       i, k, MG_SV_ARG(id));
        if (other)
            return say(
                a, "messages.%u.content.%u: `tool_result` blocks must come first in a message that answers tool calls",
                i, k);
    }
    return NULL;
}

static const char *check_message(struct mg_arena *a, const struct mg_json *before, const struct mg_json *m, unsigned i)
{
    struct mg_sv role = mg_json_get_str(a, m, "role");
    const struct mg_json *content = mg_json_get(m, "content");
    bool assistant = mg_sv_eqz(role, "assistant");
    if (!assistant && !mg_sv_eqz(role, "user"))
        return say(a, "messages.%u.role: Input should be 'user' or 'assistant'", i);
    if (!mg_json_is(content, MG_JSON_STRING) && !mg_json_is(content, MG_JSON_ARRAY))
        return say(a, "messages.%u.content: Input should be a valid list", i);
    if (content->type == MG_JSON_STRING ? content->raw.len == 2 : content->n == 0)
        return say(a, "messages.%u: all messages must have non-empty content", i);
    unsigned k = 0;
    for (const struct mg_json *b = content->type == MG_JSON_ARRAY ? content->child : NULL; b; b = b->next) {
        const char *problem = check_block(a, b, i, k++);
        if (problem)
            return problem;
    }
    return assistant ? check_calls(a, m, i) : check_results(a, before, m, i);
}

static const char *check_tools(struct mg_arena *a, const struct mg_json *tools)
{
    unsigned i = 0;
    for (const struct mg_json *t = mg_json_is(tools, MG_JSON_ARRAY) ? tools->child : NULL; t; t = t->next, i++) {
        struct mg_sv name = mg_json_get_str(a, t, "name");
        if (name.len == 0)
            return say(a, "tools.%u.name: Field required", i);
        if (!mg_json_get(t, "type") && !mg_json_is(mg_json_get(t, "input_schema"), MG_JSON_OBJECT))
            return say(a, "tools.%u.custom.input_schema: Field required", i);
        for (const struct mg_json *o = t->next; o; o = o->next) {
            if (mg_sv_eq(mg_json_get_str(a, o, "name"), name))
                return say(a, "tools: Tool names must be unique.");
        }
    }
    return NULL;
}

static const char *check_top(struct mg_arena *a, const struct mg_json *root, bool fast)
{
    const size_t n = sizeof(top_members) / sizeof(top_members[0]);
    int64_t max_tokens;
    for (const struct mg_json *v = root->child; v; v = v->next) {
        size_t i = 0;
        while (i < n && !mg_sv_eqz(v->key, top_members[i]))
            i++;
        if (i == n || (!fast && mg_sv_eqz(v->key, "speed")))
            return say(a, "%.*s: Extra inputs are not permitted", MG_SV_ARG(v->key));
    }
    if (mg_json_get_str(a, root, "model").len == 0)
        return say(a, "model: Field required");
    if (!mg_json_i64(mg_json_get(root, "max_tokens"), &max_tokens) || max_tokens < 1)
        return say(a, "max_tokens: Field required");
    const struct mg_json *messages = mg_json_get(root, "messages");
    if (!mg_json_is(messages, MG_JSON_ARRAY))
        return say(a, "messages: Field required");
    if (messages->n == 0)
        return say(a, "messages: at least one message is required");
    return check_tools(a, mg_json_get(root, "tools"));
}

/* An answer that stopped with pause_turn is sent back as it is. */
static bool is_paused(struct mg_arena *a, const struct mg_json *m)
{
    const struct mg_json *content = mg_json_get(m, "content");
    for (const struct mg_json *b = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL; b; b = b->next)
        if (of_type(a, b, "server_tool_use"))
            return true;
    return false;
}

const char *endpoint_check(struct mg_arena *a, const struct mg_json *root, bool fast)
{
    if (!mg_json_is(root, MG_JSON_OBJECT))
        return say(a, "Input should be a valid dictionary");
    const char *problem = check_top(a, root, fast);
    const struct mg_json *before = NULL, *messages = mg_json_get(root, "messages");
    unsigned i = 0;
    for (const struct mg_json *m = problem ? NULL : messages->child; m && !problem; before = m, m = m->next)
        problem = check_message(a, before, m, i++);
    if (!problem && !mg_sv_eqz(mg_json_get_str(a, messages->child, "role"), "user"))
        problem = "messages: first message must use the \"user\" role";
    if (!problem && !mg_sv_eqz(mg_json_get_str(a, before, "role"), "user") && !is_paused(a, before))
        problem =
            "This model does not support assistant message prefill. The conversation must end with a user message.";
    return problem;
}
