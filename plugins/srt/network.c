#include <stdlib.h>
#include <string.h>

#include "common/runner/relay.h"
#include "srt/srt.h"

/* A sandbox has no network of its own. What an environment allows it reaches through the server's filtering proxy: the
 * folder with its socket is mounted into the sandbox, and the runner relays a port of the loopback to it. */

enum { DIR_MAX = 1024 };

static mango_status ask(const struct box *b, const struct mango_call *call, const struct mango_network *network,
                        char **ret_dir)
{
    const struct mango_host *h = b->all->host;
    if (!MANGO_HAS(h, egress_open) || !(h->features & MANGO_HOST_EGRESS))
        return fail(b->all->host, call, MANGO_EUNSUPPORTED,
                    "this server has no filtering proxy, so no sandbox has a network");
    struct mango_buf *dir = h->buf_new(h, DIR_MAX);
    const struct mango_sv label = {b->live.id + ID_LEN - LABEL_LEN, LABEL_LEN};
    const struct mango_egress_req req = {.struct_size = sizeof(req), .label = label, .network = network};
    struct mango_egress door = {.struct_size = sizeof(door), .dir = dir};
    mango_status s = dir ? h->egress_open(h, call, &req, &door) : MANGO_ERETRY;
    if (s == MANGO_OK) {
        *ret_dir = sv_dup(h->buf_view(h, dir));
        if (!*ret_dir)
            s = fail(b->all->host, call, MANGO_ERETRY, "out of memory");
    }
    h->buf_free(h, dir);
    return s;
}

mango_status network_check(const struct srt *s, const struct mango_call *call, const struct mango_network *asked)
{
    struct mango_network allowed;
    struct mango_sv *hosts = NULL;
    mango_status st = policy_network(s, call, asked, &allowed, &hosts);
    if (st == MANGO_OK && s->runtime)
        st = runtime_check_names(s, call, &allowed);
    free(hosts);
    return st;
}

mango_status door_open(struct box *b, const struct mango_call *call, const struct mango_network *network)
{
    const struct srt *srt = b->all->own;
    struct srt_box *own = b->own;
    struct mango_network allowed;
    struct mango_sv *hosts = NULL;
    char *dir = NULL;
    mango_status s = policy_network(srt, call, network, &allowed, &hosts);
    if (s == MANGO_OK)
        s = ask(b, call, &allowed, &dir);
    free(hosts);
    pthread_mutex_lock(&b->live.lock);
    if (s == MANGO_OK && !own->door) {
        own->door = dir;
        dir = NULL;
    }
    pthread_mutex_unlock(&b->live.lock);
    free(dir);
    return s;
}

void door_close(const struct boxes *all, struct mango_sv label)
{
    if (MANGO_HAS(all->host, egress_close) && (all->host->features & MANGO_HOST_EGRESS))
        all->host->egress_close(all->host, label);
}

mango_status srt_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_network *network)
{
    struct boxes *all = ctx;
    struct box *b;
    mango_status s = box_enter(all, call, id, &b);
    if (s < 0)
        return s;
    const struct srt *srt = all->own;
    const struct srt_box *own = b->own;
    if (srt->runtime) { /* the program reads its settings when it starts: the next command finds the new ones */
        s = runtime_network(b, call, network);
        if (s == MANGO_OK)
            runner_stop(b, DESTROY_WAIT_MS);
        live_leave(&b->live);
        return s;
    }
    pthread_mutex_lock(&b->live.lock);
    bool has = own && own->door;
    pthread_mutex_unlock(&b->live.lock);
    if (has)
        s = door_open(b, call, network);
    else if (network->mode != MANGO_NET_NONE)
        s = fail(all->host, call, MANGO_EUNSUPPORTED, "a sandbox that was made without a network keeps having none");
    live_leave(&b->live);
    return s;
}
