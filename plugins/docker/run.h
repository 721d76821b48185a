/* A command in the container: its start, its output, its end. Used by exec and proc. */
#ifndef MANGO_DOCKER_RUN_H
#define MANGO_DOCKER_RUN_H

#include "common/chunk.h"
#include "docker/mux-client.h"

struct plain;
struct run {
    struct docker *docker;
    struct mux_chan *chan; /* NULL: not started, or: */
    struct plain *plain;   /* in a container without mango-box */
    struct chunk out, err;
    struct mux_end end; /* valid with ended */
    char words[MUX_TEXT_MAX + 1];
    bool ended, lost, started;
};

enum { RUN_NO_STDIN = 0, RUN_STDIN = MUX_KEEP_STDIN, RUN_PROC = MUX_KEEP_STDIN | MUX_HOLD };
/* Sends the command. *ret_unsent: nothing of it can have run, since the connection was lost before. */
mango_status run_start(struct box *b, const struct mango_call *call, const struct mango_exec_req *req, int flags,
                       struct run *r, bool *ret_unsent);
enum { RUN_OUTPUT = 1, RUN_ROOM, RUN_END, RUN_TIME, RUN_CANCEL };
/* Waits for the next thing; RUN_ROOM only where want_room is set: input may go on. until_ns 0: no limit. */
int run_wait(struct run *r, const struct mango_call *call, uint64_t until_ns, bool want_room);
/* Input: at most what there is room for; *ret_n of it went. False: the connection is lost. */
bool run_input(struct run *r, const struct mango_call *call, struct mango_sv data, uint64_t *ret_n);
/* Waits until input may go on; output stays where it is. RUN_ROOM, RUN_TIME, RUN_CANCEL; RUN_END: the connection is lost. */
int run_room(struct run *r, const struct mango_call *call, uint64_t until_ns);
void run_eof(struct run *r, const struct mango_call *call);
/* Kills everything of the command and waits for it to be dead. */
void run_kill(struct run *r, const struct mango_call *call);
/* How it ended. */
void run_result(struct run *r, struct mango_exec_result *ret);
void run_close(struct run *r, const struct mango_call *call);

#endif
