/* read: text whole or by lines, images as image blocks. Memory stays at the size of a result whatever the size of the file. */
#include <stdio.h>

#include "base/clock.h"
#include "domain/content.h"
#include "tools/file.h"
#include "tools/internal.h"
#include "tools/names.h"
#include "tools/result.h"

enum {
    ARG_PATH,
    ARG_RANGE,
    CHUNK = 64 * 1024,
    SNIFF = 8 * 1024,                    /* bytes in which a NUL makes a file binary, as git and grep do */
    IMAGE_MAX = 5 * 1024 * 1024 / 4 * 3, /* bytes: 5 MiB as base64, what Messages endpoints take */
    IMAGE_SIDE_MAX = 2000, /* pixels: the limit of requests with more than 20 images, which a transcript may become */
    SCAN_MS = 60000,       /* for the lines in front of a view_range */
};

struct range {
    int64_t first, last; /* last <= 0: to the end */
};

static mg_rc take_range(struct mg_tool_call *c, struct range *ret)
{
    static const char RULE[] = "view_range must be two integers [first, last], counted from 1, with last >= first, or "
                               "last <= 0 for the end of the file";
    const struct mg_json *v = c->arg[ARG_RANGE];
    int64_t n[2] = {0, 0};

    if (v->n != 2 || !mg_json_i64(mg_json_at(v, 0), &n[0]) || !mg_json_i64(mg_json_at(v, 1), &n[1]))
        return mg_err_set(c->err, MG_EINVAL, "%s", RULE);
    if (n[0] < 1 || (n[1] > 0 && n[1] < n[0]))
        return mg_err_set(c->err, MG_EINVAL, "%s; got [%lld, %lld]", RULE, (long long)n[0], (long long)n[1]);
    *ret = (struct range){n[0], n[1]};
    return MG_OK;
}

static mg_rc note_image(struct mg_tool_call *c, struct mg_sv path, const char *why)
{
    return mg_tool_textf(
        c->ret, true,
        "%.*s is an image that cannot be shown: %s. Make a smaller or repaired copy with bash and read that.",
        MG_SV_ARG(path), why);
}

static mg_rc read_image(struct mg_tool_call *c, struct mg_sv path, struct mg_sv kind, int64_t size)
{
    mg_auto(buf) struct mg_buf data = MG_BUF_INIT(IMAGE_MAX + 1);
    struct mg_err why = {0};
    char text[96];
    bool eof = false;

    if (size > IMAGE_MAX) {
        (void)snprintf(text, sizeof(text), "it has %lld bytes, the limit is %d", (long long)size, IMAGE_MAX);
        return note_image(c, path, text);
    }
    mg_rc rc = mg_file_read(c, path, IMAGE_MAX + 1, &data, &eof);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot read", path);
    if (mg_image_check_data(kind, mg_buf_view(&data), IMAGE_SIDE_MAX, IMAGE_MAX, &why) < 0)
        return note_image(c, path, why.text);
    return mg_tool_image(c->ret, kind, mg_buf_view(&data));
}

static mg_rc say_binary(struct mg_tool_call *c, struct mg_sv path, struct mg_sv head, int64_t size)
{
    bool utf16 = mg_sv_starts(head, "\xFF\xFE") || mg_sv_starts(head, "\xFE\xFF");

    return mg_tool_textf(c->ret, true,
                         "%.*s is a binary file of %lld bytes%s: read shows text and images; use bash for it (%s).",
                         MG_SV_ARG(path), (long long)size, utf16 ? ", perhaps text in UTF-16" : "",
                         utf16 ? "iconv -f UTF-16" : "file, xxd, od, strings");
}

static bool is_binary(struct mg_sv head)
{
    struct mg_sv look = mg_sv_n(head.ptr, head.len < SNIFF ? head.len : SNIFF);

    return mg_sv_find(look, '\0') < look.len;
}

/* ---- lines ---- */

struct scan {
    struct range want;
    int64_t line;  /* number of the line that the next byte belongs to */
    bool at_start; /* no byte of it was seen */
    bool full;     /* the result is full in line `line` */
    struct mg_buf out;
};

/* Takes one piece of the file; false when nothing behind it matters. */
static bool scan_piece(struct scan *s, struct mg_sv piece)
{
    while (piece.len) {
        if (s->want.last > 0 && s->line > s->want.last)
            return false;
        size_t n = mg_sv_find(piece, '\n');
        size_t with = n < piece.len ? n + 1 : n;
        if (s->line >= s->want.first) {
            size_t room = MG_TOOL_READ_MAX - s->out.len;
            mg_buf_append(&s->out, piece.ptr, with < room ? with : room);
            s->full = with > room;
            if (s->full)
                return false;
        }
        s->at_start = n < piece.len;
        s->line += s->at_start;
        piece = mg_sv_from(piece, with);
    }
    return true;
}

