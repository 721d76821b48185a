/* mango-rbox: put into a sandbox of a remote service by its adapter, and run there once for each operation. It does what such
 * services do not: it starts a command at most once however often the request arrives, tells exactly how it ended, keeps its
 * output byte for byte until it was fetched, kills all of it, and opens files without leaving the workspace.
 *
 *   mango-rbox [-x] run ROOT ID OFFSET LIMIT_MS MAX STDIN CWD N_ENV ENV... ARGV...
 *   mango-rbox kill ROOT ID
 *   mango-rbox [-x] stat ROOT ID FOLLOW PATH
 *   mango-rbox [-x] read ROOT ID OFFSET MAX PATH
 *   mango-rbox [-x] put ROOT ID MODE PATH       the content is in ROOT/.mango-run/ID.in
 *   mango-rbox hello ROOT
 *   mango-rbox sync ROOT                        what is written is on the disk
 *   mango-rbox errand ...                       for services whose streams are not to be trusted: common/errand/errand.h
 *
 * -x: arguments behind the subcommand are %XX-encoded, for services whose arguments are text.
 *
 * ROOT/.mango-run/ID belongs to one command: `lock` is held while it is watched, `log` has the frames, `done` is there when the
 * log is whole. A second `run` of an ID only tells what the first one does, from byte OFFSET of the log.
 *
 * Static, single-threaded (a command's reaper is a process of its own: common/runner/reaper.c). */
#ifndef MANGO_COMMON_RBOX_H
#define MANGO_COMMON_RBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/confine.h"
#include "common/rbox/wire.h"
#include "common/text.h"

/* The folder of one command. */
struct folder {
    int dir;  /* ROOT/.mango-run/ID */
    int lock; /* of this process, when it watches the command */
    int log;
};

extern struct confine ws; /* ROOT */
extern int run_dir;       /* ROOT/.mango-run */

/* ---- log.c ---- */
bool open_root(const char *root);
bool id_ok(const char *id);
/* A frame into fd: false when it cannot be written. */
bool put_frame(int fd, char kind, const void *p, size_t n);
/* Makes the folder of a command, locked. 0; EEXIST: it is there already; another errno. */
int folder_make(const char *id, struct folder *ret);
int folder_open(const char *id, struct folder *ret); /* 0 or errno */
/* The last frame, and the mark that the log is whole. */
void folder_end(const struct folder *f, const char *result);
/* Sends the log from *at to standard output as far as it goes now; false when nobody takes it any more. */
bool log_send(const struct folder *f, uint64_t *at);
/* Tells what another process watches, to its end; the exit status. */
int follow(const char *id, uint64_t offset);
int kill_main(const char *id);
void sweep(void);
/* The result of an operation without a folder. */
int say_result(const char *result);
int say_errno(int errnum, const char *text);
void began(void);

/* ---- run.c ---- */
struct command {
    const char *id, *cwd;
    uint64_t offset, limit_ms, max;
    bool in; /* its input is ROOT/.mango-run/ID.in */
    char **env, **argv;
    uint32_t envc, argc;
};
int run_main(const struct command *c);

/* ---- file.c ---- */
int stat_main(const char *path, bool follow_link);
int read_main(const char *id, uint64_t offset, uint64_t max, const char *path);
int put_main(const char *id, uint32_t mode, const char *path);

#endif
