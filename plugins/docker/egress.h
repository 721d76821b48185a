/* Limited networks by way of the server's filtering proxy. */
#ifndef MANGO_DOCKER_EGRESS_H
#define MANGO_DOCKER_EGRESS_H

#include "common/runner/relay.h"
#include "docker/docker.h"

/* In init: with an Engine on another host, or without that proxy, no network can be limited, and sessions that want one are refused. */
void egress_declare(const struct docker *d);

/* Opens the door of label, or gives it another list. ret_dir: the folder of this host to mount; NULL: not wanted. */
mango_status egress_open(const struct docker *d, const struct mango_call *call, struct mango_sv label,
                         const struct mango_network *network, struct text *ret_dir);
void egress_close(const struct docker *d, struct mango_sv label);
mango_status docker_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                                const struct mango_network *net);

#endif
