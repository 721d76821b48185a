#include "model/offline.h"

#include <stdio.h>

#include "base/utf8.h"
#include "json/json.h"
#include "json/write.h"
#include "model/offline-plan.h"

enum {
    TEXT_MAX = 256 * 1024, /* bytes of one answer's text */
    ECHO_MAX = 1000,       /* bytes of the user's words in an echo */
    RESULTS_MAX = MG_OFFLINE_STEPS_MAX,
    ID_HEX = 25, /* 24 digits and the NUL */
};

/* A tool result, as the request gives it back. */
struct outcome {
    struct mg_sv text; /* decoded text blocks, joined */
    bool is_error;
};

/* What the request says about the turn. */
struct view {
    struct mg_arena *a;
    struct mg_sv model;
    struct mg_sv text; /* the last user text, decoded */
    bool has_text;
    int rounds; /* user messages with tool results since that text */
    int n_results;
    struct outcome results[RESULTS_MAX];
    const struct mg_json *tools;
    bool grades; /* the request asks for the verdict on an outcome */
};

static struct mg_sv join_texts(struct mg_arena *a, const struct mg_json *content)
{
    if (mg_json_is(content, MG_JSON_STRING))
        return mg_json_str(a, content);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(SIZE_MAX / 4);
    for (const struct mg_json *v = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL; v; v = v->next) {
        if (!mg_sv_eqz(mg_json_get_str(a, v, "type"), "text"))
            continue;
        if (b.len > 0)
            mg_buf_char(&b, '\n');
        mg_buf_sv(&b, mg_json_get_str(a, v, "text"));
    }
    return mg_arena_sv(a, mg_buf_view(&b));
}

static void take_results(struct view *v, const struct mg_json *content)
{
    bool any = false;
    for (const struct mg_json *b = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL; b; b = b->next) {
        if (!mg_sv_eqz(mg_json_get_str(v->a, b, "type"), "tool_result"))
            continue;
        any = true;
        const struct mg_json *err = mg_json_get(b, "is_error");
        if (v->n_results < RESULTS_MAX)
            v->results[v->n_results++] = (struct outcome){join_texts(v->a, mg_json_get(b, "content")),
                                                          mg_json_is(err, MG_JSON_BOOL) && err->boolean};
    }
    v->rounds += any;
}

static bool read_request(struct mg_sv body, struct view *v, struct mg_err *err)
{
    struct mg_json *root = NULL;
    if (mg_json_parse(v->a, body, &mg_json_raw_limits, &root, err) < 0)
        return false;
    const struct mg_json *messages = mg_json_get(root, "messages");
    if (!mg_json_is(messages, MG_JSON_ARRAY) || messages->n == 0) {
        mg_err_set(err, MG_EINVAL, "messages: at least one message is required");
        return false;
    }
    v->model = mg_json_get_str(v->a, root, "model");
    v->tools = mg_json_get(root, "tools");
    v->grades = mg_sv_starts(mg_json_get_str(v->a, root, "system"), "You grade the work of an agent.");
    for (const struct mg_json *m = messages->child; m; m = m->next) {
        if (!mg_sv_eqz(mg_json_get_str(v->a, m, "role"), "user"))
            continue;
        const struct mg_json *content = mg_json_get(m, "content");
        struct mg_sv text = join_texts(v->a, content);
        if (text.len > 0) { /* a new turn begins: earlier results are no longer of interest */
            v->text = text;
            v->has_text = true;
            v->rounds = v->n_results = 0;
        } else {
            take_results(v, content);
        }
    }
    return true;
}

/* Two FNV-1a sums in hex: ids that follow from the content alone. */
static void content_id(struct mg_sv body, char out[ID_HEX])
{
    uint64_t x = 0xcbf29ce484222325u, y = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < body.len; i++) {
        x = (x ^ (unsigned char)body.ptr[i]) * 0x100000001b3u;
        y = (y ^ (unsigned char)body.ptr[i]) * 0x100000001b3u + 1;
    }
    (void)snprintf(out, ID_HEX, "%016llx%08llx", (unsigned long long)x, (unsigned long long)(y >> 32));
}

/* The event stream being written. */
struct stream {
    struct mg_buf *out;
    struct mg_jw w;
    int index;
    size_t answered; /* bytes of text and input, for the usage */
};

static void event_open(struct stream *s, const char *type)
{
    mg_buf_printf(s->out, "event: %s\ndata: ", type);
    s->w = mg_jw_to(s->out);
    mg_jw_obj(&s->w);
    mg_jw_kstrz(&s->w, "type", type);
}

