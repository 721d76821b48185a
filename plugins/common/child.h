/* Programs that an adapter starts on this host: with posix_spawn, since a server with threads is never forked; with signals as
 * a new process has them, and with none of the server's descriptors. Any thread. */
#ifndef MANGO_COMMON_CHILD_H
#define MANGO_COMMON_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

enum { CHILD_FDS_MAX = 4 /* descriptors that a child can get */ };

struct child {
    char *const *argv, *const *env; /* both end with NULL; argv[0] is the program */
    int fds[CHILD_FDS_MAX];         /* its 0, 1, 2 and so on; -1: /dev/null */
    int n_fds;
    const int *cwd;      /* the descriptor of its folder; NULL: the server's */
    bool in_path;        /* argv[0] without '/' is looked for in the server's PATH */
    bool group, session; /* it leads one of its own */
};

/* 0 or errno. */
int child_start(const struct child *c, pid_t *ret_pid);
/* Waits for its end; the status of waitpid. */
int child_reap(pid_t pid);

#endif
