/* The filtering proxy as plugins see it: host->egress_open and egress_close of mango/host.h. */
#ifndef MG_EGRESS_SERVICE_H
#define MG_EGRESS_SERVICE_H

#include "egress/proxy.h"
#include "mango/plugin.h"

/* session: whose sandbox it is, for the log; may be empty. */
mango_status mg_egress_service_open(struct mg_egress *e, struct mg_sv session, const struct mango_call *call,
                                    const struct mango_egress_req *req, struct mango_egress *ret);

#endif
