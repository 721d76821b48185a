#include "common/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

int child_start(const struct child *c, pid_t *ret_pid)
{
    sigset_t all, none;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&at);
    for (int fd = 0; fd < c->n_fds; fd++) {
        if (c->fds[fd] < 0)
            posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
        else
            posix_spawn_file_actions_adddup2(&fa, c->fds[fd], fd);
    }
    if (c->cwd)
        posix_spawn_file_actions_addfchdir_np(&fa, *c->cwd);
    posix_spawn_file_actions_addclosefrom_np(&fa, c->n_fds);
    posix_spawnattr_setsigdefault(&at, &all);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setpgroup(&at, 0);
    posix_spawnattr_setflags(&at,
                             (short)(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                     (c->group ? POSIX_SPAWN_SETPGROUP : 0) | (c->session ? POSIX_SPAWN_SETSID : 0)));
    int e = (c->in_path ? posix_spawnp : posix_spawn)(ret_pid, c->argv[0], &fa, &at, c->argv, c->env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    return e;
}

int child_reap(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}
