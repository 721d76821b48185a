/* A command as its starter hands it over (common/runner/wire.h): strings and descriptors, then what is said over its status
 * socket. Used by the programs inside of sandboxes and by the backends whose workspaces are folders of this host. */
#ifndef MANGO_COMMON_PARCEL_H
#define MANGO_COMMON_PARCEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/runner/wire.h"
#include "mango/types.h"

/* Variable of a command in a service's sandbox: its id. What has left its group is found by it. */
#define MARK_NAME "MANGO_RUN"

struct parcel {
    char *strings;
    uint32_t room; /* bytes of strings */
    uint32_t len, argc, envc;
    int fds[WIRE_FDS_MAX]; /* the parcel's own */
    int n_fds;
    uint32_t flags;
};

/* The starter's ends of a command; -1: none. */
struct ends {
    int status, out, err; /* out and err do not block */
};

bool parcel_begin(struct parcel *p, uint64_t room); /* false: out of memory */
/* False when there is no room for it, or it is too long for the kernel, or holds a NUL. */
bool parcel_string(struct parcel *p, struct mango_sv s);
bool parcel_args(struct parcel *p, const struct mango_sv *args, uint64_t n);
/* The variables of base (NULL at the end), but for those that own has too; then own. */
bool parcel_env(struct parcel *p, char *const *base, const struct mango_sv *own, uint64_t n);
/* Status socket, in (which becomes the parcel's even after a failure) and pipes. 0 or errno; then too some may be open. */
int parcel_streams(struct parcel *p, int in, struct ends *ret);
void parcel_fd(struct parcel *p, int fd, uint32_t flag); /* in the order of the flags */
/* To a runner; strings that do not fit into the datagram go into a memory file. 0 or errno. */
int parcel_payload(struct parcel *p);
int parcel_send(int runner, const struct parcel *p);
void parcel_done(struct parcel *p);

/* ---- status ---- */
enum { WIRE_GONE = UINT16_MAX /* kind of an event: the reaper was killed */ };
/* False when nothing has come. */
bool status_hear(int status, struct wire_event *ret);
void status_kill(int status);
/* The result has been taken: what lives on may go on, and its output is drained by its reaper. */
void status_release(const struct ends *e);

#endif
