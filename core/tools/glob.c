/* glob: find lists, the pattern is matched here, so that its meaning is the same in every sandbox. The newest are kept in a heap: memory does
 * not grow with the number of files. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/internal.h"
#include "tools/names.h"
#include "tools/pattern.h"
#include "tools/result.h"
#include "tools/search.h"

enum {
    ARG_PATTERN,
    ARG_PATH,
    RECORD_MAX = 8 * 1024, /* bytes of a record: PATH_MAX and a time; longer ones cannot be opened by name anyway */
};

/* $1 folder, $2 depth or 0, $3 name filter or "", $4 f or d. Records: "TIME PATH\0", then "end ERRORS rc N\0". Without -printf (busybox) the
 * times come from stat in batches, one by one where a file vanished in between. */
static const char SCRIPT[] =
    "dir=$1 depth=$2 name=$3 kind=$4\n"
    "command -v find >/dev/null 2>&1 || exit 91\n"
    "cd -- \"$dir\" 2>/dev/null || exit 90\n"
    "set -- .\n"
    "[ \"$depth\" = 0 ] || set -- \"$@\" -maxdepth \"$depth\"\n"
    "set -- \"$@\" -type d \\( -name .git -o -name node_modules \\) -prune -o\n"
    "[ \"$dir\" != / ] || set -- \"$@\" \\( -path ./proc -o -path ./sys -o -path ./dev \\) -prune -o\n"
    "if [ \"$kind\" = d ]; then set -- \"$@\" -type d ! -name .; else set -- \"$@\" ! -type d; fi\n"
    "[ -z \"$name\" ] || set -- \"$@\" -name \"$name\"\n"
    "if find . -maxdepth 0 -printf '' 2>/dev/null; then set -- \"$@\" -printf '%T@ %p\\0'\n"
    "else set -- \"$@\" -exec sh -c 'nl=\"\n\"; m=$(stat -c %Y -- \"$@\" 2>/dev/null) ||\n"
    "  m=$(for f do stat -c %Y -- \"$f\" 2>/dev/null || echo 0; done)\n"
    "  for f do printf \"%s %s\\0\" \"${m%%\"$nl\"*}\" \"$f\"; m=${m#*\"$nl\"}; done' sh {} +\n"
    "fi\n"
    "exec 3>&1\n"
    "e=$( { find \"$@\" >&3; echo \"rc $?\"; } 2>&1 | tail -c 400)\n"
    "printf 'end %s\\0' \"$e\"\n";

struct found {
    int64_t time; /* ns */
    char *path;   /* below the folder, owned */
};

struct glob {
    const struct mg_pattern *pattern;
    struct mg_sv prefix; /* folders that the search started below; "" or "src/lib/" */
    struct mg_search search;
    struct found heap[MG_TOOL_GLOB_MAX]; /* the oldest on top, so that it leaves first */
    size_t n;
    uint64_t matches, too_long;
    struct mg_buf record;
    bool skipping; /* the rest of a record that is too long */
};

/* Order of the result: newest first, then by name. */
static int compare(const void *x, const void *y)
{
    const struct found *a = x, *b = y;

    if (a->time != b->time)
        return a->time > b->time ? -1 : 1;
    return strcmp(a->path, b->path);
}

static void sink_down(struct glob *g, size_t i)
{
    for (;;) {
        size_t last = i, left = 2 * i + 1, right = left + 1;
        if (left < g->n && compare(&g->heap[left], &g->heap[last]) > 0)
            last = left;
        if (right < g->n && compare(&g->heap[right], &g->heap[last]) > 0)
            last = right;
        if (last == i)
            return;
        struct found swap = g->heap[i];
        g->heap[i] = g->heap[last];
        g->heap[last] = swap;
        i = last;
    }
}

static void bubble_up(struct glob *g, size_t i)
{
    while (i && compare(&g->heap[i], &g->heap[(i - 1) / 2]) > 0) {
        struct found swap = g->heap[i];
        g->heap[i] = g->heap[(i - 1) / 2];
        g->heap[(i - 1) / 2] = swap;
        i = (i - 1) / 2;
    }
}

