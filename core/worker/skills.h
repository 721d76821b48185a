/* The skills of a session's agent, as folders skills/NAME of the work folder: downloaded and unpacked before the first tool, removed at the
 * end. */
#ifndef MG_WORKER_SKILLS_H
#define MG_WORKER_SKILLS_H

#include "worker/remote.h"
#include "worker/tether.h"

struct mg_worker_skills;

/* skills: the array of the session's agent. A skill that cannot be had is logged and left out, as the official workers do; an archive that
 * breaks the rules is MG_EINVAL with the member named: no worker can ever prepare it. MG_ECANCELED: the tether ended. *ret is filled also
 * after an error. */
mg_rc mg_worker_skills_prepare(const struct mg_remote *r, const char *workdir, const struct mg_json *skills,
                               struct mg_tether *t, struct mg_worker_skills **ret, struct mg_err *err) MG_MUSTCHECK;
/* Removes the folders that were made. */
void mg_worker_skills_remove(struct mg_worker_skills *s); /* NULL is fine; frees it */

#endif
