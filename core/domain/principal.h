/* Who calls: the credential of a request, as its authentication found it. */
#ifndef MG_DOMAIN_PRINCIPAL_H
#define MG_DOMAIN_PRINCIPAL_H

#include <stdbool.h>

#include "domain/id.h"

enum mg_principal_kind { MG_BY_API_KEY, MG_BY_ENVIRONMENT_KEY, MG_BY_ITEM_TOKEN };

struct mg_principal {
    enum mg_principal_kind kind;
    struct mg_id workspace;
    struct mg_id key;           /* what a revocation names: the key, or the work item of a token */
    struct mg_id environment;   /* of an environment key or a token; "" else */
    struct mg_id work, session; /* of a token */
    bool live;                  /* of a token: its claim holds; without it, it may only ask after its own item */
};

#endif
