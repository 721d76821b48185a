#include "support/endpoint-script.h"

#include <stdio.h>
#include <stdlib.h>

#include "json/write.h"

enum {
    ANSWER_MAX = 64 * 1024 * 1024, /* bytes; scripts ask for answers over every limit of the client */
    DELTA_DEFAULT = 32,
};

/* An answer being written. */
struct build {
    struct endpoint_answer *a;
    struct mg_buf events;  /* of the chunk that is open */
    struct mg_buf headers; /* extra ones */
    struct mg_buf content; /* whole: the blocks */
    struct mg_jw w;
    unsigned serial, n_tools;
    int index, delta, status;
    int64_t in, out, cache_read, cache_made;
    bool begun, started, ended, whole, no_type, has_tool, leave_open;
    size_t sent; /* bytes of the answer that steps cover */
};

void endpoint_answer_done(struct endpoint_answer *a)
{
    mg_buf_done(&a->bytes);
    free(a->steps);
    *a = (struct endpoint_answer){0};
}

static void add_step(struct endpoint_answer *a, enum endpoint_step_kind kind, int ms, size_t from, size_t len)
{
    a->steps = mg_xrealloc(a->steps, (size_t)(a->n_steps + 1) * sizeof(*a->steps));
    a->steps[a->n_steps++] = (struct endpoint_step){kind, ms, from, len};
}

/* What was written so far goes out before the next step. */
static void flush(struct build *b)
{
    struct endpoint_answer *a = b->a;
    if (b->events.len > 0) {
        mg_buf_printf(&a->bytes, "%zx\r\n", b->events.len);
        mg_buf_sv(&a->bytes, mg_buf_view(&b->events));
        mg_buf_str(&a->bytes, "\r\n");
        mg_buf_reset(&b->events);
    }
    if (a->bytes.len > b->sent)
        add_step(a, STEP_SEND, 0, b->sent, a->bytes.len - b->sent);
    b->sent = a->bytes.len;
}

static void step(struct build *b, enum endpoint_step_kind kind, int ms)
{
    flush(b);
    add_step(b->a, kind, ms, 0, 0);
}

static const char *type_of_status(int status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {400, "invalid_request_error"}, {401, "authentication_error"}, {402, "billing_error"},
        {403, "permission_error"},      {404, "not_found_error"},      {413, "request_too_large"},
        {429, "rate_limit_error"},      {504, "timeout_error"},        {529, "overloaded_error"},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].status == status)
            return types[i].type;
    }
    return "api_error";
}

static void head(struct build *b, int status, const char *type, long length)
{
    struct mg_buf *out = &b->a->bytes;
    mg_buf_printf(out, "HTTP/1.1 %d Scripted\r\n", status);
    if (type && !b->no_type)
        mg_buf_printf(out, "Content-Type: %s\r\n", type);
    if (length >= 0)
        mg_buf_printf(out, "Content-Length: %ld\r\n", length);
    else
        mg_buf_str(out, "Transfer-Encoding: chunked\r\n");
    mg_buf_sv(out, mg_buf_view(&b->headers));
    mg_buf_str(out, "Request-Id: req_fake\r\n\r\n");
    b->begun = true;
}

static void plain(struct build *b, int status, const char *type, struct mg_sv body)
{
    if (b->begun)
        return;
    head(b, status, type, (long)body.len);
    mg_buf_sv(&b->a->bytes, body);
    flush(b);
    b->ended = true;
}

static void error_body(struct mg_buf *out, const char *type, struct mg_sv message)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "error");
    mg_jw_key(&w, "error");
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", type);
    mg_jw_kstr(&w, "message", message);
    mg_jw_obj_end(&w);
    mg_jw_kstrz(&w, "request_id", "req_fake");
    mg_jw_obj_end(&w);
}

static void fail(struct build *b, int status, struct mg_sv message)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(ANSWER_MAX);
    error_body(&body, type_of_status(status), message);
    plain(b, status, "application/json", mg_buf_view(&body));
}

static void event_open(struct build *b, const char *type)
{
    mg_buf_printf(&b->events, "event: %s\ndata: ", type);
    b->w = mg_jw_to(&b->events);
    mg_jw_obj(&b->w);
    mg_jw_kstrz(&b->w, "type", type);
}

static void event_close(struct build *b)
{
    mg_jw_obj_end(&b->w);
    mg_buf_str(&b->events, "\n\n");
}

