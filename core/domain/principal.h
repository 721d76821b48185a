/* Who calls: the credential of a request, as its authentication found it. */
#ifndef MG_DOMAIN_PRINCIPAL_H
#define MG_DOMAIN_PRINCIPAL_H

#include "domain/id.h"

enum mg_principal_kind { MG_BY_API_KEY, MG_BY_ENVIRONMENT_KEY, MG_BY_ITEM_TOKEN };

struct mg_principal {
    enum mg_principal_kind kind;
    struct mg_id workspace, key;
    struct mg_id environment; /* of an environment key; "" else */
};

#endif
