/* The one route table. */
#ifndef MG_API_ROUTES_H
#define MG_API_ROUTES_H

#include "http/http.h"

extern const struct mg_route mg_routes[]; /* ends with pattern NULL */

#endif
