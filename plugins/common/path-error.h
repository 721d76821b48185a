/* What went wrong with a file, for people. */
#ifndef MANGO_COMMON_PATH_ERROR_H
#define MANGO_COMMON_PATH_ERROR_H

#include "mango/types.h"

enum { SHOWN_MAX = 200 /* bytes of a path in an error */ };

struct path_error {
    int errnum;
    mango_status status;
    const char *text; /* after the path */
};
const struct path_error *path_error_of(int errnum); /* NULL: none that has words of its own */

/* A path for people: control characters and bytes outside of ASCII become '?'. */
void shown(struct mango_sv path, char out[SHOWN_MAX + 1]);

#endif
