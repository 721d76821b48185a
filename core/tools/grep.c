/* grep: find chooses the files, grep reads them, both in the sandbox; names travel with a NUL behind them, so that no name can be misread. */
#include <stdio.h>

#include "base/utf8.h"
#include "tools/internal.h"
#include "tools/names.h"
#include "tools/regex.h"
#include "tools/result.h"
#include "tools/search.h"

enum {
    ARG_PATTERN,
    ARG_PATH,
    PATTERN_MAX = 8 * 1024,    /* bytes, as POSIX text: one argument of grep */
    NAME_MAX_BYTES = 4 * 1024, /* bytes of a path */
    LINE_MAX_BYTES = 2000,     /* bytes shown of a line: minified files have lines of megabytes */
    RAW_MAX = 2 * 1024 * 1024, /* bytes that leave the sandbox: 100 KiB shown may take many cut lines */
    BINARY_NAMED = 3,          /* binary files that are named */
};

/* $1 folder, $2 pattern, $3 the one file or "", $4 "-i" or "", $5 bytes at most. Output: "PATH\0LINE:TEXT\n"..., then "\0ERRORS rc N\0". grep
 * without -Z (busybox) gives the lines of one file at a time. The end text is missing where head cut the output. */
static const char SCRIPT[] =
    "dir=$1 pat=$2 file=$3 fold=$4 max=$5\n"
    "command -v grep >/dev/null 2>&1 || exit 92\n"
    "[ -n \"$file\" ] || command -v find >/dev/null 2>&1 || exit 91\n"
    "cd -- \"$dir\" 2>/dev/null || exit 90\n"
    "m=$(grep $fold -E -e \"$pat\" </dev/null 2>&1); [ $? -le 1 ] || { printf '\\0%s\\nrc 93\\0' \"$m\"; exit 0; }\n"
    "if echo x | grep -qZ x 2>/dev/null; then\n"
    "  batch='f=$1; shift; grep $f -nHZE -e \"$0\" -- \"$@\"; r=$?; [ $r -lt 128 ] || kill $PPID; [ $r -le 1 ]'\n"
    "else\n"
    "  batch='o=$1; shift; for f do grep $o -nE -e \"$0\" -- \"$f\" | while IFS= read -r l; do\n"
    "    printf \"%s\\0%s\\n\" \"$f\" \"$l\" || { kill $PPID; exit 1; }; done; done'\n"
    "fi\n"
    "search() {\n"
    "  if [ -n \"$file\" ]; then sh -c \"$batch\" \"$pat\" \"$fold\" \"./$file\"; return; fi\n"
    "  set -- . -type d \\( -name .git -o -name node_modules \\) -prune -o\n"
    "  [ \"$dir\" != / ] || set -- \"$@\" \\( -path ./proc -o -path ./sys -o -path ./dev \\) -prune -o\n"
    "  find \"$@\" -type f -exec sh -c \"$batch\" \"$pat\" \"$fold\" {} +\n"
    "}\n"
    "{ exec 3>&1; e=$( { search >&3; echo \"rc $?\"; } 2>&1 | tail -c 400); printf '\\0%s\\0' \"$e\"; } | head -c "
    "\"$max\"\n";

enum state { PATH, LINE, END };

struct grep {
    struct mg_search search;
    enum state state;
    struct mg_buf path, line; /* line holds at most LINE_MAX_BYTES, line_len tells how long it was */
    size_t line_len;
    uint64_t raw;
    struct mg_buf out;
    bool full;
    unsigned binary;
    char binary_names[BINARY_NAMED * 128];
};

/* "grep: ./x: binary file matches" (GNU, on standard error) or "Binary file ./x matches" (older ones, in the place of a path). */
static bool is_binary_note(struct mg_sv s, struct mg_sv *ret_name)
{
    static const char GNU[] = ": binary file matches", OLD[] = " matches";

    if (mg_sv_starts(s, "grep: ") && mg_sv_ends(s, GNU))
        *ret_name = mg_sv_n(s.ptr + 6, s.len - 6 - strlen(GNU));
    else if (mg_sv_starts(s, "Binary file ") && mg_sv_ends(s, OLD))
        *ret_name = mg_sv_n(s.ptr + 12, s.len - 12 - strlen(OLD));
    else
        return false;
    if (mg_sv_starts(*ret_name, "./"))
        *ret_name = mg_sv_from(*ret_name, 2);
    return true;
}

