#include "model/message.h"

#include <stdarg.h>
#include <stdio.h>

#include "json/json.h"
#include "model/block.h"
#include "model/failure.h"

struct mg_message {
    struct mg_model_result *r;
    struct mg_open_block **blocks;
    int n_blocks, cap_blocks;
    int n_events;
    bool begun, ended, failed;
    mg_message_delta_fn *fn;
    void *ctx;
};

struct mg_message *mg_message_new(mg_message_delta_fn *fn, void *ctx)
{
    struct mg_message *m = mg_xcalloc(1, sizeof(*m));
    m->r = mg_xcalloc(1, sizeof(*m->r));
    m->r->arena = mg_arena_new();
    m->fn = fn;
    m->ctx = ctx;
    return m;
}

static void free_shell(struct mg_message *m)
{
    for (int i = 0; i < m->n_blocks; i++)
        mg_open_block_free(m->blocks[i]);
    free(m->blocks);
    free(m);
}

void mg_model_result_free(struct mg_model_result *r)
{
    if (!r)
        return;
    mg_arena_free(r->arena);
    free(r);
}

bool mg_message_ended(const struct mg_message *m)
{
    return m->ended;
}

int mg_message_events(const struct mg_message *m)
{
    return m->n_events;
}

void mg_message_fail(struct mg_message *m, enum mg_model_fail fail, const char *fmt, ...)
{
    if (m->failed)
        return;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(m->r->message, sizeof(m->r->message), fmt, ap);
    va_end(ap);
    m->r->fail = fail;
    m->failed = m->ended = true;
}

/* The peer broke the protocol: another attempt may be answered better. */
static void broken(struct mg_message *m, const char *what)
{
    mg_message_fail(m, MG_MODEL_RETRY_SERVER, "the model endpoint's stream is broken: %s (event %d)", what,
                    m->n_events);
}

static void take_count(const struct mg_json *obj, const char *key, int64_t *count)
{
    int64_t n;
    if (mg_json_i64(mg_json_get(obj, key), &n) && n >= 0)
        *count = n;
}

/* Counts that a later event repeats replace the earlier ones; those it leaves out stay (MO3). */
static void merge_usage(struct mg_model_usage *u, const struct mg_json *usage)
{
    if (!mg_json_is(usage, MG_JSON_OBJECT))
        return;
    take_count(usage, "input_tokens", &u->input_tokens);
    take_count(usage, "output_tokens", &u->output_tokens);
    take_count(usage, "cache_read_input_tokens", &u->cache_read_input_tokens);
    take_count(usage, "cache_creation_input_tokens", &u->cache_creation_input_tokens);
    const struct mg_json *made = mg_json_get(usage, "cache_creation");
    take_count(made, "ephemeral_5m_input_tokens", &u->cache_5m);
    take_count(made, "ephemeral_1h_input_tokens", &u->cache_1h);
    const struct mg_json *server = mg_json_get(usage, "server_tool_use");
    take_count(server, "web_search_requests", &u->web_search_requests);
    take_count(server, "web_fetch_requests", &u->web_fetch_requests);
}

static void take_stop(struct mg_message *m, struct mg_arena *a, const struct mg_json *obj)
{
    const struct mg_json *reason = mg_json_get(obj, "stop_reason");
    if (mg_json_is(reason, MG_JSON_STRING))
        mg_model_clean(m->r->stop_reason, sizeof(m->r->stop_reason), mg_json_str(a, reason), MG_SV(""));
    const struct mg_json *details = mg_json_get(obj, "stop_details");
    if (mg_json_is(details, MG_JSON_OBJECT))
        m->r->stop_details = mg_arena_sv(m->r->arena, details->raw);
}

static void take_error(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    const struct mg_json *e = mg_json_get(root, "error");
    struct mg_sv type = mg_json_get_str(a, e, "type"), text = mg_json_get_str(a, e, "message");
    char shown_type[64], shown[384];
    mg_model_clean(shown_type, sizeof(shown_type), type, MG_SV(""));
    mg_model_clean(shown, sizeof(shown), text, MG_SV(""));
    mg_message_fail(m, mg_model_fail_of(0, type, text), "the model endpoint reported %s%s%s%s",
                    shown_type[0] ? shown_type : "an error", m->n_events > 1 ? " in mid-answer" : "",
                    shown[0] ? ": " : "", shown);
}

