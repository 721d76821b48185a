/* Tool results. Every text goes through mg_tool_show, so that no output can make a transcript or a row that is refused later. */
#include "tools/result.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "crypto/hash.h"
#include "json/write.h"

static const char NO_OUTPUT[] = "(no output)";
static const char NUL_SHOWN[] = "\xE2\x90\x80"; /* U+2400 SYMBOL FOR NULL */

enum { SHOWN_MAX = MG_TOOL_CONTENT_MAX };

void mg_tool_result_done(struct mg_tool_result *r)
{
    mg_buf_done(&r->content);
}

mg_rc mg_tool_show(struct mg_buf *out, struct mg_sv bytes)
{
    while (bytes.len) {
        size_t n = mg_sv_find(bytes, '\0');
        mg_rc rc = mg_utf8_clean(out, mg_sv_n(bytes.ptr, n));
        if (rc == MG_OK && n < bytes.len)
            rc = mg_buf_str(out, NUL_SHOWN);
        if (rc < 0)
            return rc;
        bytes = mg_sv_from(bytes, n + 1);
    }
    return MG_OK;
}

mg_rc mg_tool_text(struct mg_tool_result *r, bool is_error, struct mg_sv text)
{
    mg_auto(buf) struct mg_buf shown = MG_BUF_INIT(SHOWN_MAX);

    if (mg_tool_show(&shown, text) < 0)
        return MG_EINTERNAL;
    mg_buf_done(&r->content);
    r->content = MG_BUF_INIT(MG_TOOL_CONTENT_MAX);
    r->is_error = is_error;
    struct mg_jw w = mg_jw_to(&r->content);
    mg_jw_arr(&w);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "text");
    mg_jw_kstr(&w, "text", shown.len ? mg_buf_view(&shown) : mg_sv_of(NO_OUTPUT));
    mg_jw_obj_end(&w);
    mg_jw_arr_end(&w);
    return mg_buf_ok(&r->content) ? MG_OK : MG_EINTERNAL;
}

mg_rc mg_tool_textf(struct mg_tool_result *r, bool is_error, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return MG_EINTERNAL;
    mg_rc rc = mg_tool_text(r, is_error, mg_sv_n(text, (size_t)n));
    free(text);
    return rc;
}

mg_rc mg_tool_image(struct mg_tool_result *r, struct mg_sv media_type, struct mg_sv data)
{
    mg_buf_done(&r->content);
    r->content = MG_BUF_INIT(MG_TOOL_CONTENT_MAX);
    r->is_error = false;
    struct mg_buf *out = &r->content;
    mg_buf_str(out, "[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"");
    mg_buf_sv(out, media_type);
    mg_buf_str(out, "\",\"data\":\"");
    mg_base64_encode(out, data);
    mg_buf_str(out, "\"}}]");
    return mg_buf_ok(out) ? MG_OK : MG_EINTERNAL;
}

static bool is_of_the_call(mg_rc rc)
{
    switch (rc) {
    case MG_EINVAL:
    case MG_EDENIED:
    case MG_ENOTFOUND:
    case MG_ECONFLICT:
    case MG_ETOOBIG:
    case MG_ETIMEOUT:
    case MG_EIO:
        return true;
    default:
        return false;
    }
}

mg_rc mg_tool_failed(struct mg_tool_result *r, mg_rc rc, struct mg_err *err, const char *what, struct mg_sv path)
{
    if (!is_of_the_call(rc))
        return rc;
    const char *why = err && err->text[0]  ? err->text
                      : rc == MG_ENOTFOUND ? "no such file or folder"
                                           : "the operation failed";
    return mg_tool_textf(r, true, "%s%s%.*s: %s", what, path.len ? " " : "", MG_SV_ARG(path), why);
}
