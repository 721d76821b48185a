/* Repositories of a session's resources: fetched by this node and put into its sandbox, once. What cannot be had is told by a session.error and with the
 * next result; the session goes on without it, and the next turn, or another token, tries again. */
#ifndef MG_RUN_REPOSITORIES_H
#define MG_RUN_REPOSITORIES_H

#include "base/arena.h"
#include "base/sv.h"

struct mg_pg;
struct mg_run;
struct mg_repository_work;

/* The sandbox is here, and a repository in it is missing that this turn has not tried to get. */
bool mg_repositories_wanted(const struct mg_run *r);
/* Gets them on a tool thread; then the wave goes on (mg_run_calls). */
void mg_run_repositories(struct mg_run *r, struct mg_pg *pg);
/* What the model is told of those that could not be had, behind content: once. */
void mg_repositories_noted(struct mg_run *r, struct mg_arena *a, struct mg_sv *content);
void mg_repositories_told(struct mg_run *r);                /* after that commit */
void mg_repository_work_free(struct mg_repository_work *w); /* NULL is fine */

#endif
