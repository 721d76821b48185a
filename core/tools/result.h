/* Builders of tool results: one text block or one image. */
#ifndef MG_TOOLS_RESULT_H
#define MG_TOOLS_RESULT_H

#include "tools/tools.h"

enum {
    MG_TOOL_CONTENT_MAX =
        8 * 1024 * 1024 /* bytes of a result as JSON: an image of the largest size, or 256 KiB of escapes */
};

/* Sets the result to one text block. Bytes that are not UTF-8 are shown as U+FFFD, NUL as U+2400 (PostgreSQL and many clients take no NUL);
 * an empty text becomes "(no output)". */
mg_rc mg_tool_text(struct mg_tool_result *r, bool is_error, struct mg_sv text);
mg_rc mg_tool_textf(struct mg_tool_result *r, bool is_error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
mg_rc mg_tool_image(struct mg_tool_result *r, struct mg_sv media_type, struct mg_sv data);
/* Appends bytes as a text block would show them. */
mg_rc mg_tool_show(struct mg_buf *out, struct mg_sv bytes);
/* For a failed operation: what concerns the call (no such file, no space) becomes an error result "what: reason" and MG_OK; what concerns the
 * sandbox (lost, cancelled, unreachable) is returned as it came. */
mg_rc mg_tool_failed(struct mg_tool_result *r, mg_rc rc, struct mg_err *err, const char *what, struct mg_sv path);

#endif
