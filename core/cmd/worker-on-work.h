/* poll --on-work: a script for each claimed item. */
#ifndef MG_CMD_WORKER_ON_WORK_H
#define MG_CMD_WORKER_ON_WORK_H

#include "cmd/worker-common.h"

/* Polls and runs script for each item, one after the other: the ids, the secret and the base URL in its environment, the item as JSON on its
 * standard input. The item is the script's from then on; it is never stopped here. 0, or why polling cannot go on. */
int32_t mg_worker_on_work(struct mango_worker *w, const struct mango_worker_options *o, const char *script,
                          bool pass_key, struct mg_worker_signals *signals, char *err, size_t err_size);

#endif