static void put_usage(struct mg_jw *w, const struct build *b, int64_t out)
{
    mg_jw_key(w, "usage");
    mg_jw_obj(w);
    mg_jw_kint(w, "input_tokens", b->in);
    mg_jw_kint(w, "cache_creation_input_tokens", b->cache_made);
    mg_jw_kint(w, "cache_read_input_tokens", b->cache_read);
    mg_jw_kint(w, "output_tokens", out);
    mg_jw_obj_end(w);
}

/* The head of a stream and its message_start. */
static void need_start(struct build *b)
{
    char id[32];
    if (!b->begun && !b->whole)
        head(b, 200, "text/event-stream; charset=utf-8", -1);
    if (b->started || b->whole)
        return;
    b->started = true;
    (void)snprintf(id, sizeof(id), "msg_%u", b->serial);
    event_open(b, "message_start");
    mg_jw_key(&b->w, "message");
    mg_jw_obj(&b->w);
    mg_jw_kstrz(&b->w, "id", id);
    mg_jw_kstrz(&b->w, "type", "message");
    mg_jw_kstrz(&b->w, "role", "assistant");
    mg_jw_kstrz(&b->w, "model", "fake");
    mg_jw_kraw(&b->w, "content", MG_SV("[]"));
    mg_jw_knull(&b->w, "stop_reason");
    put_usage(&b->w, b, 1);
    mg_jw_obj_end(&b->w);
    event_close(b);
}

static void block_start(struct build *b, struct mg_sv block)
{
    need_start(b);
    event_open(b, "content_block_start");
    mg_jw_kint(&b->w, "index", b->index);
    mg_jw_kraw(&b->w, "content_block", block);
    event_close(b);
}

static void block_stop(struct build *b)
{
    event_open(b, "content_block_stop");
    mg_jw_kint(&b->w, "index", b->index++);
    event_close(b);
}

/* Characters of UTF-8 are never cut: each delta is a JSON string of its own. */
static size_t delta_len(struct mg_sv text, size_t max)
{
    size_t n = text.len < max ? text.len : max;
    while (n < text.len && n > 0 && ((unsigned char)text.ptr[n] & 0xc0) == 0x80)
        n--;
    return n > 0 ? n : text.len < max ? text.len : max;
}

static void deltas(struct build *b, const char *type, const char *member, struct mg_sv text)
{
    while (text.len > 0) {
        size_t n = delta_len(text, (size_t)b->delta);
        event_open(b, "content_block_delta");
        mg_jw_kint(&b->w, "index", b->index);
        mg_jw_key(&b->w, "delta");
        mg_jw_obj(&b->w);
        mg_jw_kstrz(&b->w, "type", type);
        mg_jw_kstr(&b->w, member, mg_sv_n(text.ptr, n));
        mg_jw_obj_end(&b->w);
        event_close(b);
        text = mg_sv_from(text, n);
    }
}

/* A finished block of a whole answer. */
static void whole_block(struct build *b, struct mg_sv raw)
{
    if (b->content.len > 0)
        mg_buf_char(&b->content, ',');
    mg_buf_sv(&b->content, raw);
}

/* "\n" in a script's words is a line break. */
static void unescape(struct mg_buf *out, struct mg_sv words)
{
    for (size_t i = 0; i < words.len; i++) {
        bool br = words.ptr[i] == '\\' && i + 1 < words.len && words.ptr[i + 1] == 'n';
        mg_buf_char(out, br ? '\n' : words.ptr[i]);
        i += br;
    }
}

static void simple_block(struct build *b, const char *type, const char *member, struct mg_sv text)
{
    mg_auto(buf) struct mg_buf raw = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&raw);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", type);
    mg_jw_kstr(&w, member, b->whole ? text : MG_SV(""));
    mg_jw_obj_end(&w);
    if (b->whole) {
        whole_block(b, mg_buf_view(&raw));
        return;
    }
    char delta[40];
    (void)snprintf(delta, sizeof(delta), "%s_delta", type);
    block_start(b, mg_buf_view(&raw));
    deltas(b, delta, member, text);
}

static void do_text(struct build *b, struct mg_sv rest)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(ANSWER_MAX);
    unescape(&text, rest);
    simple_block(b, "text", "text", mg_buf_view(&text));
    if (!b->whole)
        block_stop(b);
}

static int64_t number(struct mg_sv *rest)
{
    int64_t n = 0;
    struct mg_sv word = mg_sv_split(rest, ' ');
    *rest = mg_sv_trim(*rest);
    return mg_sv_to_i64(word, &n) ? n : 0;
}

static void do_big(struct build *b, struct mg_sv rest)
{
    size_t n = (size_t)number(&rest);
    mg_autofree char *text = mg_xmalloc(n + 1);
    memset(text, 'x', n);
    simple_block(b, "text", "text", mg_sv_n(text, n));
    if (!b->whole)
        block_stop(b);
}

