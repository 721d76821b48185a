/* Environments: create, update, archive, delete. Reads go to store/environment.h. */
#ifndef MG_SERVICE_ENVIRONMENT_H
#define MG_SERVICE_ENVIRONMENT_H

#include "domain/principal.h"
#include "json/json.h"
#include "store/environment.h"

/* default_cloud: what an omitted config means. */
mg_rc mg_environments_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                             const struct mg_json *body, bool default_cloud, struct mg_environment_row *ret,
                             struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_environments_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                             const struct mg_json *body, struct mg_environment_row *ret,
                             struct mg_err *err) MG_MUSTCHECK;
/* Twice is fine. */
mg_rc mg_environments_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                              struct mg_environment_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_environments_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                             struct mg_err *err) MG_MUSTCHECK;

#endif
