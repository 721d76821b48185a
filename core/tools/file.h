/* What read, edit and write share. */
#ifndef MG_TOOLS_FILE_H
#define MG_TOOLS_FILE_H

#include "tools/internal.h"

/* Takes the path argument and looks at the file. *ret_ready: path and st are set and it is a regular file; otherwise the result says what is
 * wrong, or the code is the sandbox's. */
mg_rc mg_file_open(struct mg_tool_call *c, const struct mg_json *arg, const char *what, struct mg_sv *ret_path,
                   struct mg_file_stat *ret_st, bool *ret_ready);
/* Reads up to max bytes from the start, in pieces. out must hold max. */
mg_rc mg_file_read(struct mg_tool_call *c, struct mg_sv path, size_t max, struct mg_buf *out, bool *ret_eof);
/* Drops a part of a character at the end. */
void mg_file_cut_character(struct mg_buf *b);

#endif
