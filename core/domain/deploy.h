/* Deployments: the checks of their bodies, without I/O. What belongs to the sessions is checked as a session's body is. */
#ifndef MG_DOMAIN_DEPLOY_H
#define MG_DOMAIN_DEPLOY_H

#include "domain/cron.h"
#include "domain/session.h"

enum { MG_DEPLOY_NAME_MAX = 256, MG_DEPLOY_DESCRIPTION_MAX = 2048 /* characters */ };

struct mg_deploy {
    struct mg_sv name, description; /* ptr NULL: none */
    struct mg_sv agent_id;
    int64_t agent_version; /* 0: the latest, to be pinned */
    struct mg_sv environment_id, initial_events, resources, vault_ids, metadata;
    bool new_resources;                /* the body has some, or takes them away; then: */
    struct mg_sv tokens;               /* of its repositories, by mg_repositories_split; ptr NULL: none */
    struct mg_sv budget;               /* ptr NULL: none */
    struct mg_sv expression, timezone; /* ptr NULL: only by hand */
};
mg_rc mg_deploy_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_deploy *ret,
                             struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_deploy_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_deploy *base,
                             struct mg_deploy *ret, struct mg_err *err) MG_MUSTCHECK;
/* The body of a session that it makes. */
struct mg_sv mg_deploy_session(struct mg_arena *a, const struct mg_deploy *x);
/* The errors of the API's runs: the type of a refused session creation, and whether it stays so until somebody acts. */
const char *mg_deploy_error_type(const struct mg_err *err, bool *ret_lasting);

#endif
