#include "cmd/cli-show.h"

#include <stdarg.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"

enum {
    RESULT_LINES = 12, /* of a tool result that are shown */
    LINE_BYTES = 300,  /* of one shown line */
    INPUT_BYTES = 200, /* of a tool's input */
    TEXT_MAX = 4 * 1024 * 1024,
};

static const char DIM[] = "\033[2m", BOLD[] = "\033[1m", RED[] = "\033[31m", GREEN[] = "\033[32m", CYAN[] = "\033[36m",
                  RESET[] = "\033[0m";

static const char *paint(const struct mg_cli_show *s, const char *colour)
{
    return s->colour ? colour : "";
}

void mg_cli_show_start(struct mg_cli_show *s, const struct mg_cli *c)
{
    *s = (struct mg_cli_show){.cli = c, .out = stdout, .colour = c->text && c->tty, .progress = c->text && c->tty};
}

static void clear_line(struct mg_cli_show *s)
{
    if (s->line_shown)
        fputs("\r\033[K", s->out);
    s->line_shown = false;
}

void mg_cli_show_tick(struct mg_cli_show *s)
{
    static const char *const FRAMES[] = {"|", "/", "-", "\\"};

    if (!s->progress || !s->doing[0])
        return;
    double seconds = (double)(mg_now_ns() - s->since_ns) / 1e9;
    fprintf(s->out, "\r\033[K%s%s %s  %.0f s%s", DIM, FRAMES[s->frame++ / 2 % 4], s->doing, seconds, RESET);
    (void)fflush(s->out);
    s->line_shown = true;
}

void mg_cli_show_note(struct mg_cli_show *s, const char *fmt, ...)
{
    va_list ap;

    clear_line(s);
    (void)fflush(s->out);
    fputs("mango: ", stderr);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

void mg_cli_show_end(struct mg_cli_show *s)
{
    clear_line(s);
    (void)fflush(s->out);
}

static void now_doing(struct mg_cli_show *s, const char *what, struct mg_sv name)
{
    s->since_ns = mg_now_ns();
    (void)snprintf(s->doing, sizeof(s->doing), "%s%.*s", what, (int)mg_utf8_floor(name, 40), name.ptr);
}

/* ---- pieces ---- */

/* Lines of text behind a margin; at most max (0: all). */
static void print_lines(struct mg_cli_show *s, struct mg_sv text, const char *margin, int max)
{
    mg_auto(buf) struct mg_buf clean = MG_BUF_INIT(TEXT_MAX);
    int n = 0, left = 0;

    mg_cli_clean(&clean, mg_sv_n(text.ptr, mg_utf8_floor(text, TEXT_MAX / 4)), true);
    struct mg_sv rest = mg_buf_view(&clean);
    while (rest.len && rest.ptr[rest.len - 1] == '\n')
        rest.len--;
    while (rest.len) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        if (max && n == max) {
            left++;
            continue;
        }
        size_t shown = max ? mg_utf8_floor(line, LINE_BYTES) : line.len;
        fprintf(s->out, "%s%.*s%s\n", margin, (int)shown, line.ptr, shown < line.len ? " ..." : "");
        n++;
    }
    if (left)
        fprintf(s->out, "%s%s... %d more lines%s\n", margin, paint(s, DIM), left, paint(s, RESET));
}

/* Text of all text blocks; others by their type. */
static void print_content(struct mg_cli_show *s, struct mg_arena *a, const struct mg_json *content, const char *margin,
                          int max)
{
    if (mg_json_is(content, MG_JSON_STRING)) {
        print_lines(s, mg_json_str(a, content), margin, max);
        return;
    }
    for (const struct mg_json *b = content && content->type == MG_JSON_ARRAY ? content->child : NULL; b; b = b->next) {
        struct mg_sv type = mg_json_get_str(a, b, "type");
        if (mg_sv_eqz(type, "text"))
            print_lines(s, mg_json_get_str(a, b, "text"), margin, max);
        else
            fprintf(s->out, "%s[%.*s]\n", margin, (int)(type.len < 40 ? type.len : 40), type.ptr);
    }
}

static struct mg_sv input_summary(struct mg_arena *a, const struct mg_json *input)
{
    static const char *const KEYS[] = {"command", "file_path", "pattern", "query", "url"};

    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++)
        if (mg_json_is(mg_json_get(input, KEYS[i]), MG_JSON_STRING))
            return mg_json_get_str(a, input, KEYS[i]);
    return input ? input->raw : MG_SV("");
}

static void print_tool_use(struct mg_cli_show *s, struct mg_arena *a, const struct mg_json *e)
{
    mg_auto(buf) struct mg_buf clean = MG_BUF_INIT(TEXT_MAX);
    struct mg_sv name = mg_json_get_str(a, e, "name"), full = input_summary(a, mg_json_get(e, "input"));
    struct mg_sv line = full, first = mg_sv_split(&line, '\n');

    mg_cli_clean(&clean, mg_sv_n(first.ptr, mg_utf8_floor(first, INPUT_BYTES)), false);
    fprintf(s->out, "%s> %.*s%s  %s%s\n", paint(s, CYAN), (int)(name.len < 80 ? name.len : 80), name.ptr,
            paint(s, RESET), clean.ptr ? clean.ptr : "", first.len < full.len || first.len > INPUT_BYTES ? " ..." : "");
    if (mg_sv_eqz(mg_json_get_str(a, e, "evaluated_permission"), "ask"))
        fputs("    waits for a confirmation\n", s->out);
    now_doing(s, "runs ", name);
}

