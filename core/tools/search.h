/* What glob and grep share: the folder they start in, the script they run in the sandbox, and how they say that an answer is partial. */
#ifndef MG_TOOLS_SEARCH_H
#define MG_TOOLS_SEARCH_H

#include "tools/internal.h"

enum { MG_SEARCH_END_MAX = 512 /* bytes: the last errors of the search and its status */, MG_SEARCH_WHY_MAX = 400 };

struct mg_search {
    struct mg_sv dir;   /* absolute folder in which the script works */
    struct mg_sv shown; /* what stands in front of a found path: "", "src/", "/abs/" */
    struct mg_sv file;  /* grep: the one file in dir, or empty */
    /* set by the parser of the output */
    char end[MG_SEARCH_END_MAX + 1]; /* the text that closes a whole output: errors, then "rc N" */
    bool ended;
};

/* Scripts exit with these before they search. */
enum { MG_SEARCH_NO_FOLDER = 90, MG_SEARCH_NO_FIND = 91, MG_SEARCH_NO_GREP = 92, MG_SEARCH_BAD_PATTERN = 93 };

/* Takes the path argument (may be NULL). *ret_ready as with mg_file_open. */
mg_rc mg_search_start(struct mg_tool_call *c, const struct mg_json *path, bool files, struct mg_search *ret,
                      bool *ret_ready);
/* Runs `sh -c script name args...`; output goes to sink. MG_OK with *ret_why empty: the search was complete. Otherwise ret_why says why it was
 * not, or, with *ret_failed, why there is nothing. Negative: the sandbox. */
mg_rc mg_search_run(struct mg_tool_call *c, struct mg_search *s, const char *const *argv, mg_exec_sink *sink, void *ctx,
                    char ret_why[MG_SEARCH_WHY_MAX], bool *ret_failed);

#endif
