/* The rules that the real endpoint checks on a request, with its words. */
#ifndef TESTS_SUPPORT_ENDPOINT_CHECK_H
#define TESTS_SUPPORT_ENDPOINT_CHECK_H

#include "json/json.h"

/* NULL when the request may be answered, else the error message (arena memory). fast: the beta header of the fast
 * mode came. */
const char *endpoint_check(struct mg_arena *a, const struct mg_json *root, bool fast);

#endif
