/* The door of core/model: picks what answers and hands calls on. */
#include "model/backend.h"

mg_rc mg_model_open(const struct mg_model_opts *o, struct mg_model **ret, struct mg_err *err)
{
    bool offline = !o->base_url || o->base_url[0] == '\0';
    struct mg_model *m = offline ? mg_model_offline_open() : mg_model_http_open(o, err);
    if (!m)
        return err && err->rc < 0 ? err->rc : MG_ECONFIG;
    *ret = m;
    return MG_OK;
}

void mg_model_close(struct mg_model *m)
{
    if (m)
        m->ops->close(m);
}

bool mg_model_is_offline(const struct mg_model *m)
{
    return m->ops->offline;
}

uint64_t mg_model_start(struct mg_model *m, const struct mg_model_call_opts *o)
{
    return m->ops->start(m, o);
}

void mg_model_cancel(struct mg_model *m, uint64_t call)
{
    m->ops->cancel(m, call);
}
