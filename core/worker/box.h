/* One box of the supervisor: launched, watched to its end, removed.
 *
 * Concurrency: one thread for each box; the kind is shared and does not change. */
#ifndef MG_WORKER_BOX_H
#define MG_WORKER_BOX_H

#include "worker/item.h"
#include "worker/remote.h"
#include "worker/supervise.h"

enum { MG_BOX_PASS_MAX = 32, MG_BOX_ARGS_MAX = 32 };

/* What all boxes of a supervisor have in common. */
struct mg_box_kind {
    struct mg_plugin *launcher;
    struct mg_net *net;
    struct mg_cancel *stop; /* the boxes are asked to end */
    char *base_url, *box_base_url, *environment_id, *image;
    char owner[MG_SUPERVISE_KEY];
    uint64_t memory_bytes, disk_bytes;
    uint32_t cpu_millis, pids, grace_ms;
    char *pass[MG_BOX_PASS_MAX];
    size_t n_pass;
    char *args[MG_BOX_ARGS_MAX]; /* of the worker */
    size_t n_args;
};

/* From the launch to the removal. The box's item is given back where its worker could not do it. Negative: it could not be launched, or failed at once. */
mg_rc mg_box_serve(const struct mg_box_kind *k, const struct mg_work_item *item) MG_MUSTCHECK;
/* A box that an earlier supervisor has launched. */
mg_rc mg_box_adopt(const struct mg_box_kind *k, const char *id) MG_MUSTCHECK;

#endif
