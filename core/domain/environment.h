/* Environments: bodies, defaults, the resolved config (api-contract 3.2). */
#ifndef MG_DOMAIN_ENVIRONMENT_H
#define MG_DOMAIN_ENVIRONMENT_H

#include "domain/check.h"

enum {
    MG_ENV_NAME_MAX = 256,
    MG_ENV_DESCRIPTION_MAX = 2048 /* characters */,
    MG_ENV_PACKAGES_MAX = 200 /* of one manager */
};

struct mg_environment {
    struct mg_sv name;        /* decoded */
    struct mg_sv description; /* decoded; ptr NULL: none */
    bool cloud;
    struct mg_sv config;   /* resolved JSON text */
    struct mg_sv metadata; /* JSON text */
    struct mg_sv scope;    /* decoded; ptr NULL: none given */
};

/* default_cloud: what an omitted config means on this server. */
mg_rc mg_environment_parse_create(struct mg_arena *a, const struct mg_json *body, bool default_cloud,
                                  struct mg_environment *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_environment_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_environment *base,
                                  struct mg_environment *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
