/* Skills: from uploaded files to an immutable version, and the versions that a new session holds. */
#ifndef MG_SERVICE_SKILL_H
#define MG_SERVICE_SKILL_H

#include "domain/principal.h"
#include "domain/skill.h"
#include "object/object.h"
#include "store/skill.h"

struct mg_skill_new {
    struct mg_sv skill_id;     /* of the skill that gets another version; empty: a new skill */
    struct mg_sv display_name; /* ptr NULL: the bundle's name */
    bool
        vendors; /* the operator imports a skill of the type anthropic: its id is the bundle's name; one that is there gets a version */
    struct mg_skill_file *files;
    int n;
};
/* Checks the bundle and makes a version of it. */
mg_rc mg_skills_create(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                       const struct mg_skill_new *x, struct mg_skill_version_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* with_versions: those that are left go too; else a skill that has any is refused. */
mg_rc mg_skills_delete(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                       struct mg_sv skill_id, bool with_versions, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_skills_delete_version(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a,
                               const struct mg_principal *who, struct mg_sv skill_id, struct mg_sv version,
                               struct mg_err *err) MG_MUSTCHECK;

/* Puts concrete versions into a session's agent, those of its roster too, and lists what is to be pinned. */
struct mg_skill_pins {
    struct mg_skill_version_row *rows;
    int n;
};
mg_rc mg_skills_resolve(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv *agent,
                        struct mg_skill_pins *ret, struct mg_err *err) MG_MUSTCHECK;
/* Behind the session's own rows. */
mg_rc mg_skills_pin(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, const struct mg_skill_pins *pins,
                    struct mg_err *err) MG_MUSTCHECK;

#endif
