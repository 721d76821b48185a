/* What mango-rbox (rbox.h) says to the adapter that has put it into a sandbox: frames on standard output and, of a command, the
 * same bytes in a file of the sandbox. Both are built together; the program's name in the sandbox holds a hash of it, so
 * they are never mixed. */
#ifndef MANGO_COMMON_RBOX_WIRE_H
#define MANGO_COMMON_RBOX_WIRE_H

#define RBOX_PROGRAM "mango-rbox"
#define RBOX_DIR ".mango-run" /* under the root: the program, commands, content on its way */

enum {
    RBOX_HEAD = 5,                 /* bytes of a frame's head: its kind, and the length of what follows, big-endian */
    RBOX_DATA_MAX = 32 * 1024,     /* bytes of one frame */
    RBOX_ID_MAX = 64,              /* bytes of an id: letters, digits and '-' */
    RBOX_INLINE_MAX = 1024 * 1024, /* bytes of a file that `read` sends itself; more is left for a download */
    RBOX_ARG_MAX = 131071,         /* bytes of one argument: the kernel's limit without the NUL */
    RBOX_KEEP_S = 3600,            /* what was left behind is swept after so long; a start may be repeated until then */
};

enum {
    RBOX_BEGAN = 'b',   /* this process runs; of a command: it is about to start, or it had been started before */
    RBOX_CONTENT = '0', /* of a file */
    RBOX_STDOUT = '1',
    RBOX_STDERR = '2',
    RBOX_RESULT = 'r', /* JSON; the last one */
};

/* Members of the result. "how" is always there; "errno" with "failed". */
#define RBOX_EXITED "exited"   /* "code" */
#define RBOX_SIGNAL "signal"   /* "signal" */
#define RBOX_TIMEOUT "timeout" /* the limit; everything was killed. "left": processes that would not die */
#define RBOX_KILLED "killed"   /* asked for; the same */
#define RBOX_LOST "lost"       /* it began, and what watched it is gone */
#define RBOX_FAILED "failed"   /* it did not start, or the file operation failed */
#define RBOX_DONE "done"       /* of a file operation: it is done */

#endif
