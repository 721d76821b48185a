/* What a starter of commands (the plugin `local`, or mango-box inside of a container) and its runner say to each other.
 * Both are built together and never mixed. Below, "plugin" is the starter.
 *
 * One runner per live sandbox. The plugin holds a SEQPACKET socket to it; each command is one datagram with
 * descriptors: its status socket, stdin, stdout, stderr, then the folder (FLAG_CWD), a memory file with the strings
 * (FLAG_PAYLOAD), a terminal (FLAG_TTY). The runner forks a reaper for the command, a child subreaper, so that everything the command
 * ever starts stays below it. From then on plugin and reaper talk over the status socket alone.
 *
 * Lifetimes: the end of the status socket without RELEASE kills all that the command started; the end of the runner's
 * socket kills all of the sandbox. So nothing outlives the server, however it dies. */
#ifndef MANGO_COMMON_WIRE_H
#define MANGO_COMMON_WIRE_H

#include <stdint.h>

enum {
    RUNNER_FD = 3,                  /* the runner's end of its socket */
    WIRE_MAGIC = 0x4D4C5231,        /* "MLR1" */
    WIRE_INLINE_MAX = 32 * 1024,    /* bytes of strings in the datagram itself; more go into a memory file */
    WIRE_STRINGS_MAX = 1024 * 1024, /* bytes of argv and environment; execve has 2 MiB with an 8 MiB stack */
    WIRE_STRING_MAX = 131071,       /* bytes of one string: the kernel's MAX_ARG_STRLEN without the NUL */
    WIRE_FDS_MAX = 7,
    WIRE_ARGS_MAX = 4096,
};

/* CHDIR: one more string, the folder's name, relative to the runner's own; for runners whose files are not the
 * starter's. TTY: the command's controlling terminal. */
enum { WIRE_FLAG_CWD = 1, WIRE_FLAG_PAYLOAD = 2, WIRE_FLAG_CHDIR = 4, WIRE_FLAG_TTY = 8 };

/* Where an optional descriptor stands among those of a request. */
static inline int wire_fd(uint32_t flags, uint32_t flag)
{
    int at = 4;
    for (uint32_t f = WIRE_FLAG_CWD; f < flag; f <<= 1)
        at += f != WIRE_FLAG_CHDIR && (flags & f);
    return at;
}

struct wire_request {
    uint32_t magic, flags;
    uint32_t argc, envc;
    uint32_t len; /* bytes of strings: argc + envc (+ 1: CHDIR) NUL-terminated ones */
};

/* reaper -> plugin */
enum { WIRE_STARTED = 1, WIRE_FAILED, WIRE_ENDED, WIRE_KILLED };
struct wire_event {
    uint32_t kind;
    int32_t status;    /* FAILED: errno; ENDED: as waitpid gives it */
    uint32_t alone;    /* ENDED: nothing else of the command lives; the reaper has gone */
    uint32_t left;     /* KILLED: processes that did not die in time */
    uint64_t peak_kib; /* ENDED: resident memory of the largest process */
};

/* plugin -> reaper. RELEASE: the result has been taken, what lives on may go on; carries the read ends of pipes that
 * are still open, to be drained. KILL: kill all, then KILLED. */
enum { WIRE_KILL = 1, WIRE_RELEASE };
struct wire_command {
    uint32_t kind;
};

#endif
