/* ustar and pax archives, as the Engine and MANGO_CAP_ARCHIVES have them. Writing makes heads; reading is a machine that
 * is fed with the stream in pieces of any size and keeps one block. */
#ifndef MANGO_COMMON_TAR_H
#define MANGO_COMMON_TAR_H

#include <stdbool.h>

#include "common/text.h"

enum {
    TAR_BLOCK = 512,
    TAR_PATH_MAX = 4096,     /* bytes of a path; longer ones are refused */
    TAR_PAX_MAX = 64 * 1024, /* bytes of one extended head */
};

struct tar_entry {
    struct mango_sv path; /* as it stands in the archive: the reader of it must confine it */
    struct mango_sv link; /* target of 'l' and 'h' */
    uint64_t size;        /* of 'f' */
    int64_t mtime_s;
    uint32_t mode, uid, gid;
    char kind; /* 'f' file, 'd' folder, 'l' symbolic link, 'h' hard link, 'o' other */
};

/* Appends the head of an entry; the content of a file follows, then tar_pad. Long paths get a pax head. */
void tar_head(struct text *out, const struct tar_entry *e);
void tar_pad(struct text *out, uint64_t size); /* to the next block */
void tar_end(struct text *out);

struct tar_reader {
    void *ctx;
    int32_t (*entry)(void *ctx, const struct tar_entry *e);   /* non-zero stops */
    int32_t (*content)(void *ctx, const char *p, uint64_t n); /* of the last entry, a file */
    /* the machine's own */
    char block[TAR_BLOCK];
    uint32_t have;      /* bytes in block */
    uint64_t left, pad; /* of the present content */
    char special;       /* type of the extended head */
    int state;
    struct text pax;        /* the extended head that is being read */
    struct text path, link; /* from it, for the next entry */
    uint64_t pax_size;
    bool has_size, ended;
};

enum { TAR_OK = 0, TAR_BAD = -1 /* no archive, or beyond a limit */, TAR_STOPPED = -2 /* by a callback */ };
int tar_feed(struct tar_reader *r, const char *p, uint64_t n);
bool tar_whole(const struct tar_reader *r); /* the archive has come to its end */
void tar_free(struct tar_reader *r);

#endif
