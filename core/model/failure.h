/* What a failed answer of a model endpoint means, and how it is told (semantics RT5 to RT7, field case 80). Pure. */
#ifndef MG_MODEL_FAILURE_H
#define MG_MODEL_FAILURE_H

#include "model/model.h"

/* By status (0: none, as for an error event inside of a stream) and the endpoint's own error type and message. */
enum mg_model_fail mg_model_fail_of(int status, struct mg_sv type, struct mg_sv message);
/* text without control characters, bad UTF-8, the secret (may be empty) and what looks like a key; cut to fit at a
 * character. */
void mg_model_clean(char *out, size_t size, struct mg_sv text, struct mg_sv secret);

#endif
