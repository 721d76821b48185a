/* Results that are too long for a context: kept whole as a file of the workspace, shown by their head and tail. */
#ifndef MG_TOOLS_KEEP_H
#define MG_TOOLS_KEEP_H

#include "tools/tools.h"

enum {
    MG_RESULT_INLINE_MAX =
        100000, /* bytes of text that a result gives to a model (semantics EX8); less where the window is small */
    MG_RESULT_HEAD = 2000, /* bytes that stay of a longer one */
    MG_RESULT_TAIL = 1000,
};

/* The head and the tail of text, with a line between them that counts what is missing and ends with `where`. */
void mg_result_excerpt(struct mg_buf *out, struct mg_sv text, const char *where);
/* Text over max bytes goes into the file tool-results/ID.txt of the workspace; a result of `read` does not, its file is there. Everything else stays as it
 * is. A file that cannot be written is said in the result: the call itself has been made. */
void mg_tool_result_keep(struct mg_tools *t, struct mg_sv tool, const char *id, size_t max, struct mg_tool_result *r);

#endif