static void keep(struct glob *g, int64_t time, struct mg_sv path)
{
    struct found f = {time, mg_xstrndup(path.ptr, path.len)};

    g->matches++;
    if (g->n < MG_TOOL_GLOB_MAX) {
        g->heap[g->n] = f;
        bubble_up(g, g->n++);
        return;
    }
    if (compare(&f, &g->heap[0]) > 0) {
        free(f.path);
        return;
    }
    free(g->heap[0].path);
    g->heap[0] = f;
    sink_down(g, 0);
}

/* Seconds with up to nine digits behind the point, as nanoseconds. */
static int64_t take_time(struct mg_sv s)
{
    int64_t whole = 0, part = 0;
    struct mg_sv rest = s, head = mg_sv_split(&rest, '.');
    int digits = 0;

    (void)mg_sv_to_i64(head, &whole);
    for (; digits < 9; digits++)
        part =
            part * 10 +
            (digits < (int)rest.len && rest.ptr[digits] >= '0' && rest.ptr[digits] <= '9' ? rest.ptr[digits] - '0' : 0);
    return whole * 1000000000 + part;
}

static void take_record(struct glob *g)
{
    struct mg_sv path = mg_buf_view(&g->record), time = mg_sv_split(&path, ' ');

    if (mg_sv_eqz(time, "end")) {
        (void)snprintf(g->search.end, sizeof(g->search.end), "%.*s", MG_SV_ARG(path));
        g->search.ended = true;
        return;
    }
    if (!mg_sv_starts(path, "./"))
        return;
    path = mg_sv_from(path, 2);
    char full[RECORD_MAX];
    int n = snprintf(full, sizeof(full), "%.*s%.*s", MG_SV_ARG(g->prefix), MG_SV_ARG(path));
    if (n > 0 && (size_t)n < sizeof(full) && mg_pattern_match(g->pattern, mg_sv_n(full, (size_t)n)))
        keep(g, take_time(time), path);
}

static bool take(void *ctx, int stream, const char *p, size_t n)
{
    struct glob *g = ctx;
    struct mg_sv all = mg_sv_n(p, n);

    if (stream != 1)
        return true;
    while (all.len) {
        size_t part = mg_sv_find(all, '\0');
        bool whole = part < all.len;
        if (!g->skipping && g->record.len + part > RECORD_MAX - 1) {
            g->skipping = true;
            g->too_long++;
        }
        if (!g->skipping)
            mg_buf_append(&g->record, all.ptr, part);
        if (whole) {
            if (!g->skipping)
                take_record(g);
            g->skipping = false;
            mg_buf_reset(&g->record);
        }
        all = mg_sv_from(all, part + whole);
    }
    return true;
}

/* A filter that find can apply itself: the last part, where it holds nothing but plain characters and stars. */
static const char *name_filter(struct mg_arena *a, const struct mg_pattern *p)
{
    const char *slash = memrchr(p->choice[0].ptr, '/', p->choice[0].len);
    struct mg_sv last = slash ? mg_sv_from(p->choice[0], (size_t)(slash + 1 - p->choice[0].ptr)) : p->choice[0];

    if (p->n != 1 || mg_sv_eqz(last, "**"))
        return "";
    for (size_t i = 0; i < last.len; i++)
        if (strchr("?[\\", last.ptr[i]))
            return "";
    return mg_arena_strdup(a, last);
}

