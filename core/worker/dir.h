/* Files of the worker's own making below one folder of this machine. The kernel resolves every path beneath the folder and follows no link
 * (openat2), whatever commands of a session put there meanwhile. Paths are relative, without "." and ".."; their components are checked by
 * whoever got them from outside (mg_dir_component). */
#ifndef MG_WORKER_DIR_H
#define MG_WORKER_DIR_H

#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Can name one entry of a folder. */
bool mg_dir_component(struct mg_sv s);
/* A folder below root, "" for root itself. Makes what is missing when make is set (mode 0700). A descriptor or -errno. */
int mg_dir_open(int root, const char *path, bool make);
/* An absolute path of the operator's or the API's, made when missing with its parents; links in it are followed. A descriptor or -errno. */
int mg_dir_absolute(const char *path);
/* Writes a file whole or not at all; parents are made. In place of what is there, or, with fresh set, only where nothing is
 * (MG_ECONFLICT else, and where a part of the path is no folder). */
mg_rc mg_dir_write(int root, const char *path, struct mg_sv content, mode_t mode, bool fresh, struct mg_err *err);
/* Appends the content of a regular file. MG_ENOTFOUND; MG_EINVAL: no regular file; MG_ETOOBIG: more than max bytes. */
mg_rc mg_dir_read(int root, const char *path, size_t max, struct mg_buf *out, struct mg_err *err);
int mg_dir_unlink(int root, const char *path); /* 0, also when it was gone; or -errno */
/* Every regular file below root, in no order; links and special files are left out, and no link is followed. MG_ETOOBIG: more than
 * max of them. */
mg_rc mg_dir_walk(int root, unsigned max, void (*fn)(void *ctx, const char *path, off_t size), void *ctx,
                  struct mg_err *err);

#endif
