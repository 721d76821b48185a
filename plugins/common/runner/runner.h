#ifndef MANGO_COMMON_RUNNER_H
#define MANGO_COMMON_RUNNER_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/runner/wire.h"

struct request {
    struct wire_request head;
    const char *strings;
    int fds[WIRE_FDS_MAX]; /* status, stdin, stdout, stderr, then wire_fd; -1: none */
};

/* A process that belongs to the runner and to no command: started by start before the first command, and again when it
 * ends. Call it before runner_main. start returns its id, or what is not above 0 when there is none. */
void runner_helper(pid_t (*start)(void));

/* "NAME=value", NULL at the end: what every command gets unless its request says otherwise. Call it before runner_main. */
void runner_env(char *const *more);

/* Serves the socket on RUNNER_FD until its end; the process's exit status. */
int runner_main(void);

/* Runs one command and reaps everything that it starts; life is readable (at its end) when the runner has gone. Never
 * returns. */
_Noreturn void reaper_main(const struct request *req, int life, int sigfd);

/* Kills every descendant of this process (a child subreaper), group by group, and reaps them. Returns the number that
 * would not die within ms. known(ctx, pid): children to leave alone with what is below them; NULL: none. */
unsigned kill_descendants(int ms, bool (*known)(void *ctx, pid_t pid), void *ctx);

long long now_ms(void); /* of a clock that nobody sets */

#endif