static mg_rc render(struct mg_tool_call *c, struct glob *g, struct mg_sv pattern, const char *why)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(MG_TOOL_CONTENT_MAX);
    mg_auto(buf) struct mg_buf name = MG_BUF_INIT(4 * RECORD_MAX);

    if (g->n == 0 && !why[0])
        return mg_tool_textf(c->ret, false, "No files match %.*s in %.*s.", MG_SV_ARG(pattern),
                             MG_SV_ARG(g->search.dir));
    if (g->n == 0)
        return mg_tool_textf(c->ret, true, "The search found nothing, but it is not complete: %s.", why);
    qsort(g->heap, g->n, sizeof(g->heap[0]), compare);
    for (size_t i = 0; i < g->n; i++) {
        mg_buf_reset(&name);
        mg_buf_printf(&name, "%s/%s", mg_sv_eqz(g->search.dir, "/") ? "" : g->search.dir.ptr, g->heap[i].path);
        mg_name_quote(&out, mg_buf_view(&name), MG_NAME_LINE);
        mg_buf_char(&out, '\n');
    }
    if (g->matches > g->n)
        mg_buf_printf(&out, "[the newest %zu of %llu matches; narrow the pattern or give a path to see others]\n", g->n,
                      (unsigned long long)g->matches);
    if (g->too_long)
        mg_buf_printf(&out, "[%llu paths were left out because they are too long to be opened]\n",
                      (unsigned long long)g->too_long);
    if (why[0])
        mg_buf_printf(&out, "[partial: %s]\n", why);
    if (!mg_buf_ok(&out))
        return MG_EINTERNAL;
    return mg_tool_text(c->ret, false, mg_sv_n(out.ptr, out.len - 1));
}

static mg_rc run(struct mg_tool_call *c, struct glob *g, struct mg_sv pattern)
{
    char depth[16], why[MG_SEARCH_WHY_MAX];
    int levels = mg_pattern_depth(g->pattern);
    bool failed = false;

    for (size_t i = 0; i < g->prefix.len; i++)
        levels -= g->prefix.ptr[i] == '/' && levels > 0;
    (void)snprintf(depth, sizeof(depth), "%d", levels);
    const char *argv[] = {"/bin/sh",
                          "-c",
                          SCRIPT,
                          "mango-glob",
                          g->search.dir.ptr,
                          depth,
                          name_filter(c->arena, g->pattern),
                          g->pattern->folders ? "d" : "f",
                          NULL};
    mg_rc rc = mg_search_run(c, &g->search, argv, take, g, why, &failed);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot search", g->search.dir);
    if (failed)
        return mg_tool_textf(c->ret, true, "glob cannot search %.*s: %s", MG_SV_ARG(g->search.dir), why);
    return render(c, g, pattern, why);
}

/* Starts below the plain folders at the front of the pattern, so that the rest of the tree is not walked. False: there is no such folder. */
static bool descend(struct mg_tool_call *c, struct glob *g)
{
    struct mg_sv prefix = mg_pattern_prefix(g->pattern);
    struct mg_file_stat st;

    if (!prefix.len)
        return true;
    struct mg_sv below =
        mg_arena_printf(c->arena, "%s/%.*s", mg_sv_eqz(g->search.dir, "/") ? "" : g->search.dir.ptr, MG_SV_ARG(prefix));
    if (c->tools->ops->stat(c->tools->box, below.ptr, &st, NULL) < 0 || st.kind != 'd')
        return false;
    g->search.dir = below;
    g->prefix = mg_arena_printf(c->arena, "%.*s/", MG_SV_ARG(prefix));
    return true;
}

mg_rc mg_tool_glob(struct mg_tool_call *c)
{
    struct mg_sv pattern = mg_json_str(c->arena, c->arg[ARG_PATTERN]);
    struct mg_pattern parsed;
    struct glob *g = mg_arena_new_of(c->arena, struct glob);
    bool ready = false;

    if (mg_pattern_parse(c->arena, pattern, &parsed, c->err) < 0)
        return mg_tool_text(c->ret, true, mg_sv_of(c->err->text));
    mg_rc rc = mg_search_start(c, c->arg[ARG_PATH], false, &g->search, &ready);
    if (!ready)
        return rc;
    g->pattern = &parsed;
    g->record = MG_BUF_INIT(RECORD_MAX);
    rc = descend(c, g) ? run(c, g, pattern) : render(c, g, pattern, "");
    for (size_t i = 0; i < g->n; i++)
        free(g->heap[i].path);
    mg_buf_done(&g->record);
    return rc;
}
