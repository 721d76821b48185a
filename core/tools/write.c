/* write: the whole content of a file. */
#include "tools/internal.h"
#include "tools/names.h"
#include "tools/result.h"

enum { ARG_PATH, ARG_CONTENT };

mg_rc mg_tool_write(struct mg_tool_call *c)
{
    struct mg_sv path, content = mg_json_str(c->arena, c->arg[ARG_CONTENT]);

    if (mg_name_take(c->arena, mg_json_str(c->arena, c->arg[ARG_PATH]), "file_path", &path, c->err) < 0)
        return mg_tool_text(c->ret, true, mg_sv_of(c->err->text));
    if (path.ptr[path.len - 1] == '/')
        return mg_tool_textf(c->ret, true, "cannot write %.*s: the path ends in /, so it names a folder",
                             MG_SV_ARG(path));
    if (content.len > MG_TOOL_WRITE_MAX)
        return mg_tool_textf(
            c->ret, true, "content has %zu bytes: at most %d can be written in one call; write it in parts with bash",
            content.len, MG_TOOL_WRITE_MAX);
    mg_rc rc = c->tools->ops->write(c->tools->box, path.ptr, content, c->err);
    if (rc < 0)
        return mg_tool_failed(c->ret, rc, c->err, "cannot write", path);
    return mg_tool_textf(c->ret, false, "wrote %zu bytes to %.*s", content.len, MG_SV_ARG(path));
}
