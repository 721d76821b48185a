/* From a user's words to the tool calls of the offline model. Pure; used by offline.c alone. */
#ifndef MG_MODEL_OFFLINE_PLAN_H
#define MG_MODEL_OFFLINE_PLAN_H

#include "base/arena.h"
#include "json/json.h"

struct mg_offline_step {
    struct mg_sv tool;  /* name */
    struct mg_sv input; /* raw JSON object */
    struct mg_sv say;   /* the sentence before the call */
    struct mg_sv label; /* how the last answer names it */
};

/* tools: the request's tool array or NULL. Only tools that it names are used. Returns the number of steps. */
int mg_offline_plan(struct mg_arena *a, struct mg_sv text, const struct mg_json *tools, struct mg_offline_step *steps,
                    int max);

#endif
