/* A Messages endpoint over HTTP behind model.h. */
#include "model/backend.h"

struct mg_model *mg_model_http_open(const struct mg_model_opts *o, struct mg_err *err)
{
    (void)o;
    (void)mg_err_set(err, MG_ECONFIG, "model endpoints over HTTP are not built in yet; leave the endpoint's URL empty");
    return NULL;
}
