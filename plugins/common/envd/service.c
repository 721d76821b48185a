#include <stdio.h>
#include <string.h>

#include "common/envd/connect.h"
#include "common/envd/envd.h"

/* What the service offers beyond the lifecycle. */

enum { SYNC_MS = 15000 };

mango_status envd_health(void *ctx, const struct mango_call *call)
{
    return control_health(ctx, call);
}

static void set_paused(struct box *b, bool paused)
{
    pthread_mutex_lock(&b->live.lock);
    b->paused = paused;
    pthread_mutex_unlock(&b->live.lock);
}

static void sync_args(void *ctx, struct rbox_args *a, const struct rbox_frames *f)
{
    struct box *b = ctx;
    (void)f;
    rbox_argz(a, "sync");
    rbox_argz(a, b->root);
}

/* What is written must be on the disk: services have lost files of a paused sandbox. A
 * box_leave after MANGO_OK. */
static mango_status enter_synced(struct envd *e, const struct mango_call *call, struct mango_sv id, struct box **ret)
{
    mango_status s = box_enter(e, call, id, ret);
    if (s < 0)
        return s;
    struct mango_call own = remote_within(e->host, call, SYNC_MS);
    struct start st = {.args = sync_args, .ctx = *ret, .what = "write all files to the disk"};
    s = envd_start(*ret, &own, &st);
    if (s < 0)
        box_leave(*ret);
    return s;
}

mango_status envd_pause(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct envd *e = ctx;
    struct box *b;
    mango_status s = enter_synced(e, call, id, &b);
    if (s < 0)
        return s;
    s = control_pause(e, call, b->live.id);
    if (s == MANGO_OK)
        set_paused(b, true);
    box_leave(b);
    return s;
}

mango_status envd_resume(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct envd *e = ctx;
    struct box *b;
    struct sandbox now;
    mango_status s = box_enter(e, call, id, &b);
    if (s < 0)
        return s;
    s = control_connect(e, call, b->live.id, e->idle_s, &now);
    if (s == MANGO_OK) {
        box_take_tokens(b, &now, e->idle_s);
        set_paused(b, false);
    }
    box_leave(b);
    return s;
}

mango_status envd_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_buf *ret)
{
    struct envd *e = ctx;
    struct box *b;
    mango_status s = enter_synced(e, call, id, &b);
    if (s < 0)
        return s;
    s = control_snapshot(e, call, b->live.id, ret);
    box_leave(b);
    return s;
}

mango_status envd_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot)
{
    return control_snapshot_delete(ctx, call, snapshot);
}

mango_status envd_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                       const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct mango_sandbox_spec own = *spec;
    own.image = snapshot;
    return envd_create(ctx, call, &own, ret);
}

mango_status envd_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_network *net)
{
    struct envd *e = ctx;
    struct box *b;
    mango_status s = box_enter(e, call, id, &b);
    if (s < 0)
        return s;
    s = control_network(e, call, b->live.id, net);
    box_leave(b);
    return s;
}

/* Where it counts from the last request to the sandbox, any request begins it anew at its length, and a connect gives the length. */
static mango_status move_timer(struct box *b, const struct mango_call *call, uint64_t seconds)
{
    struct sandbox now;
    if (b->e->flavor->v2)
        return control_timer(b->e, call, b->live.id, seconds);
    return seconds > b->e->idle_s ? control_connect(b->e, call, b->live.id, seconds, &now) : data_ping(b, call);
}

mango_status envd_keep_alive(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds)
{
    struct envd *e = ctx;
    struct box *b;
    mango_status s = box_enter(e, call, id, &b);
    if (s < 0)
        return s;
    uint64_t now = now_ns(e->host);
    pthread_mutex_lock(&b->live.lock);
    uint64_t left = b->until_ns > now ? (b->until_ns - now) / UINT64_C(1000000000) : 0;
    pthread_mutex_unlock(&b->live.lock);
    if (seconds > left || !e->flavor->v2) {
        s = move_timer(b, call, seconds);
        pthread_mutex_lock(&b->live.lock);
        if (s == MANGO_OK)
            b->until_ns = now + seconds * UINT64_C(1000000000);
        pthread_mutex_unlock(&b->live.lock);
    }
    box_leave(b);
    return s;
}

const struct mango_sandbox_ops envd_ops = {
    .struct_size = sizeof(envd_ops),
    .create = envd_create,
    .attach = envd_attach,
    .exec = envd_exec,
    .read = envd_read,
    .write = envd_write,
    .stat = envd_stat,
    .destroy = envd_destroy,
    .health = envd_health,
    .detach = envd_detach,
    .list_owned = envd_list_owned,
    .pause = envd_pause,
    .resume = envd_resume,
    .snapshot = envd_snapshot,
    .snapshot_delete = envd_snapshot_delete,
    .fork = envd_fork,
    .set_network = envd_set_network,
    .keep_alive = envd_keep_alive,
};
