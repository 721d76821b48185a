/* What an adapter brings along for its sandboxes: a program, or an archive. Any thread. */
#ifndef MANGO_COMMON_BROUGHT_H
#define MANGO_COMMON_BROUGHT_H

#include "mango/plugin.h"

struct brought_file {
    const char *name;   /* of the file */
    const char *title;  /* before its path in an error, with a blank; or "" */
    const char *remedy; /* what to do when it cannot be read */
    uint64_t max;       /* bytes */
};

struct brought {
    struct mango_buf *bytes; /* the caller's, to buf_free */
    uint64_t hash;           /* tells versions apart, no more */
};

/* The file's path beside the plugin's own where access(2) allows mode, else where it is installed; malloc, NULL: out of
 * memory. */
char *brought_path(const char *name, int mode);
/* Reads path (malloc, taken), or when it is NULL brought_path. *ret is empty after a failure. */
mango_status brought_load(const struct mango_host *h, const struct mango_call *call, const struct brought_file *f,
                          char *path, struct brought *ret);

#endif
