/* Files of a workspace, opened beneath it by the kernel: what the programs inside of sandboxes and the backends whose
 * workspaces are folders of this host do alike. No function keeps anything; any thread. */
#ifndef MANGO_COMMON_FILES_H
#define MANGO_COMMON_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/confine.h"
#include "mango/types.h"

/* How a path of the workspace is opened: a descriptor or -errno, as confine_open has it. */
struct opener {
    int (*open)(const void *ctx, struct mango_sv path, uint64_t flags);
    const void *ctx;
};
struct opener opener_of(const struct confine *ws);

enum { FILE_TEMP_LEN = 64 }; /* bytes of a hidden name, with its NUL */
#define FILE_TEMP_PREFIX ".mango-write-"

bool write_whole(int fd, const void *p, uint64_t n); /* false: errno tells */

/* ---- looking ---- */
char file_kind(mode_t m); /* of mango_stat */
int64_t file_mtime_us(const struct stat *st);
/* "is a FIFO; only ...", of what is no regular file. */
const char *file_special(mode_t m);
/* 0 or errno. A link that leads nowhere or outside is shown as what it is. */
int file_look(struct opener o, struct mango_sv path, bool nofollow, struct stat *ret);
/* For reading: a descriptor or -errno; with -EINVAL *ret_text may say more, else it is not touched. */
int file_open_regular(struct opener o, struct mango_sv path, struct stat *st, const char **ret_text);

/* ---- content on its way out ---- */
/* n bytes from offset, or as many as there are: their number, or -errno. */
int64_t file_copy(int from, int to, uint64_t offset, uint64_t n);
/* The file under a name in dir, from which its content is fetched: a second name, which no one swaps, or a copy of that range
 * where no name can be given (another file system, somebody else's file). *ret_copied: bytes, -1: it is the file itself. 0 or
 * errno. */
int file_stage(int fd, int dir, const char *name, mode_t mode, uint64_t offset, uint64_t n, int64_t *ret_copied);

/* ---- replacing ---- */
/* Refuses what must not be replaced. 0 or errno, with *ret_text where errno does not say it all. */
int file_target(int dir, const char *name, struct stat *st, bool *ret_there, const char **ret_text);
/* Extended attributes of a file onto to; those that only root may set are left. 0 or errno. */
int file_xattrs(int dir, const char *name, int to);
/* The new file gets the old one's attributes and mode, or this mode where there is none; refuses as file_target does. */
int file_inherit(int dir, const char *name, int fd, mode_t mode, const char **ret_text);
void file_temp_name(char name[FILE_TEMP_LEN]);
/* A file without a name, opened where dir is, replaces dir/name in one step. 0 or errno. */
int file_give_name(int fd, int dir, const char *name);
/* from_dir/content, open as fd, replaces dir/name in one step, on another file system by a copy. It is gone then. 0 or errno. */
int file_replace(int from_dir, const char *content, int fd, int dir, const char *name, mode_t mode,
                 const char **ret_text);

#endif
