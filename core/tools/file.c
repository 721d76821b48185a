#include "tools/file.h"

#include "base/utf8.h"
#include "tools/names.h"
#include "tools/result.h"

enum { PIECE = 256 * 1024 /* bytes asked for at a time */ };

static mg_rc refuse_kind(struct mg_tool_call *c, const char *what, struct mg_sv path, char kind)
{
    if (kind == 'd')
        return mg_tool_textf(c->ret, true, "%s %.*s: it is a folder; list it with glob or bash", what, MG_SV_ARG(path));
    return mg_tool_textf(c->ret, true, "%s %.*s: it is not a regular file (a device, pipe or socket); use bash for it",
                         what, MG_SV_ARG(path));
}

mg_rc mg_file_open(struct mg_tool_call *c, const struct mg_json *arg, const char *what, struct mg_sv *ret_path,
                   struct mg_file_stat *ret_st, bool *ret_ready)
{
    *ret_ready = false;
    mg_rc rc = mg_name_take(c->arena, mg_json_str(c->arena, arg), "file_path", ret_path, c->err);
    if (rc < 0)
        return mg_tool_text(c->ret, true, mg_sv_of(c->err->text));
    rc = c->tools->ops->stat(c->tools->box, ret_path->ptr, ret_st, c->err);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, what, *ret_path);
    if (ret_st->kind == 'd' || ret_st->kind == 'o')
        return refuse_kind(c, what, *ret_path, ret_st->kind);
    *ret_ready = true;
    return MG_OK;
}

mg_rc mg_file_read(struct mg_tool_call *c, struct mg_sv path, size_t max, struct mg_buf *out, bool *ret_eof)
{
    *ret_eof = false;
    while (!*ret_eof && out->len < max) {
        size_t before = out->len, ask = max - before < PIECE ? max - before : PIECE;
        mg_rc rc = c->tools->ops->read(c->tools->box, path.ptr, (int64_t)before, ask, out, ret_eof, c->err);
        if (rc < 0)
            return rc;
        if (out->len == before)
            break;
        if (mg_cancel_fired(c->cancel))
            return mg_err_set(c->err, MG_ECANCELED, "cancelled");
    }
    return MG_OK;
}

void mg_file_cut_character(struct mg_buf *b)
{
    struct mg_sv all = mg_buf_view(b);

    for (size_t back = 1; back <= 3 && back <= all.len; back++) {
        unsigned char first = (unsigned char)all.ptr[all.len - back];
        if ((first & 0xC0) == 0x80)
            continue;
        size_t want = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
        if (want > back)
            b->len -= back;
        return;
    }
}