static bool take_binary(struct grep *g, struct mg_sv line)
{
    struct mg_sv name;

    if (!is_binary_note(line, &name))
        return false;
    if (g->binary++ < BINARY_NAMED) {
        size_t at = strlen(g->binary_names);
        (void)snprintf(g->binary_names + at, sizeof(g->binary_names) - at, "%s%.*s", at ? ", " : "",
                       (int)mg_utf8_floor(name, 100), name.ptr);
    }
    return true;
}

/* Takes the notes on binary files out of the end text, which then holds errors only. */
static void strip_notes(struct grep *g)
{
    char errors[MG_SEARCH_END_MAX + 1] = "";
    struct mg_sv rest = mg_sv_of(g->search.end);

    while (rest.len) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        size_t at = strlen(errors);
        if (!take_binary(g, line))
            (void)snprintf(errors + at, sizeof(errors) - at, "%.*s%s", MG_SV_ARG(line), rest.len ? "\n" : "");
    }
    memcpy(g->search.end, errors, sizeof(errors));
}

static void emit(struct grep *g)
{
    struct mg_sv path = mg_buf_view(&g->path), line = mg_buf_view(&g->line);
    mg_auto(buf) struct mg_buf one = MG_BUF_INIT(8 * (NAME_MAX_BYTES + LINE_MAX_BYTES));
    mg_auto(buf) struct mg_buf name = MG_BUF_INIT(2 * NAME_MAX_BYTES);

    mg_buf_sv(&name, g->search.shown);
    mg_buf_sv(&name, mg_sv_starts(path, "./") ? mg_sv_from(path, 2) : path);
    mg_name_quote(&one, mg_buf_view(&name), MG_NAME_COLON);
    mg_buf_char(&one, ':');
    bool cut = g->line_len > line.len;
    mg_tool_show(&one, mg_sv_n(line.ptr, cut ? mg_utf8_floor(line, LINE_MAX_BYTES) : line.len));
    if (cut)
        mg_buf_printf(&one, " [line cut: %zu bytes]", g->line_len);
    mg_buf_char(&one, '\n');
    g->full = g->full || !mg_buf_ok(&one) || g->out.len + one.len > MG_TOOL_OUTPUT_MAX - 1024;
    if (!g->full)
        mg_buf_sv(&g->out, mg_buf_view(&one));
}

static void take_end(struct grep *g, char c)
{
    size_t n = strlen(g->search.end);

    if (c == '\0' && !g->search.ended) {
        g->search.ended = true;
        strip_notes(g);
    } else if (!g->search.ended && n < MG_SEARCH_END_MAX) {
        g->search.end[n] = c;
    }
}

/* Appends to a buffer that keeps at most its limit; the rest is only counted by the caller. */
static void keep(struct mg_buf *b, const char *p, size_t n)
{
    size_t room = b->max - b->len;

    mg_buf_append(b, p, n < room ? n : room);
}

static size_t take_path(struct grep *g, struct mg_sv s)
{
    size_t n = 0;

    while (n < s.len && s.ptr[n] != '\0' && s.ptr[n] != '\n')
        n++;
    keep(&g->path, s.ptr, n);
    if (n == s.len)
        return n;
    if (s.ptr[n] == '\0')
        g->state = g->path.len ? LINE : END;
    else if (take_binary(g, mg_buf_view(&g->path)))
        mg_buf_reset(&g->path);
    else
        keep(&g->path, "\n", 1); /* a newline of the name */
    return n + 1;
}

static size_t take_line(struct grep *g, struct mg_sv s)
{
    size_t n = mg_sv_find(s, '\n');

    keep(&g->line, s.ptr, n);
    g->line_len += n;
    if (n == s.len)
        return n;
    emit(g);
    mg_buf_reset(&g->path);
    mg_buf_reset(&g->line);
    g->line_len = 0;
    g->state = PATH;
    return n + 1;
}

