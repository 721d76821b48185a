/* What the launcher and the keeper of a box tell each other, by files in the session's folder:
 *
 *   BASE/session-LABEL/workspace   stays for the next item of the session
 *                     /scratch     temporary files of the worker; emptied by nobody but the system's own rules
 *                     /owner       32 hex digits of the supervisor's deployment
 *                     /lock        flock, held by the keeper as long as anything of the box lives
 *                     /state       the newest item: what struct state says, in one line for each member
 *                     /log         what the worker wrote, at most LOG_BYTES
 *
 * The lock is the truth on whether a box lives; the state says which and how it ended. */
#ifndef MANGO_PROCESS_STATE_H
#define MANGO_PROCESS_STATE_H

#include <stdbool.h>
#include <sys/types.h>

enum {
    WORK_ID_MAX = 128,       /* bytes */
    LOG_BYTES = 1024 * 1024, /* of one item; what comes behind is dropped */
    STATE_BYTES = 512,
};

/* Signals to the keeper: SIGTERM is passed on to the worker; KEEPER_KILL ends everything at once. */
#define KEEPER_KILL SIGUSR1

enum { STATE_NONE = 0, STATE_RUNNING, STATE_ENDED };

struct state {
    char work_id[WORK_ID_MAX + 1];
    pid_t keeper;
    unsigned long long start; /* of the keeper, in clock ticks since the machine's start: no other process has both */
    int what;                 /* STATE_* */
    int exit_code, signal;    /* of the worker, with STATE_ENDED; -1: not known */
};

/* In the folder home_fd. Old or new, never a part. False on failure. */
bool state_write(int home_fd, const struct state *s);
bool state_read(int home_fd, struct state *ret);
/* 0 when there is no such process. */
unsigned long long process_start(pid_t pid);

#endif
