/* Deployments: contract 2.12, semantics DE1 to DE7. */
#ifndef MG_SERVICE_DEPLOY_H
#define MG_SERVICE_DEPLOY_H

#include "domain/principal.h"
#include "store/deploy.h"

struct mg_engine;
struct mg_sandboxes;

mg_rc mg_deploys_create(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                        const struct mg_json *body, struct mg_deploy_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_deploys_update(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                        struct mg_sv id, const struct mg_json *body, struct mg_deploy_row *ret,
                        struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_deploys_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                         struct mg_deploy_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Twice is fine. Slots that passed while it was paused are not made up. */
mg_rc mg_deploys_pause(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       bool paused, struct mg_deploy_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* By hand. A session that cannot be made is a run with an error. */
mg_rc mg_deploys_run(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                     const struct mg_principal *who, struct mg_sv id, struct mg_deploy_run_row *ret,
                     struct mg_err *err) MG_MUSTCHECK;
/* Runs what is due; every node calls it once a second, on a thread with a connection. */
void mg_deploys_scan(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg);

#endif
