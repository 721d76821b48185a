/* The one form in which tools print file names and take them back.
 *
 * A name stands as it is, unless it could be misread: control characters, bytes that are not UTF-8, a space at its end, a double quote at its
 * start, and in grep lines a colon. Then it is quoted: "..." with \\ \" \n \r \t and \xHH (one byte). A path argument that starts and ends
 * with a double quote is taken as such a quoted name. */
#ifndef MG_TOOLS_NAMES_H
#define MG_TOOLS_NAMES_H

#include "tools/tools.h"

enum mg_name_place { MG_NAME_LINE, MG_NAME_COLON /* in front of ":12:" */ };

mg_rc mg_name_quote(struct mg_buf *out, struct mg_sv name, enum mg_name_place place);
/* The bytes of a path argument, NUL-terminated arena memory. MG_EINVAL with the rule: empty, NUL, too long, a bad escape. */
mg_rc mg_name_take(struct mg_arena *a, struct mg_sv arg, const char *field, struct mg_sv *ret,
                   struct mg_err *err) MG_MUSTCHECK;

#endif