void endpoint_signature(struct mg_sv thinking, char out[32])
{
    uint64_t x = 0xcbf29ce484222325u;
    for (size_t i = 0; i < thinking.len; i++)
        x = (x ^ (unsigned char)thinking.ptr[i]) * 0x100000001b3u;
    (void)snprintf(out, 32, "sig/%016llx==", (unsigned long long)x);
}

static void do_think(struct build *b, struct mg_sv rest)
{
    char signature[32];
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(ANSWER_MAX);
    unescape(&text, rest);
    endpoint_signature(mg_buf_view(&text), signature);
    simple_block(b, "thinking", "thinking", mg_buf_view(&text));
    if (b->whole)
        return;
    deltas(b, "signature_delta", "signature", mg_sv_of(signature));
    block_stop(b);
}

static void do_block(struct build *b, struct mg_sv rest)
{
    if (b->whole) {
        whole_block(b, rest);
        return;
    }
    block_start(b, rest);
    block_stop(b);
}

static void do_redacted(struct build *b, struct mg_sv rest)
{
    mg_auto(buf) struct mg_buf raw = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&raw);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "redacted_thinking");
    mg_jw_kstr(&w, "data", rest);
    mg_jw_obj_end(&w);
    do_block(b, mg_buf_view(&raw));
}

static void tool_block(struct build *b, struct mg_sv rest, bool stop)
{
    char id[40];
    struct mg_sv name = mg_sv_split(&rest, ' '), input = mg_sv_trim(rest);
    mg_auto(buf) struct mg_buf raw = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&raw);
    (void)snprintf(id, sizeof(id), "toolu_%u_%u", b->serial, b->n_tools++);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "tool_use");
    mg_jw_kstrz(&w, "id", id);
    mg_jw_kstr(&w, "name", name);
    mg_jw_kraw(&w, "input", b->whole && input.len > 0 ? input : MG_SV("{}"));
    mg_jw_obj_end(&w);
    b->has_tool = true;
    if (b->whole) {
        whole_block(b, mg_buf_view(&raw));
        return;
    }
    block_start(b, mg_buf_view(&raw));
    deltas(b, "input_json_delta", "partial_json", input);
    if (stop)
        block_stop(b);
}

static void do_tool(struct build *b, struct mg_sv rest)
{
    tool_block(b, rest, true);
}

static void do_cut_tool(struct build *b, struct mg_sv rest)
{
    tool_block(b, rest, false);
}

static void do_raw(struct build *b, struct mg_sv rest)
{
    if (!b->begun)
        head(b, 200, "text/event-stream; charset=utf-8", -1);
    mg_buf_printf(&b->events, "data: %.*s\n\n", MG_SV_ARG(rest));
}

static void do_line(struct build *b, struct mg_sv rest)
{
    if (!b->begun)
        head(b, 200, "text/event-stream; charset=utf-8", -1);
    mg_buf_printf(&b->events, "%.*s\n", MG_SV_ARG(rest));
}

static void end_whole(struct build *b, struct mg_sv reason)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(ANSWER_MAX);
    mg_auto(buf) struct mg_buf content = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&body);
    mg_buf_printf(&content, "[%.*s]", MG_SV_ARG(mg_buf_view(&b->content)));
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "id", "msg_whole");
    mg_jw_kstrz(&w, "type", "message");
    mg_jw_kstrz(&w, "role", "assistant");
    mg_jw_kraw(&w, "content", mg_buf_view(&content));
    mg_jw_kstr(&w, "stop_reason", reason);
    put_usage(&w, b, b->out);
    mg_jw_obj_end(&w);
    plain(b, 200, "application/json", mg_buf_view(&body));
}

static void end_chunks(struct build *b)
{
    flush(b);
    mg_buf_str(&b->a->bytes, "0\r\n\r\n");
    flush(b);
    b->ended = true;
}

static void do_stop(struct build *b, struct mg_sv rest)
{
    struct mg_sv reason = mg_sv_split(&rest, ' '), details = mg_sv_trim(rest);
    if (b->whole) {
        end_whole(b, reason);
        return;
    }
    need_start(b);
    event_open(b, "message_delta");
    mg_jw_key(&b->w, "delta");
    mg_jw_obj(&b->w);
    mg_jw_kstr(&b->w, "stop_reason", reason);
    mg_jw_knull(&b->w, "stop_sequence");
    if (details.len > 0)
        mg_jw_kraw(&b->w, "stop_details", details);
    mg_jw_obj_end(&b->w);
    mg_jw_key(&b->w, "usage");
    mg_jw_obj(&b->w);
    mg_jw_kint(&b->w, "output_tokens", b->out);
    mg_jw_obj_end(&b->w);
    event_close(b);
    event_open(b, "message_stop");
    event_close(b);
    end_chunks(b);
}

