#include "docker/egress.h"

#include <stdlib.h>
#include <string.h>

/* Limited networks: the container has no network; a folder with the socket of the server's filtering proxy is mounted into
 * it, and mango-box relays a port of the loopback to that socket. */

enum { DIR_MAX = 1024 };

static bool has_proxy(const struct docker *d)
{
    return MANGO_HAS(d->host, egress_open) && (d->host->features & MANGO_HOST_EGRESS);
}

void egress_declare(const struct docker *d)
{
    if ((!has_proxy(d) || !d->at.socket) && MANGO_HAS(d->host, caps_without))
        d->host->caps_without(d->host, MANGO_CAP_EGRESS_LIMITED);
}

mango_status egress_open(const struct docker *d, const struct mango_call *call, struct mango_sv label,
                         const struct mango_network *network, struct text *ret_dir)
{
    const struct mango_host *h = d->host;
    if (!has_proxy(d))
        return fail(d->host, call, MANGO_EUNSUPPORTED, "this server has no filtering proxy for limited networks");
    if (!d->at.socket)
        return fail(d->host, call, MANGO_EUNSUPPORTED,
                    "limited networks need the Docker Engine on the server's own host (DOCKER_HOST=unix://...)");
    struct mango_buf *dir = h->buf_new(h, DIR_MAX);
    const struct mango_egress_req req = {.struct_size = sizeof(req), .label = label, .network = network};
    struct mango_egress door = {.struct_size = sizeof(door), .dir = dir};
    mango_status s = dir ? h->egress_open(h, call, &req, &door) : MANGO_ERETRY;
    if (s == MANGO_OK && ret_dir)
        text_sv(ret_dir, h->buf_view(h, dir));
    h->buf_free(h, dir);
    return s;
}

void egress_close(const struct docker *d, struct mango_sv label)
{
    if (MANGO_HAS(d->host, egress_close) && (d->host->features & MANGO_HOST_EGRESS))
        d->host->egress_close(d->host, label);
}

mango_status docker_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                                const struct mango_network *net)
{
    struct docker *d = ctx;
    struct box *b;
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    struct mango_sv label = {b->live.id + NAME_LEN - LABEL_LEN, LABEL_LEN};
    if (b->limited && net->mode != MANGO_NET_OPEN)
        s = egress_open(d, call, label, net, NULL);
    else
        s = fail(d->host, call, MANGO_EUNSUPPORTED,
                 "a sandbox that was made with %s network keeps it; only the list of a limited one can change",
                 b->limited ? "a limited" : "an open or no");
    live_leave(&b->live);
    return s;
}
