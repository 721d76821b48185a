/* What the programs inside of sandboxes have in common beyond files (files.h) and the handing over of commands (parcel.h).
 * Single-threaded. */
#ifndef MANGO_COMMON_INSIDE_H
#define MANGO_COMMON_INSIDE_H

#include <stddef.h>
#include <stdint.h>

#include "common/files.h"
#include "common/parcel.h"
#include "common/runner/runner.h"
#include "common/sv.h"

enum {
    STREAM_DRAIN_MAX =
        2 * 1024 * 1024 /* bytes: two of the largest pipes; what a command wrote before its end is in them */
};

/* What a command says. */
struct stream {
    int fd;        /* not blocking; -1: ended */
    uint64_t seen; /* bytes */
    uint64_t kept; /* those of them within the bound */
};

/* One piece: its bytes, of which *ret_keep are within the bound (0: none); 0 when there is nothing for now, or it has ended. */
size_t stream_take(struct stream *s, char *piece, size_t size, uint64_t bound, size_t *ret_keep);

/* Views of n strings; NULL: out of memory. The caller's to free. */
struct mango_sv *views_of(char *const *z, uint64_t n, uint64_t more);

/* For reaper_main in a child of this process: the parcel's strings and descriptors stay the parcel's. */
struct request request_of(const struct parcel *p);

/* Away from everything that the service watches: a session of its own, no standard streams, no core. Returns a descriptor that
 * tells of SIGCHLD, which is blocked, as reaper_main wants it; -1: errno tells. */
int leave_service(void);

/* The number behind name in a file of the kernel; 0: none. */
uint64_t kernel_counter(const char *path, const char *name);

/* Kills whatever carries a command's mark, wherever it has gone. */
void kill_marked(const char *id);

#endif
