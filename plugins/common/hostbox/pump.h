/* Waiting for a running command: its output, its end, the time and the token. Used by exec and proc. */
#ifndef MANGO_COMMON_PUMP_H
#define MANGO_COMMON_PUMP_H

#include "common/chunk.h"
#include "common/hostbox/hostbox.h"
#include "common/runner/wire.h"

struct pump {
    const struct boxes *all;
    struct running run;
    struct chunk out, err;
    struct wire_event end; /* kind 0 until FAILED, ENDED or KILLED came */
    bool started;          /* the reaper has begun */
    bool lost;             /* its socket ended without a word */
};

enum { PUMP_OUTPUT = 1, PUMP_END, PUMP_TIME, PUMP_CANCEL };
/* Waits for the next thing. until_ns 0: no limit. */
int pump_wait(struct pump *p, const struct mango_call *call, uint64_t until_ns);
/* Takes what is in the pipes now; nothing that is written later. */
void pump_drain(struct pump *p);
/* Kills everything of the command and waits for it to be dead. */
void pump_kill(struct pump *p);
/* How it ended, from end and lost. */
void pump_result(const struct pump *p, struct mango_exec_result *ret);

#endif
