/* The state folder: whose it is, and that one server alone uses it. */
#ifndef MG_STORE_STATE_DIR_H
#define MG_STORE_STATE_DIR_H

#include "base/err.h"

enum { MG_STATE_EXIT_IN_USE = 75 /* exit status of a second mangod on the same folder (EX_TEMPFAIL) */ };

struct mg_state_dir {
    char *path; /* absolute, without symbolic links */
    int fd;     /* of the folder */
    int lock;   /* of mangod.pid, locked as long as it is open */
};

/* Opens path, making its last component when missing (0700), and locks mangod.pid in it. Nothing is followed or truncated:
 * MG_ECONFIG with one line when the folder is a symbolic link, another user's, writable by others, under a folder that others may write
 * (sticky ones such as /tmp are fine), read-only or full. MG_ECONFLICT with code "state_in_use" when another mangod has it. */
mg_rc mg_state_dir_open(const char *path, struct mg_state_dir *ret, struct mg_err *err) MG_MUSTCHECK;
void mg_state_dir_close(struct mg_state_dir *d);

#endif
