#include "egress/service.h"

static mango_status status_of(mg_rc rc)
{
    switch (rc) {
    case MG_OK:
        return MANGO_OK;
    case MG_EINVAL:
        return MANGO_EINVALID;
    case MG_ERATE:
        return MANGO_EQUOTA;
    case MG_ETOOBIG:
        return MANGO_ETOOBIG;
    default:
        return MANGO_EINTERNAL;
    }
}

static mango_status invalid(const struct mango_call *call, const char *text)
{
    (void)mg_err_set((struct mg_err *)call->err, MG_EINVAL, "%s", text);
    return MANGO_EINVALID;
}

mango_status mg_egress_service_open(struct mg_egress *e, struct mg_sv session, const struct mango_call *call,
                                    const struct mango_egress_req *req, struct mango_egress *ret)
{
    if (req->struct_size < sizeof(*req) || ret->struct_size < sizeof(*ret) || !req->network)
        return invalid(call, "egress_open: a struct_size is too small, or there is no network");
    struct mg_buf *wanted = (struct mg_buf *)(req->listen.len > 0 ? ret->url : ret->dir);
    if (!wanted)
        return invalid(call, "egress_open: the answer has no buffer for what was asked for");
    const struct mg_egress_door_opts o = {
        .label = {req->label.ptr, req->label.len},
        .session = session,
        .network = req->network,
        .listen = {req->listen.ptr, req->listen.len},
    };
    return status_of(mg_egress_door_open(e, &o, wanted, wanted, (struct mg_err *)call->err));
}