static mg_rc scan_file(struct mg_tool_call *c, struct mg_sv path, struct scan *s)
{
    mg_auto(buf) struct mg_buf piece = MG_BUF_INIT(CHUNK);
    uint64_t deadline = mg_now_ns() + (uint64_t)SCAN_MS * 1000000;
    int64_t offset = 0;
    bool eof = false;

    for (;;) {
        mg_buf_reset(&piece);
        mg_rc rc = c->tools->ops->read(c->tools->box, path.ptr, offset, CHUNK, &piece, &eof, c->err);
        if (rc < 0)
            return rc;
        if (!scan_piece(s, mg_buf_view(&piece)) || eof || piece.len == 0)
            return MG_OK;
        offset += (int64_t)piece.len;
        if (mg_cancel_fired(c->cancel))
            return mg_err_set(c->err, MG_ECANCELED, "cancelled");
        if (mg_now_ns() > deadline)
            return mg_err_set(c->err, MG_ETIMEOUT,
                              "line %lld was not reached in %d s (%lld bytes read); use bash with sed -n or tail -c",
                              (long long)s->want.first, SCAN_MS / 1000, (long long)offset);
    }
}

static mg_rc read_lines(struct mg_tool_call *c, struct mg_sv path)
{
    struct scan s = {.line = 1, .at_start = true, .out = MG_BUF_INIT(MG_TOOL_READ_MAX + 256)};
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(0);
    mg_rc rc = take_range(c, &s.want);

    if (rc < 0)
        return mg_tool_text(c->ret, true, mg_sv_of(c->err->text));
    rc = scan_file(c, path, &s);
    out = s.out; /* freed with the scope */
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot read", path);
    int64_t lines = s.line - s.at_start;
    if (!s.full && lines < s.want.first)
        return mg_tool_textf(c->ret, true, "%.*s has %lld lines: there is no line %lld", MG_SV_ARG(path),
                             (long long)lines, (long long)s.want.first);
    if (is_binary(mg_buf_view(&out)))
        return say_binary(c, path, mg_buf_view(&out), (int64_t)out.len);
    if (s.full) {
        mg_file_cut_character(&out);
        mg_buf_printf(&out, "\n[cut: the result is full after %d bytes, inside of line %lld; ask for fewer lines]",
                      MG_TOOL_READ_MAX, (long long)s.line);
    } else if (out.len && out.ptr[out.len - 1] == '\n') {
        out.len--;
    }
    return mg_tool_text(c->ret, false, out.len ? mg_buf_view(&out) : MG_SV("(the lines are empty)"));
}

/* ---- whole files ---- */

static mg_rc read_whole(struct mg_tool_call *c, struct mg_sv path, int64_t size)
{
    mg_auto(buf) struct mg_buf data = MG_BUF_INIT(MG_TOOL_READ_MAX + 1);
    bool eof = false;
    mg_rc rc = mg_file_read(c, path, MG_TOOL_READ_MAX + 1, &data, &eof);

    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot read", path);
    if (is_binary(mg_buf_view(&data)))
        return say_binary(c, path, mg_buf_view(&data), size > (int64_t)data.len ? size : (int64_t)data.len);
    if (data.len > MG_TOOL_READ_MAX || size > MG_TOOL_READ_MAX)
        return mg_tool_textf(c->ret, true,
                             "%.*s has %lld bytes: without view_range at most %d are read. Give view_range [first, "
                             "last], or look for the "
                             "place with grep.",
                             MG_SV_ARG(path), (long long)(size > (int64_t)data.len ? size : (int64_t)data.len),
                             MG_TOOL_READ_MAX);
    if (data.len == 0)
        return mg_tool_textf(c->ret, false, "(%.*s is empty)", MG_SV_ARG(path));
    return mg_tool_text(c->ret, false, mg_buf_view(&data));
}

mg_rc mg_tool_read(struct mg_tool_call *c)
{
    struct mg_sv path, kind;
    struct mg_file_stat st;
    mg_auto(buf) struct mg_buf head = MG_BUF_INIT(SNIFF);
    bool eof = false, ready = false;
    mg_rc rc = mg_file_open(c, c->arg[ARG_PATH], "cannot read", &path, &st, &ready);

    if (!ready)
        return rc;
    rc = c->tools->ops->read(c->tools->box, path.ptr, 0, SNIFF, &head, &eof, c->err);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot read", path);
    kind = mg_image_kind(mg_buf_view(&head));
    if (kind.len)
        return read_image(c, path, kind, st.size);
    if (c->arg[ARG_RANGE])
        return read_lines(c, path);
    if (is_binary(mg_buf_view(&head)))
        return say_binary(c, path, mg_buf_view(&head), st.size);
    return read_whole(c, path, st.size);
}