static bool take(void *ctx, int stream, const char *p, size_t n)
{
    struct grep *g = ctx;
    struct mg_sv s = mg_sv_n(p, n);

    if (stream != 1)
        return true;
    g->raw += n;
    while (s.len) {
        size_t took = 1;
        if (g->state == PATH)
            took = take_path(g, s);
        else if (g->state == LINE)
            took = take_line(g, s);
        else
            take_end(g, s.ptr[0]);
        s = mg_sv_from(s, took);
    }
    return true;
}

static mg_rc render(struct mg_tool_call *c, struct grep *g, struct mg_sv pattern, const char *why)
{
    if (g->binary)
        mg_buf_printf(&g->out, "[binary files match and are not shown: %s%s]\n", g->binary_names,
                      g->binary > BINARY_NAMED ? ", ..." : "");
    if (g->out.len == 0 && !why[0])
        return mg_tool_textf(c->ret, false, "No matches for %.*s.", MG_SV_ARG(pattern));
    if (g->out.len == 0)
        return mg_tool_textf(c->ret, true, "The search found nothing, but it is not complete: %s.", why);
    if (g->full)
        mg_buf_printf(&g->out, "[output truncated: the first %d bytes; narrow the pattern or give a path]\n",
                      MG_TOOL_OUTPUT_MAX);
    else if (why[0])
        mg_buf_printf(&g->out, "[partial: %s]\n", why);
    if (!mg_buf_ok(&g->out))
        return MG_EINTERNAL;
    return mg_tool_text(c->ret, false, mg_sv_n(g->out.ptr, g->out.len - 1));
}

static mg_rc run(struct mg_tool_call *c, struct grep *g, struct mg_sv pattern)
{
    mg_auto(buf) struct mg_buf posix = MG_BUF_INIT(PATTERN_MAX);
    char max[16], why[MG_SEARCH_WHY_MAX];
    bool fold = false, failed = false;

    if (mg_regex_to_posix(&posix, pattern, &fold) < 0)
        return mg_tool_textf(c->ret, true, "pattern has more than %d bytes; use a shorter one", PATTERN_MAX);
    (void)snprintf(max, sizeof(max), "%d", RAW_MAX);
    const char *argv[] = {"/bin/sh",
                          "-c",
                          SCRIPT,
                          "mango-grep",
                          g->search.dir.ptr,
                          posix.ptr ? posix.ptr : "",
                          g->search.file.len ? g->search.file.ptr : "",
                          fold ? "-i" : "",
                          max,
                          NULL};
    mg_rc rc = mg_search_run(c, &g->search, argv, take, g, why, &failed);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot search", g->search.dir);
    if (failed)
        return mg_tool_textf(c->ret, true, "grep cannot search %.*s: %s", MG_SV_ARG(g->search.dir), why);
    if (g->state == LINE && g->line_len) /* head cut inside of it */
        emit(g);
    g->full = g->full || (!g->search.ended && g->raw >= RAW_MAX);
    return render(c, g, pattern, why);
}

mg_rc mg_tool_grep(struct mg_tool_call *c)
{
    struct mg_sv pattern = mg_json_str(c->arena, c->arg[ARG_PATTERN]);
    struct grep *g = mg_arena_new_of(c->arena, struct grep);
    bool ready = false;

    if (mg_sv_find(pattern, '\0') < pattern.len || mg_sv_find(pattern, '\n') < pattern.len)
        return mg_tool_text(c->ret, true,
                            MG_SV("pattern must not contain NUL or line breaks: a match lies within one line"));
    if (pattern.len == 0)
        return mg_tool_text(
            c->ret, true,
            MG_SV("pattern is empty: give a regular expression, or . to match every line that is not empty"));
    mg_rc rc = mg_search_start(c, c->arg[ARG_PATH], true, &g->search, &ready);
    if (!ready)
        return rc;
    g->path = MG_BUF_INIT(NAME_MAX_BYTES);
    g->line = MG_BUF_INIT(LINE_MAX_BYTES + 4);
    g->out = MG_BUF_INIT(MG_TOOL_OUTPUT_MAX + 2048);
    rc = run(c, g, pattern);
    mg_buf_done(&g->path);
    mg_buf_done(&g->line);
    mg_buf_done(&g->out);
    return rc;
}