static void tell_delta(struct mg_message *m, int index, bool start, struct mg_sv text)
{
    if (m->fn && (start || text.len > 0))
        m->fn(m->ctx, index, mg_open_block_kind(m->blocks[index]), start, text);
}

static bool known_tool_id(const struct mg_message *m, const struct mg_open_block *b)
{
    struct mg_sv id = mg_open_block_tool_id(b);
    for (int i = 0; id.len > 0 && i < m->n_blocks; i++) {
        if (mg_sv_eq(mg_open_block_tool_id(m->blocks[i]), id))
            return true;
    }
    return false;
}

static void begin_block(struct mg_message *m, struct mg_arena *a, const struct mg_json *block)
{
    if (m->n_blocks == MG_MODEL_BLOCKS_MAX) {
        mg_message_fail(m, MG_MODEL_PERMANENT, "the model's answer has more than %d content blocks",
                        MG_MODEL_BLOCKS_MAX);
        return;
    }
    const char *problem = NULL;
    struct mg_open_block *b = mg_open_block_new(m->r->arena, a, block, &problem);
    if (!b) {
        broken(m, problem);
        return;
    }
    if (known_tool_id(m, b)) {
        mg_open_block_free(b);
        broken(m, "two tool calls have the same id");
        return;
    }
    if (m->n_blocks == m->cap_blocks) {
        m->cap_blocks = m->cap_blocks ? 2 * m->cap_blocks : 8;
        m->blocks = mg_xrealloc(m->blocks, (size_t)m->cap_blocks * sizeof(void *));
    }
    m->blocks[m->n_blocks++] = b;
    struct mg_sv first = MG_SV("");
    if (mg_open_block_kind(b) == MG_BLOCK_TEXT)
        first = mg_raw_inner(mg_json_get_raw(block, "text"));
    tell_delta(m, m->n_blocks - 1, true, first);
}

static void on_start(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    (void)a;
    if (m->begun) {
        broken(m, "a second message_start");
        return;
    }
    m->begun = true;
    merge_usage(&m->r->usage, mg_json_get(mg_json_get(root, "message"), "usage"));
}

static void on_block_start(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    int64_t index;
    if (!mg_json_i64(mg_json_get(root, "index"), &index) || index != m->n_blocks)
        broken(m, "content_block_start out of order");
    else
        begin_block(m, a, mg_json_get(root, "content_block"));
}

/* The block that an event names, or NULL with the failure noted. */
static struct mg_open_block *named_block(struct mg_message *m, const struct mg_json *root, int *ret_index)
{
    int64_t index;
    if (!mg_json_i64(mg_json_get(root, "index"), &index) || index < 0 || index >= m->n_blocks) {
        broken(m, "an event for a content block that never started");
        return NULL;
    }
    *ret_index = (int)index;
    return m->blocks[index];
}

/* A delta with the same member twice extends the block twice, and so its preview. */
static void tell_texts(struct mg_message *m, int index, const struct mg_json *delta)
{
    enum mg_block_kind kind = mg_open_block_kind(m->blocks[index]);
    if (kind != MG_BLOCK_TEXT && kind != MG_BLOCK_THINKING)
        return;
    for (const struct mg_json *v = delta->child; v; v = v->next) {
        if (v->type == MG_JSON_STRING && mg_sv_eqz(v->key, kind == MG_BLOCK_TEXT ? "text" : "thinking"))
            tell_delta(m, index, false, mg_raw_inner(v->raw));
    }
}

static void on_block_delta(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    int index = 0;
    struct mg_open_block *b = named_block(m, root, &index);
    const struct mg_json *delta = mg_json_get(root, "delta");
    if (!b)
        return;
    const char *problem = mg_open_block_delta(b, a, delta);
    if (problem) {
        broken(m, problem);
        return;
    }
    tell_texts(m, index, delta);
}

static void on_block_stop(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    (void)a;
    int index = 0;
    struct mg_open_block *b = named_block(m, root, &index);
    if (b)
        mg_open_block_stop(b);
}

static void on_message_delta(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    take_stop(m, a, mg_json_get(root, "delta"));
    merge_usage(&m->r->usage, mg_json_get(root, "usage"));
}

