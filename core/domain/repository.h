/* Repositories that a session's sandbox gets: what may be asked for. Pure. */
#ifndef MG_DOMAIN_REPOSITORY_H
#define MG_DOMAIN_REPOSITORY_H

#include "domain/check.h"

struct mg_resource_spec;

enum {
    MG_SESSION_REPOSITORIES_MAX = 16, /* of a session: each is fetched before the next tool call */
    MG_REPOSITORY_BRANCH_MAX = 244,   /* bytes: a component of a path has 255, of which git takes some for its lock */
};

/* One entry of the type github_repository. The token is a view of the arena, or of the body: both are secret memory. */
mg_rc mg_repository_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_resource_spec *ret,
                          struct mg_err *err) MG_MUSTCHECK;
/* The body of an update: {"authorization_token": "..."}. */
mg_rc mg_repository_parse_update(struct mg_arena *a, const struct mg_json *body, struct mg_sv *ret_token,
                                 struct mg_err *err) MG_MUSTCHECK;
/* An array of resources, checked before, without the tokens in it; and these, as an array with a null for each resource that has none: arena memory, secret.
 * *ret_tokens ptr NULL: there are none. */
void mg_repositories_split(struct mg_arena *a, const struct mg_json *v, struct mg_sv *ret_rest,
                           struct mg_sv *ret_tokens);
/* The array with its tokens, in secret arena memory. */
mg_rc mg_repositories_join(struct mg_arena *a, struct mg_sv rest, struct mg_sv tokens, struct mg_sv *ret,
                           struct mg_err *err) MG_MUSTCHECK;
/* What checkout asks for: both empty for the default branch. */
struct mg_checkout {
    struct mg_sv branch, commit;
};
mg_rc mg_checkout_read(struct mg_arena *a, struct mg_sv checkout, struct mg_checkout *ret,
                       struct mg_err *err) MG_MUSTCHECK;
/* Whether git takes it as a branch's name. */
bool mg_branch_name_valid(struct mg_sv name);

#endif
