/* How much a model can take, and how much of it a context may fill. Pure. */
#ifndef MG_MODEL_WINDOW_H
#define MG_MODEL_WINDOW_H

#include "base/sv.h"

enum {
    MG_WINDOW_UNKNOWN = 200000, /* tokens: of a model that the table does not name */
    MG_WINDOW_MIN = 8192,       /* tokens: below, no turn with tools would fit */
};

/* Tokens of the model's window by the table of names; the longest prefix counts. */
int64_t mg_model_window(struct mg_sv model);

struct mg_window {
    int64_t tokens;    /* of the window */
    int64_t input_max; /* what is left of it once an answer of the largest size has its room */
    int64_t trigger;   /* a request estimated above is compacted first */
};
/* max_tokens: of an answer. */
struct mg_window mg_window_of(int64_t tokens, int64_t max_tokens);

#endif
