/* Commands without mango-box, for containers in which it cannot run: each one is an exec of the Engine, which costs 65 ms
 * and more. The Engine has no kill, tells a signal as an exit code, and ends a stream when it likes; so a small launcher, a
 * shell script, starts the command and says on both streams how it ended, and a second exec kills.
 *
 * What is less than with mango-box: docs/adapters/docker.md has the list. */
#ifndef MANGO_DOCKER_PLAIN_H
#define MANGO_DOCKER_PLAIN_H

#include "docker/run.h"

/* run.c hands over to these in a container without mango-box; they do what their namesakes there say. */
mango_status plain_start(struct box *b, const struct mango_call *call, const struct mango_exec_req *req, int flags,
                         struct run *r);
int plain_wait(struct run *r, const struct mango_call *call, uint64_t until_ns, bool want_room);
bool plain_input(struct run *r, struct mango_sv data, uint64_t *ret_n);
int plain_room(struct run *r, const struct mango_call *call, uint64_t until_ns);
void plain_eof(struct run *r);
void plain_kill(struct run *r, const struct mango_call *call);
void plain_close(struct run *r);
/* Ends what this process waits for; the calls come back. With the lock of the box. */
void plain_cut_all(struct box *b);

/* ---- plain-file.c ---- */
mango_status plain_read(struct box *b, const struct mango_call *call, const struct mango_read_req *req,
                        int32_t *ret_eof);
mango_status plain_write(struct box *b, const struct mango_call *call, const struct mango_write_req *req);
mango_status plain_stat(struct box *b, const struct mango_call *call, struct mango_sv path, uint32_t flags,
                        struct mango_stat *ret);

/* The words of a command that packs the folder below the root, or unpacks into it; n of them. */
enum { PLAIN_ARCHIVE_ARGS = 6 };
mango_status plain_archive(struct box *b, const struct mango_call *call, bool out, struct mango_sv path,
                           struct text *folder, struct mango_sv argv[PLAIN_ARCHIVE_ARGS]);

/* ---- plain-exec.c: an exec as the Engine knows it ---- */
enum { PLAIN_NUMBER_LEN = 32 /* hex digits that name one exec */ };
struct plain_exec {
    mango_conn conn;
    char id[80]; /* the Engine's */
};
struct plain_spec {
    const char *script;          /* for /bin/sh -c */
    const struct mango_sv *args; /* $1 and so on; any bytes but NUL */
    uint64_t n_args;
    const char *mark;                  /* MANGO_RUN of what it starts; NULL: none */
    char *const *env;                  /* NULL-terminated, or NULL */
    const struct mango_exec_req *more; /* its variables, or NULL */
    bool input;                        /* standard input is the connection's */
};
/* MANGO_ENOENT without words: the container does not run. */
mango_status plain_exec_start(const struct docker *d, const struct mango_call *call, const char *container,
                              const struct plain_spec *spec, struct plain_exec *ret);
/* One of ours from start to end: its output, at most size - 1 bytes of it, and its exit code; -1: not known. */
mango_status plain_exec_run(const struct docker *d, const struct mango_call *call, const char *container,
                            const struct plain_spec *spec, char *out, size_t size, int *ret_code);
/* How it ended, by the Engine's own book; false while it runs. */
bool plain_exec_ended(const struct docker *d, const struct mango_call *call, const char *id, int *ret_code);
mango_status plain_detached(const struct docker *d, const struct mango_call *call, const char *container,
                            const char *const *argv);

/* The Engine's frames around the bytes of an exec: 1, 0, 0, 0, length. */
struct plain_frames {
    unsigned char head[8];
    uint32_t n_head, left;
    bool raw; /* no frames: the Engine's own words, since nothing was started */
};
/* Takes the next piece off p: its stream (0: the Engine's words), or -1 when there is none yet. */
int plain_frame(struct plain_frames *f, const char **p, uint64_t *n, struct mango_sv *ret);

/* The container runs and this process has taken it over; looked at once. */
mango_status plain_ready(struct box *b, const struct mango_call *call);
/* Runs script in the box, with what has to be done to a container that has stopped. */
mango_status plain_begin(struct box *b, const struct mango_call *call, const struct plain_spec *spec,
                         struct plain_exec *ret);

#endif