static void do_usage(struct build *b, struct mg_sv rest)
{
    b->in = number(&rest);
    b->out = number(&rest);
    b->cache_read = number(&rest);
    b->cache_made = number(&rest);
}

static void do_chunk(struct build *b, struct mg_sv rest)
{
    b->delta = (int)number(&rest);
}

static void do_delay(struct build *b, struct mg_sv rest)
{
    step(b, STEP_WAIT, (int)number(&rest));
}

static void do_ping(struct build *b, struct mg_sv rest)
{
    int64_t n = number(&rest), ms = number(&rest);
    need_start(b);
    for (int64_t i = 0; i < n; i++) {
        step(b, STEP_WAIT, (int)ms);
        event_open(b, "ping");
        event_close(b);
    }
}

static void finish_with(struct build *b, enum endpoint_step_kind kind)
{
    need_start(b);
    step(b, kind, 0);
    b->ended = true;
}

static void do_silence(struct build *b, struct mg_sv rest)
{
    (void)rest;
    step(b, STEP_HANG, 0);
    b->ended = true;
}

static void do_cut(struct build *b, struct mg_sv rest)
{
    (void)rest;
    need_start(b);
    end_chunks(b);
}

static void do_close(struct build *b, struct mg_sv rest)
{
    (void)rest;
    finish_with(b, STEP_CLOSE);
}

static void do_reset(struct build *b, struct mg_sv rest)
{
    (void)rest;
    finish_with(b, STEP_RESET);
}

static void do_end(struct build *b, struct mg_sv rest)
{
    (void)rest;
    end_chunks(b);
}

static void do_drop(struct build *b, struct mg_sv rest)
{
    (void)rest;
    step(b, STEP_CLOSE, 0);
    b->ended = true;
}

static void do_repeat(struct build *b, struct mg_sv rest)
{
    int64_t n = number(&rest);
    for (int64_t i = 0; i < n; i++)
        do_line(b, rest);
}

static void do_error(struct build *b, struct mg_sv rest)
{
    char type[64];
    struct mg_sv word = mg_sv_split(&rest, ' ');
    need_start(b);
    (void)snprintf(type, sizeof(type), "%.*s", MG_SV_ARG(word));
    mg_buf_str(&b->events, "event: error\ndata: ");
    error_body(&b->events, type, rest);
    mg_buf_str(&b->events, "\n\n");
    end_chunks(b);
}

static void do_status(struct build *b, struct mg_sv rest)
{
    int status = (int)number(&rest);
    fail(b, status, rest.len > 0 ? rest : MG_SV("scripted failure"));
}

static void do_too_long(struct build *b, struct mg_sv rest)
{
    (void)rest;
    fail(b, 400, MG_SV("prompt is too long: 210000 tokens > 200000 maximum"));
}

static void do_header(struct build *b, struct mg_sv rest)
{
    mg_buf_printf(&b->headers, "%.*s\r\n", MG_SV_ARG(rest));
}

static void do_code(struct build *b, struct mg_sv rest)
{
    b->status = (int)number(&rest);
}

static void do_body(struct build *b, struct mg_sv rest)
{
    char type[64];
    struct mg_sv word = mg_sv_split(&rest, ' ');
    (void)snprintf(type, sizeof(type), "%.*s", MG_SV_ARG(word));
    plain(b, b->status, type, rest);
}

static void do_empty(struct build *b, struct mg_sv rest)
{
    (void)rest;
    plain(b, 200, "text/event-stream", MG_SV(""));
}

static void do_whole(struct build *b, struct mg_sv rest)
{
    (void)rest;
    b->whole = true;
}

static void do_no_type(struct build *b, struct mg_sv rest)
{
    (void)rest;
    b->no_type = true;
}

static void do_stale(struct build *b, struct mg_sv rest)
{
    (void)rest;
    b->leave_open = true;
}

static const struct {
    const char *word;
    void (*run)(struct build *b, struct mg_sv rest);
} commands[] = {
    {"text", do_text},         {"big", do_big},           {"think", do_think},     {"redacted", do_redacted},
    {"tool", do_tool},         {"cut-tool", do_cut_tool}, {"block", do_block},     {"raw", do_raw},
    {"line", do_line},         {"stop", do_stop},         {"usage", do_usage},     {"chunk", do_chunk},
    {"delay", do_delay},       {"ping", do_ping},         {"silence", do_silence}, {"cut", do_cut},
    {"close", do_close},       {"reset", do_reset},       {"error", do_error},     {"status", do_status},
    {"too-long", do_too_long}, {"header", do_header},     {"code", do_code},       {"body", do_body},
    {"empty", do_empty},       {"whole", do_whole},       {"no-type", do_no_type}, {"stale", do_stale},
    {"end", do_end},           {"drop", do_drop},         {"repeat", do_repeat},
};

