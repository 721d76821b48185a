/* What stands behind model.h: an endpoint over HTTP, or the offline model. Used inside of core/model alone. */
#ifndef MG_MODEL_BACKEND_H
#define MG_MODEL_BACKEND_H

#include "base/list.h"
#include "model/message.h"
#include "model/model.h"
#include "net/sse-parse.h"

struct mg_model_ops {
    void (*close)(struct mg_model *m);
    uint64_t (*start)(struct mg_model *m, const struct mg_model_call_opts *o);
    void (*cancel)(struct mg_model *m, uint64_t call);
    bool offline;
};

struct mg_model {
    const struct mg_model_ops *ops;
};

struct mg_model *mg_model_http_open(const struct mg_model_opts *o, struct mg_err *err);
struct mg_model *mg_model_offline_open(void);

#endif
