/* The one row of facts about this deployment. */
#ifndef MG_STORE_DEPLOYMENT_H
#define MG_STORE_DEPLOYMENT_H

#include "domain/id.h"
#include "store/pg.h"

enum { MG_PROBE_MS = 2000 /* a readiness probe waits no longer */ };

/* Made at the first migration, never changed; part of every sandbox's ownership label. */
mg_rc mg_deployment_id(struct mg_pg *pg, struct mg_id *ret, struct mg_err *err) MG_MUSTCHECK;
/* Proves that the database takes a durable write: a demoted primary answers SELECT and refuses this. */
mg_rc mg_deployment_probe(struct mg_pg *pg, struct mg_err *err) MG_MUSTCHECK;

#endif