static void print_tool_result(struct mg_cli_show *s, struct mg_arena *a, const struct mg_json *e)
{
    const struct mg_json *failed = mg_json_get(e, "is_error");

    print_content(s, a, mg_json_get(e, "content"), failed && failed->boolean ? "  ! " : "  | ", RESULT_LINES);
    now_doing(s, "works", MG_SV(""));
}

static void print_error(struct mg_cli_show *s, struct mg_arena *a, const struct mg_json *e)
{
    const struct mg_json *error = mg_json_get(e, "error");
    mg_auto(buf) struct mg_buf clean = MG_BUF_INIT(TEXT_MAX);
    struct mg_sv retry = mg_json_get_str(a, mg_json_get(error, "retry_status"), "type");

    mg_cli_clean(&clean, mg_json_get_str(a, error, "message"), false);
    fprintf(s->out, "%serror%s  %s%s\n", paint(s, RED), paint(s, RESET), clean.ptr ? clean.ptr : "",
            mg_sv_eqz(retry, "retrying") ? " (tries again)" : "");
}

static void print_idle(struct mg_cli_show *s, struct mg_arena *a, const struct mg_json *e)
{
    struct mg_sv why = mg_json_get_str(a, mg_json_get(e, "stop_reason"), "type");

    s->doing[0] = '\0';
    if (mg_sv_eqz(why, "requires_action"))
        fprintf(s->out, "%swaits%s  for an answer to %.*s\n", paint(s, BOLD), paint(s, RESET),
                MG_SV_ARG(mg_json_get_raw(mg_json_get(e, "stop_reason"), "event_ids")));
    else
        fprintf(s->out, "%sidle%s  %.*s  (%lld tokens in, %lld out)\n", paint(s, GREEN), paint(s, RESET),
                MG_SV_ARG(why), (long long)s->tokens_in, (long long)s->tokens_out);
}

static void count_tokens(struct mg_cli_show *s, const struct mg_json *e)
{
    const struct mg_json *usage = mg_json_get(e, "model_usage");
    int64_t n = 0;

    if (mg_json_i64(mg_json_get(usage, "input_tokens"), &n))
        s->tokens_in += n;
    if (mg_json_i64(mg_json_get(usage, "output_tokens"), &n))
        s->tokens_out += n;
}

static void print_text(struct mg_cli_show *s, struct mg_arena *a, const struct mg_json *e)
{
    struct mg_sv type = mg_json_get_str(a, e, "type");

    if (mg_sv_eqz(type, "user.message")) {
        fprintf(s->out, "%syou%s\n", paint(s, BOLD), paint(s, RESET));
        print_content(s, a, mg_json_get(e, "content"), "    ", 0);
    } else if (mg_sv_eqz(type, "agent.message")) {
        fprintf(s->out, "%sagent%s\n", paint(s, BOLD), paint(s, RESET));
        print_content(s, a, mg_json_get(e, "content"), "    ", 0);
    } else if (mg_sv_eqz(type, "agent.tool_use") || mg_sv_eqz(type, "agent.custom_tool_use") ||
               mg_sv_eqz(type, "agent.mcp_tool_use")) {
        print_tool_use(s, a, e);
    } else if (mg_sv_ends(type, "tool_result")) {
        print_tool_result(s, a, e);
    } else if (mg_sv_eqz(type, "session.error")) {
        print_error(s, a, e);
    } else if (mg_sv_eqz(type, "session.status_idle")) {
        print_idle(s, a, e);
    } else if (mg_sv_eqz(type, "span.model_request_start")) {
        now_doing(s, "asks the model", MG_SV(""));
    } else if (mg_sv_eqz(type, "span.model_request_end")) {
        count_tokens(s, e);
    } else if (mg_sv_eqz(type, "session.status_running")) {
        now_doing(s, "works", MG_SV(""));
    } else if (!mg_sv_eqz(type, "agent.thinking") && !mg_sv_eqz(type, "session.usage")) {
        fprintf(s->out, "%s%.*s%s\n", paint(s, DIM), (int)(type.len < 80 ? type.len : 80), type.ptr, paint(s, RESET));
    }
}

void mg_cli_show_event(struct mg_cli_show *s, struct mg_sv raw, const struct mg_json *event)
{
    clear_line(s);
    if (!s->cli->text) {
        mg_auto(buf) struct mg_buf line = MG_BUF_INIT(MG_CLI_BODY_MAX);
        mg_cli_compact(&line, raw);
        mg_buf_char(&line, '\n');
        if (mg_buf_ok(&line))
            (void)fwrite(line.ptr, 1, line.len, s->out);
    } else {
        struct mg_arena *a = mg_arena_new();
        print_text(s, a, event);
        mg_arena_free(a);
    }
    (void)fflush(s->out);
}

int mg_cli_outcome(struct mg_arena *a, const struct mg_json *event)
{
    static const struct {
        const char *reason;
        int status;
    } REASONS[] = {{"end_turn", MG_CLI_OK}, {"requires_action", MG_CLI_ACTION}};
    struct mg_sv type = mg_json_get_str(a, event, "type"),
                 why = mg_json_get_str(a, mg_json_get(event, "stop_reason"), "type");

    if (mg_sv_eqz(type, "session.status_terminated") || mg_sv_eqz(type, "session.deleted"))
        return MG_CLI_ERROR;
    if (!mg_sv_eqz(type, "session.status_idle"))
        return -1;
    for (size_t i = 0; i < sizeof(REASONS) / sizeof(REASONS[0]); i++)
        if (mg_sv_eqz(why, REASONS[i].reason))
            return REASONS[i].status;
    return MG_CLI_UNFINISHED;
}