static void on_message_stop(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    (void)a;
    (void)root;
    m->ended = true;
}

static const struct {
    const char *type;
    void (*take)(struct mg_message *m, struct mg_arena *a, const struct mg_json *root);
} events[] = {
    {"content_block_delta", on_block_delta},
    {"content_block_start", on_block_start},
    {"content_block_stop", on_block_stop},
    {"message_start", on_start},
    {"message_delta", on_message_delta},
    {"message_stop", on_message_stop},
    {"error", take_error},
};

enum mg_message_step mg_message_event(struct mg_message *m, struct mg_sv data)
{
    if (m->ended)
        return MG_MESSAGE_END;
    m->n_events++;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *root = NULL;
    if (mg_json_parse(a, data, &mg_json_raw_limits, &root, NULL) < 0 || root->type != MG_JSON_OBJECT) {
        broken(m, "an event whose data is not a JSON object");
        return MG_MESSAGE_END;
    }
    struct mg_sv type = mg_json_get_str(a, root, "type");
    if (mg_sv_eqz(type, "ping"))
        return MG_MESSAGE_PING;
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        if (mg_sv_eqz(type, events[i].type)) {
            events[i].take(m, a, root);
            break; /* kinds of event that come with newer endpoints are passed over */
        }
    }
    return m->ended ? MG_MESSAGE_END : MG_MESSAGE_MORE;
}

static void take_message(struct mg_message *m, struct mg_arena *a, const struct mg_json *root)
{
    const struct mg_json *content = mg_json_get(root, "content");
    merge_usage(&m->r->usage, mg_json_get(root, "usage"));
    take_stop(m, a, root);
    if (!mg_json_is(content, MG_JSON_ARRAY)) {
        broken(m, "a message without a content array");
        return;
    }
    for (const struct mg_json *b = content->child; b && !m->failed; b = b->next) {
        begin_block(m, a, b);
        if (!m->failed)
            mg_open_block_stop(m->blocks[m->n_blocks - 1]);
    }
    m->ended = true;
}

enum mg_message_step mg_message_whole(struct mg_message *m, struct mg_sv body)
{
    if (m->ended)
        return MG_MESSAGE_END;
    m->n_events++;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *root = NULL;
    if (mg_json_parse(a, body, &mg_json_raw_limits, &root, NULL) < 0 || root->type != MG_JSON_OBJECT)
        mg_message_fail(m, MG_MODEL_RETRY_SERVER, "the model endpoint's answer is not a JSON object");
    else if (mg_sv_eqz(mg_json_get_str(a, root, "type"), "error"))
        take_error(m, a, root);
    else if (mg_sv_eqz(mg_json_get_str(a, root, "type"), "message"))
        take_message(m, a, root);
    else
        mg_message_fail(m, MG_MODEL_RETRY_SERVER, "the model endpoint's answer is JSON, but not a message");
    return MG_MESSAGE_END;
}

/* Stop reasons that end an answer wherever it happens to be. */
static bool was_cut(const struct mg_model_result *r)
{
    return strcmp(r->stop_reason, "max_tokens") == 0 || strcmp(r->stop_reason, "model_context_window_exceeded") == 0;
}

static void close_blocks(struct mg_message *m)
{
    struct mg_model_result *r = m->r;
    r->blocks = mg_arena_alloc(r->arena, (size_t)(m->n_blocks ? m->n_blocks : 1) * sizeof(*r->blocks));
    for (int i = 0; i < m->n_blocks; i++)
        r->blocks[i] = mg_open_block_close(m->blocks[i], r->arena, was_cut(r) && i == m->n_blocks - 1);
    r->n_blocks = m->n_blocks;
}

struct mg_model_result *mg_message_finish(struct mg_message *m)
{
    struct mg_model_result *r = m->r;
    if (!m->ended)
        mg_message_fail(m, MG_MODEL_RETRY_SERVER,
                        "the model endpoint's stream ended after %d events without a message_stop", m->n_events);
    else if (!m->failed && r->stop_reason[0] == '\0')
        mg_message_fail(m, MG_MODEL_RETRY_SERVER, "the model endpoint's answer ended without a stop reason");
    close_blocks(m);
    free_shell(m);
    return r;
}
