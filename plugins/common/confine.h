/* Opening what a path names without ever leaving a folder. */
#ifndef MANGO_COMMON_CONFINE_H
#define MANGO_COMMON_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

#include "mango/types.h"

struct confine {
    const char *root; /* absolute path of the folder, as paths inside of it name it */
    int root_fd;
};

/* Paths are relative to the root or absolute inside of it. Both return a descriptor or -errno: -EXDEV for what leads
 * out. */
int confine_open(const struct confine *c, struct mango_sv path, uint64_t flags);
/* The folder that holds path's last component, made when missing, and the name in it. Links in the last place are
 * followed. */
int confine_parent(const struct confine *c, struct mango_sv path, char name[256]);
bool confine_works(int dir_fd); /* the kernel has openat2 */

#endif