static void event_close(struct stream *s)
{
    mg_jw_obj_end(&s->w);
    mg_buf_str(s->out, "\n\n");
}

static void block_delta(struct stream *s, const char *type, const char *member, struct mg_sv part)
{
    event_open(s, "content_block_delta");
    mg_jw_kint(&s->w, "index", s->index);
    mg_jw_key(&s->w, "delta");
    mg_jw_obj(&s->w);
    mg_jw_kstrz(&s->w, "type", type);
    mg_jw_kstr(&s->w, member, part);
    mg_jw_obj_end(&s->w);
    event_close(s);
}

static void block_deltas(struct stream *s, const char *type, const char *member, struct mg_sv text)
{
    s->answered += text.len;
    while (text.len > 0) {
        size_t n = mg_utf8_floor(text, MG_OFFLINE_DELTA_MAX);
        if (n == 0)
            n = text.len < MG_OFFLINE_DELTA_MAX ? text.len : MG_OFFLINE_DELTA_MAX;
        block_delta(s, type, member, mg_sv_n(text.ptr, n));
        text = mg_sv_from(text, n);
    }
}

static void block_stop(struct stream *s)
{
    event_open(s, "content_block_stop");
    mg_jw_kint(&s->w, "index", s->index++);
    event_close(s);
}

static void put_text(struct stream *s, struct mg_sv text)
{
    event_open(s, "content_block_start");
    mg_jw_kint(&s->w, "index", s->index);
    mg_jw_kraw(&s->w, "content_block", MG_SV("{\"type\":\"text\",\"text\":\"\"}"));
    event_close(s);
    block_deltas(s, "text_delta", "text", text);
    block_stop(s);
}

static void put_tool_use(struct stream *s, const char *id, const struct mg_offline_step *step)
{
    event_open(s, "content_block_start");
    mg_jw_kint(&s->w, "index", s->index);
    mg_jw_key(&s->w, "content_block");
    mg_jw_obj(&s->w);
    mg_jw_kstrz(&s->w, "type", "tool_use");
    mg_jw_key(&s->w, "id");
    mg_jw_strz(&s->w, id);
    mg_jw_kstr(&s->w, "name", step->tool);
    mg_jw_kraw(&s->w, "input", MG_SV("{}"));
    mg_jw_obj_end(&s->w);
    event_close(s);
    block_deltas(s, "input_json_delta", "partial_json", step->input);
    block_stop(s);
}

static void message_start(struct stream *s, const struct view *v, const char *id, int64_t input_tokens)
{
    char message_id[8 + ID_HEX];
    (void)snprintf(message_id, sizeof(message_id), "msg_%s", id);
    event_open(s, "message_start");
    mg_jw_key(&s->w, "message");
    mg_jw_obj(&s->w);
    mg_jw_kstrz(&s->w, "id", message_id);
    mg_jw_kstrz(&s->w, "type", "message");
    mg_jw_kstrz(&s->w, "role", "assistant");
    mg_jw_kstr(&s->w, "model", v->model);
    mg_jw_kraw(&s->w, "content", MG_SV("[]"));
    mg_jw_knull(&s->w, "stop_reason");
    mg_jw_knull(&s->w, "stop_sequence");
    mg_jw_key(&s->w, "usage");
    mg_jw_obj(&s->w);
    mg_jw_kint(&s->w, "input_tokens", input_tokens);
    mg_jw_kint(&s->w, "output_tokens", 1);
    mg_jw_obj_end(&s->w);
    mg_jw_obj_end(&s->w);
    event_close(s);
}

static void message_end(struct stream *s, const char *stop_reason)
{
    event_open(s, "message_delta");
    mg_jw_key(&s->w, "delta");
    mg_jw_obj(&s->w);
    mg_jw_kstrz(&s->w, "stop_reason", stop_reason);
    mg_jw_knull(&s->w, "stop_sequence");
    mg_jw_obj_end(&s->w);
    mg_jw_key(&s->w, "usage");
    mg_jw_obj(&s->w);
    mg_jw_kint(&s->w, "output_tokens", (int64_t)(s->answered / 4 + 1));
    mg_jw_obj_end(&s->w);
    event_close(s);
    event_open(s, "message_stop");
    event_close(s);
}

