/* The persistent shell: one bash (else sh) over the proc operations of a sandbox, fed through its stdin.
 *
 * Protocol. The command travels as one single-quoted word, so its size and content do not matter to argv or to the reader; the shell evaluates
 * it with /dev/null as stdin and its own two output descriptors saved, then prints a marker with a number that nobody can guess, the call's
 * number and the status. Output ends at the marker, not at end of file: background children may hold the pipe as long as they like.
 * A parent shell reports the status when the shell itself ends (`exit 3`).
 *
 * Concurrency: one call at a time, any thread. */
#ifndef MG_TOOLS_SHELL_H
#define MG_TOOLS_SHELL_H

#include "tools/output.h"
#include "tools/tools.h"

struct mg_shell;

enum mg_shell_how {
    MG_SHELL_DONE,    /* status is the command's */
    MG_SHELL_EXITED,  /* the shell itself ended; status is its own, or -1 when nobody said */
    MG_SHELL_TIMEOUT, /* what the command had started was killed */
};

struct mg_shell_end {
    enum mg_shell_how how;
    int status;
    bool lost;   /* the shell is of no use any more: close it */
    bool unsent; /* it had ended before this call: nothing of the command has run */
};

mg_rc mg_shell_open(const struct mg_tool_ops *ops, void *box, struct mg_cancel *cancel, struct mg_shell **ret,
                    struct mg_err *err) MG_MUSTCHECK;
void mg_shell_close(struct mg_shell *s); /* NULL is fine; ends the background jobs too */
/* A cancelled call returns MG_ECANCELED with *ret set (how: MG_SHELL_TIMEOUT); after every other error, or with
 * MG_SHELL_EXITED, the shell is lost. */
mg_rc mg_shell_run(struct mg_shell *s, struct mg_sv command, uint64_t deadline_ns, struct mg_cancel *cancel,
                   struct mg_output *out, struct mg_shell_end *ret, struct mg_err *err) MG_MUSTCHECK;

/* Appends 'text' with every ' inside written as '\''. */
void mg_shell_quote(struct mg_buf *out, struct mg_sv text);

#endif