/* "@N " and "+N " in front of a command: for the first N attempts, or after them. False: not for this one. */
static bool wanted(struct mg_sv *line, int attempt)
{
    char mark = line->len > 1 ? line->ptr[0] : '\0';
    if (mark != '@' && mark != '+')
        return true;
    *line = mg_sv_from(*line, 1);
    int64_t n = number(line);
    return mark == '@' ? attempt <= n : attempt > n;
}

static void run_line(struct build *b, struct mg_sv line)
{
    struct mg_sv word = mg_sv_split(&line, ' ');
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (mg_sv_eqz(word, commands[i].word)) {
            commands[i].run(b, line);
            return;
        }
    }
    if (word.len > 0)
        fail(b, 400, MG_SV("the test script has a command that does not exist"));
}

void endpoint_compile(struct endpoint_answer *a, struct mg_sv stage, int attempt, unsigned serial, bool stream)
{
    *a = (struct endpoint_answer){.bytes = MG_BUF_INIT(2 * ANSWER_MAX)};
    struct build b = {
        .a = a,
        .events = MG_BUF_INIT(ANSWER_MAX),
        .headers = MG_BUF_INIT(ANSWER_MAX),
        .content = MG_BUF_INIT(ANSWER_MAX),
        .serial = serial,
        .delta = DELTA_DEFAULT,
        .status = 200,
        .in = 100,
        .out = 20,
        .whole = !stream,
    };
    while (stage.len > 0 && !b.ended) {
        struct mg_sv line = mg_sv_trim(mg_sv_split(&stage, '\n'));
        if (wanted(&line, attempt))
            run_line(&b, line);
    }
    if (!b.ended)
        do_stop(&b, b.has_tool ? MG_SV("tool_use") : MG_SV("end_turn"));
    flush(&b);
    while (stage.len > 0 && !b.leave_open) /* "stale" may stand behind what ends the answer */
        b.leave_open = mg_sv_eqz(mg_sv_trim(mg_sv_split(&stage, '\n')), "stale");
    if (b.leave_open)
        add_step(a, STEP_STALE, 0, 0, 0);
    mg_buf_done(&b.events);
    mg_buf_done(&b.headers);
    mg_buf_done(&b.content);
}

void endpoint_json(struct endpoint_answer *a, int status, struct mg_sv json)
{
    *a = (struct endpoint_answer){.bytes = MG_BUF_INIT(2 * ANSWER_MAX)};
    struct build b = {.a = a};
    plain(&b, status, "application/json", json);
}

void endpoint_error(struct endpoint_answer *a, int status, const char *message)
{
    *a = (struct endpoint_answer){.bytes = MG_BUF_INIT(2 * ANSWER_MAX)};
    struct build b = {.a = a};
    b.events = MG_BUF_INIT(ANSWER_MAX);
    fail(&b, status, mg_sv_of(message));
    mg_buf_done(&b.events);
}

static bool is_dashes(struct mg_sv line)
{
    return mg_sv_eqz(mg_sv_trim(line), "---");
}

struct mg_sv endpoint_stage(struct mg_sv text, int round, bool *ret_script)
{
    const char *mark = mg_sv_starts(text, "<task>") ? "#grade" : "#fake";
    const char *at = text.len > 0 ? memmem(text.ptr, text.len, mark, strlen(mark)) : NULL;
    *ret_script = at != NULL;
    if (!at)
        return MG_SV("");
    text = mg_sv_from(text, (size_t)(at - text.ptr));
    (void)mg_sv_split(&text, '\n');
    const char *end = text.len > 0 ? memmem(text.ptr, text.len, "\n#end", 5) : NULL;
    if (end)
        text.len = (size_t)(end - text.ptr) + 1;
    for (; round > 0 && text.len > 0; round--) {
        while (text.len > 0 && !is_dashes(mg_sv_split(&text, '\n')))
            continue;
    }
    struct mg_sv rest = text, stage = mg_sv_n(text.ptr, 0);
    while (rest.len > 0) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        if (is_dashes(line))
            break;
        stage.len = (size_t)(line.ptr + line.len - text.ptr);
    }
    return stage;
}