static struct mg_sv shortened(struct mg_sv text, size_t max, bool *ret_cut)
{
    struct mg_sv s = mg_sv_trim(text);
    *ret_cut = s.len > max;
    return *ret_cut ? mg_sv_n(s.ptr, mg_utf8_floor(s, max)) : s;
}

static void quote_result(struct mg_buf *b, const struct mg_offline_step *step, const struct outcome *o)
{
    bool cut;
    struct mg_sv text = shortened(o->text, MG_OFFLINE_QUOTE_MAX, &cut);
    mg_buf_printf(b, "%.*s %s", MG_SV_ARG(step->label), o->is_error ? "failed" : "gave");
    if (text.len == 0)
        mg_buf_str(b, o->is_error ? " without saying why.\n\n" : " no output.\n\n");
    else
        mg_buf_printf(b, ":\n\n```\n%.*s%s\n```\n\n", MG_SV_ARG(text), cut ? "\n[...]" : "");
}

/* The number that the last call printed, when counting was what it did. */
static bool counted(const struct view *v, const struct mg_offline_step *steps, int n, int64_t *ret)
{
    if (n == 0 || v->n_results < n || v->results[n - 1].is_error || !mg_sv_ends(steps[n - 1].label, "wc -l`"))
        return false;
    return mg_sv_to_i64(mg_sv_trim(v->results[n - 1].text), ret);
}

static void put_summary(struct stream *s, const struct view *v, const struct mg_offline_step *steps, int n)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TEXT_MAX);
    int64_t count;
    for (int i = 0; i < n && i < v->n_results; i++)
        quote_result(&b, &steps[i], &v->results[i]);
    if (counted(v, steps, n, &count))
        mg_buf_printf(&b, "So there %s %lld %s here.", count == 1 ? "is" : "are", (long long)count,
                      count == 1 ? "entry" : "entries");
    else
        mg_buf_printf(&b, "That was %s.", n == 1 ? "the one step" : "all that you asked for");
    put_text(s, mg_buf_view(&b));
}

static void put_echo(struct stream *s, const struct view *v)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TEXT_MAX);
    bool cut;
    struct mg_sv text = shortened(v->text, ECHO_MAX, &cut);
    if (text.len > 0)
        mg_buf_printf(&b, "You said: \"%.*s%s\". ", MG_SV_ARG(text), cut ? "..." : "");
    mg_buf_str(&b, "I am the offline model, which answers where no model endpoint is configured. "
                   "Ask me to list the files, or say \"run: COMMAND\".");
    put_text(s, mg_buf_view(&b));
}

static void put_answer(struct stream *s, const struct view *v, const char *id)
{
    struct mg_offline_step steps[MG_OFFLINE_STEPS_MAX];
    int n = mg_offline_plan(v->a, v->text, v->tools, steps, MG_OFFLINE_STEPS_MAX);
    if (v->rounds < n) {
        char tool_id[8 + ID_HEX];
        (void)snprintf(tool_id, sizeof(tool_id), "toolu_%s", id);
        put_text(s, steps[v->rounds].say);
        put_tool_use(s, tool_id, &steps[v->rounds]);
        message_end(s, "tool_use");
        return;
    }
    if (n > 0)
        put_summary(s, v, steps, n);
    else
        put_echo(s, v);
    message_end(s, "end_turn");
}

/* It reads no rubric: every outcome is fine, so that a first run without a model shows the whole course. */
static void put_verdict(struct stream *s)
{
    put_text(s, MG_SV("{\"result\":\"satisfied\",\"explanation\":\"The offline model accepts every outcome.\"}"));
    message_end(s, "end_turn");
}

static void put_error(struct stream *s, const char *text)
{
    event_open(s, "error");
    mg_jw_key(&s->w, "error");
    mg_jw_obj(&s->w);
    mg_jw_kstrz(&s->w, "type", "invalid_request_error");
    mg_jw_kstrz(&s->w, "message", text);
    mg_jw_obj_end(&s->w);
    event_close(s);
}

mg_rc mg_offline_answer(struct mg_sv body, struct mg_buf *out)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct view *v = mg_arena_new_of(a, struct view);
    struct stream s = {.out = out};
    struct mg_err err = {0};
    v->a = a;
    if (!read_request(body, v, &err)) {
        put_error(&s, err.text);
        return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
    }
    char id[ID_HEX];
    content_id(body, id);
    message_start(&s, v, id, (int64_t)(body.len / 4 + 1));
    if (v->grades)
        put_verdict(&s);
    else
        put_answer(&s, v, id);
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}
