/* edit: a literal replacement. Bytes outside of the replaced places never change. */
#include <stdio.h>

#include "tools/file.h"
#include "tools/internal.h"
#include "tools/names.h"
#include "tools/result.h"

enum {
    ARG_PATH,
    ARG_OLD,
    ARG_NEW,
    ARG_ALL,
    LINES_SHOWN = 5,  /* places that the not-unique error names */
    COUNT_MAX = 1000, /* places that are counted: bounds the time for long texts that overlap themselves */
    RESULT_MAX = MG_TOOL_WRITE_MAX,
};

struct edit {
    struct mg_sv path, file, old, new;
    bool all;
    bool crlf; /* the texts were given the file's line ending */
};

static const char *find(struct mg_sv s, struct mg_sv what)
{
    return s.len >= what.len ? memmem(s.ptr, s.len, what.ptr, what.len) : NULL;
}

static bool has_crlf(struct mg_sv s)
{
    return find(s, MG_SV("\r\n")) != NULL;
}

/* A newline without a carriage return before it. */
static bool has_bare_lf(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == '\n' && (i == 0 || s.ptr[i - 1] != '\r'))
            return true;
    return false;
}

static struct mg_sv to_crlf(struct mg_arena *a, struct mg_sv s)
{
    char *out = mg_arena_alloc(a, s.len * 2 + 1);
    size_t n = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\n' && (i == 0 || s.ptr[i - 1] != '\r'))
            out[n++] = '\r';
        out[n++] = s.ptr[i];
    }
    return mg_sv_n(out, n);
}

/* A file whose lines all end in CRLF keeps that, whatever ending the model wrote. In a mixed file the texts are converted only where they would
 * not be found otherwise. */
static void fit_line_ending(struct mg_arena *a, struct edit *e)
{
    bool pure = has_crlf(e->file) && !has_bare_lf(e->file);
    bool absent = has_crlf(e->file) && has_bare_lf(e->old) && !find(e->file, e->old);

    if (!pure && !absent)
        return;
    e->crlf = has_bare_lf(e->old) || has_bare_lf(e->new);
    e->old = to_crlf(a, e->old);
    e->new = to_crlf(a, e->new);
}

/* Places, overlapping ones too: "aa" in "aaa" is not unique. */
static size_t count(const struct edit *e, int64_t line[LINES_SHOWN])
{
    size_t n = 0;
    int64_t at_line = 1;
    const char *from = e->file.ptr, *end = e->file.ptr + e->file.len;

    for (const char *p = from; n < COUNT_MAX && (p = find(mg_sv_n(p, (size_t)(end - p)), e->old)); p++) {
        for (; from < p; from++)
            at_line += *from == '\n';
        if (n < LINES_SHOWN)
            line[n] = at_line;
        n++;
    }
    return n;
}

static mg_rc not_unique(struct mg_tool_call *c, const struct edit *e, size_t n, const int64_t line[LINES_SHOWN])
{
    char list[LINES_SHOWN * 24] = "";
    size_t at = 0;

    for (size_t i = 0; i < n && i < LINES_SHOWN; i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%lld", i ? ", " : "", (long long)line[i]);
    return mg_tool_textf(c->ret, true,
                         "old_string occurs %s%zu times in %.*s (lines %s%s): add text around it until it is unique, "
                         "or set replace_all. "
                         "Nothing was changed.",
                         n == COUNT_MAX ? "at least " : "", n, MG_SV_ARG(e->path), list,
                         n > LINES_SHOWN ? ", ..." : "");
}

static size_t replace(const struct edit *e, struct mg_buf *out)
{
    struct mg_sv rest = e->file;
    size_t n = 0;

    for (const char *p; (n == 0 || e->all) && (p = find(rest, e->old)); n++) {
        mg_buf_append(out, rest.ptr, (size_t)(p - rest.ptr));
        mg_buf_sv(out, e->new);
        rest = mg_sv_from(rest, (size_t)(p - rest.ptr) + e->old.len);
    }
    mg_buf_sv(out, rest);
    return n;
}

static mg_rc apply(struct mg_tool_call *c, struct edit *e)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(RESULT_MAX);
    int64_t line[LINES_SHOWN] = {0};

    fit_line_ending(c->arena, e);
    size_t n = count(e, line);
    if (n == 0)
        return mg_tool_textf(c->ret, true,
                             "old_string was not found in %.*s: it must match exactly, white space included. Read the "
                             "file again and copy "
                             "the text from there. Nothing was changed.",
                             MG_SV_ARG(e->path));
    if (n > 1 && !e->all)
        return not_unique(c, e, n, line);
    n = replace(e, &out);
    if (!mg_buf_ok(&out))
        return mg_tool_textf(c->ret, true, "the result would have more than %d bytes. Nothing was changed.",
                             RESULT_MAX);
    mg_rc rc = c->tools->ops->write(c->tools->box, e->path.ptr, mg_buf_view(&out), c->err);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot write", e->path);
    return mg_tool_textf(c->ret, false, "replaced %zu occurrence%s in %.*s%s", n, n == 1 ? "" : "s", MG_SV_ARG(e->path),
                         e->crlf ? " (its line ending, CRLF, was kept)" : "");
}

mg_rc mg_tool_edit(struct mg_tool_call *c)
{
    mg_auto(buf) struct mg_buf data = MG_BUF_INIT(MG_TOOL_READ_MAX + 1);
    struct edit e = {.old = mg_json_str(c->arena, c->arg[ARG_OLD]),
                     .new = mg_json_str(c->arena, c->arg[ARG_NEW]),
                     .all = c->arg[ARG_ALL] && c->arg[ARG_ALL]->boolean};
    struct mg_file_stat st;
    bool eof = false, ready = false;

    if (e.old.len == 0)
        return mg_tool_text(c->ret, true,
                            MG_SV("old_string is empty: give the text to replace, or make a new file with write"));
    if (mg_sv_eq(e.old, e.new))
        return mg_tool_text(c->ret, true, MG_SV("old_string and new_string are equal: there is nothing to change"));
    mg_rc rc = mg_file_open(c, c->arg[ARG_PATH], "cannot edit", &e.path, &st, &ready);
    if (!ready)
        return rc;
    rc = st.size > MG_TOOL_READ_MAX ? MG_OK : mg_file_read(c, e.path, MG_TOOL_READ_MAX + 1, &data, &eof);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot edit", e.path);
    if (st.size > MG_TOOL_READ_MAX || data.len > MG_TOOL_READ_MAX)
        return mg_tool_textf(c->ret, true,
                             "%.*s has %lld bytes: edit takes files of at most %d. Use bash (sed, python) for it.",
                             MG_SV_ARG(e.path), (long long)(st.size > (int64_t)data.len ? st.size : (int64_t)data.len),
                             MG_TOOL_READ_MAX);
    e.file = mg_buf_view(&data);
    return apply(c, &e);
}
