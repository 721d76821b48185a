/* The plugin's side of the connection into a container (mux.h). No thread of its own: of the calls that wait, one reads
 * for all.
 *
 * Concurrency: any number of calls at a time. `lock` guards the channels and their frames and is never held across a call
 * of the host; `writing` is held across conn_write, which has a limit of its own. */
#ifndef MANGO_DOCKER_MUX_CLIENT_H
#define MANGO_DOCKER_MUX_CLIENT_H

#include "docker/demux.h"
#include "docker/docker.h"

struct mux_chan {
    struct mux_chan *next; /* guarded by lock, as all that follows but taken */
    struct mux *mux;       /* a reference */
    uint32_t id;
    struct frame *first, **last;
    uint64_t queued; /* bytes */
    int wake;        /* eventfd of a call that waits while another reads; -1: never needed so far */
    bool waits, ended;
    uint32_t credit; /* bytes that may be sent */
    uint32_t taken;  /* bytes taken whose credit has not been given back */
};

/* Starts mango-box in the container and waits for its HELLO. MANGO_ENOENT without words: the container is not running;
 * MANGO_EGONE: there is none. */
mango_status mux_open(struct docker *d, const struct mango_call *call, const char *container, const char *root,
                      struct mux **ret);
void mux_ref(struct mux *m);
void mux_unref(struct mux *m);
bool mux_alive(struct mux *m);
/* Whether the other side is still there, as far as the connection knows; after a long silence it is asked. */
bool mux_fresh(struct mux *m, const struct mango_call *call);
/* Every wait ends with MUX_LOST; in the container, all that was started through it is killed. */
void mux_kill(struct mux *m);

struct mux_chan *mux_chan_open(struct mux *m); /* NULL: out of memory */
/* Frames behind an END are wanted too: of a command that was held. */
void mux_chan_reopen(struct mux_chan *c);
/* Tells the other side to forget it, unless its END has come. */
void mux_chan_close(struct mux_chan *c, const struct mango_call *call);

/* One frame. The limit is its own: the caller's token and deadline must not cut a frame in two. False: the connection is
 * lost. */
bool mux_send(struct mux_chan *c, const struct mango_call *call, uint8_t kind, struct mango_sv payload);

enum { MUX_GOT = 1, MUX_ROOM, MUX_TIME, MUX_CANCEL, MUX_LOST };
/* Waits for a frame, which goes to *ret and is the caller's to free, or, with ret NULL or want_room, until DATA may be sent
 * (MUX_ROOM). until_ns 0: no limit. MUX_TIME only when neither is there. */
int mux_wait(struct mux_chan *c, const struct mango_call *call, uint64_t until_ns, bool want_room, struct frame **ret);
/* Takes at most want bytes of what may be sent. */
uint32_t mux_take_room(struct mux_chan *c, uint64_t want);
/* A DATA frame of n bytes has been used. */
void mux_used(struct mux_chan *c, const struct mango_call *call, uint32_t n);

#endif
