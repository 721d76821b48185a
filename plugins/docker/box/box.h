/* mango-box: runs inside of a session's container and starts its commands there. Static, so that it works in any image.
 *
 *   mango-box init          process 1 of the container: waits for orphans, ends at SIGTERM
 *   mango-box pack ROOT FOLDER, mango-box unpack ROOT FOLDER    archives (pack.c)
 *   mango-box serve ROOT    speaks mux.h over standard input and output; its end ends everything that it has started
 *
 * `serve` is two processes: this one moves bytes, and its child is the runner of the backend `local` (common/runner/wire.h),
 * which starts, watches and kills. Single-threaded. */
#ifndef MANGO_DOCKER_BOX_H
#define MANGO_DOCKER_BOX_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/confine.h"
#include "docker/mux.h"
#include "common/runner/relay.h"
#include "common/runner/wire.h"

enum {
    CHANNELS_MAX = 1200,             /* a little more than the runner's commands at a time */
    OUT_QUEUE_MAX = 4 * 1024 * 1024, /* bytes that wait for the Engine before nothing more is read */
    DRAIN_MAX = 1024 * 1024,         /* bytes: the largest pipe. What a command wrote before its end is in it */
};

enum chan_kind { CHAN_NONE, CHAN_EXEC, CHAN_READ, CHAN_WRITE };

struct chan {
    uint32_t id;
    enum chan_kind kind;
    uint32_t credit; /* bytes that may be sent */

    /* CHAN_EXEC */
    int status, in, out, err; /* -1: none, or ended */
    struct wire_event end;    /* kind 0 until it came */
    uint64_t drained;         /* bytes read after the end */
    uint64_t max_output, seen[3];
    uint64_t oom_before;
    char *input;               /* what the command has not taken yet: MUX_WINDOW bytes, made at the first DATA */
    uint32_t in_len, in_given; /* bytes in input; bytes whose credit has not been given back */
    bool in_eof;
    bool hold, silent; /* MUX_HOLD; its END has been told: output is dropped */

    /* CHAN_READ, CHAN_WRITE */
    int fd, dir_fd;
    uint64_t at, left; /* READ: position, bytes still wanted */
    uint32_t mode;     /* WRITE */
    char name[256];    /* WRITE: of the target in dir_fd */
    int error;         /* WRITE: errno of what went wrong before the end */
};

struct box {
    struct confine ws;
    bool greeted;
    int runner; /* socket */
    struct chan **chans;
    int n_chans;
    char *out; /* ring-less queue: [out_at, out_len) waits */
    size_t out_at, out_len, out_cap;
    char *in; /* a frame that is not whole yet */
    size_t in_len, in_cap;
};

/* ---- serve.c ---- */
int box_serve(const char *root);
/* Queues a frame. Memory that is gone ends the process: nothing of it could be told. */
void box_send(struct box *b, uint32_t chan, uint8_t kind, uint8_t stream, const void *p, size_t n);
void box_end(struct box *b, struct chan *c, struct mux_end *end, const char *text); /* last frame; closes the channel */
void box_fail(struct box *b, uint32_t chan, int errnum, const char *text);          /* an END without a channel */
/* NULL when there are too many. */
struct chan *box_channel(struct box *b, uint32_t id, enum chan_kind kind);

/* ---- command.c ---- */
void command_start(struct box *b, uint32_t id, const char *p, size_t n);
void command_input(struct box *b, struct chan *c, const char *p, size_t n);
void command_eof(struct box *b, struct chan *c);
void command_kill(const struct chan *c);
void command_on_status(struct box *b, struct chan *c);
void command_on_output(struct box *b, struct chan *c, int stream);
void command_on_writable(struct box *b, struct chan *c);
/* After a round: tells the end when all that was written before it has been sent. */
void command_settle(struct box *b, struct chan *c);
bool command_wants(const struct box *b, const struct chan *c, int stream); /* its output may be read now */
uint64_t oom_kills(void); /* of the container so far; 0 where that cannot be seen */

/* ---- pack.c ---- the exit status; what went wrong is on standard error */
int pack_main(const char *root, const char *path);
int unpack_main(const char *root, const char *path);

/* ---- file.c ---- */
void file_read(struct box *b, uint32_t id, const char *p, size_t n);
void file_write(struct box *b, uint32_t id, const char *p, size_t n);
void file_stat(struct box *b, uint32_t id, const char *p, size_t n);
void file_more(struct box *b, struct chan *c); /* READ: sends what credit allows */
void file_data(struct box *b, struct chan *c, const char *p, size_t n);
void file_commit(struct box *b, struct chan *c);

#endif
