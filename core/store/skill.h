/* Skills, their versions, and the versions that sessions hold. */
#ifndef MG_STORE_SKILL_H
#define MG_STORE_SKILL_H

#include "domain/id.h"
#include "store/list.h"
#include "store/object.h"

struct mg_skill_row {
    struct mg_sv id, display_name;
    int64_t latest; /* version; 0: it has none left */
    int64_t created_us, updated_us;
};
struct mg_skill_version_row {
    struct mg_sv skill_id, name, description, directory, object_key;
    int64_t version, size, created_us;
};

struct mg_skill_version_new {
    struct mg_sv name, description, directory;
    int64_t size;
};

/* One that is there already stays as it is. */
mg_rc mg_skill_insert(struct mg_txn *t, struct mg_sv id, struct mg_sv workspace, struct mg_sv display_name,
                      struct mg_err *err) MG_MUSTCHECK;
/* Locks the skill, so that versions grow. MG_ENOTFOUND. */
mg_rc mg_skill_lock(struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_skill_version_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv skill,
                              const struct mg_skill_version_new *v, const struct mg_object_key *key,
                              struct mg_skill_version_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. */
mg_rc mg_skill_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                   struct mg_skill_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* version: digits, or "latest". */
mg_rc mg_skill_version_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv skill,
                           struct mg_sv version, struct mg_skill_version_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* source: custom, anthropic, or empty for both. */
mg_rc mg_skill_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv source,
                    struct mg_res **ret_res, struct mg_skill_row **ret, struct mg_list_page *ret_page,
                    struct mg_err *err) MG_MUSTCHECK;
/* Newest first; the cursor's pos is a version. */
mg_rc mg_skill_version_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv skill,
                            struct mg_res **ret_res, struct mg_skill_version_row **ret, struct mg_list_page *ret_page,
                            struct mg_err *err) MG_MUSTCHECK;
/* The skill is locked. Versions that no session holds go, their objects become guards; version 0: all. MG_ECONFLICT: a session holds one. */
mg_rc mg_skill_versions_delete(struct mg_arena *a, struct mg_txn *t, struct mg_sv skill, int64_t version,
                               struct mg_err *err) MG_MUSTCHECK;
/* MG_ECONFLICT: it has versions. */
mg_rc mg_skill_empty(struct mg_txn *t, struct mg_sv skill, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_skill_delete(struct mg_txn *t, struct mg_sv skill, struct mg_err *err) MG_MUSTCHECK;

/* ---- pins ---- */

/* The version that a session is to have, kept from deletion until the transaction ends. MG_ENOTFOUND. */
mg_rc mg_skill_resolve(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv skill,
                       struct mg_sv version, struct mg_skill_version_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_skill_pin(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv skill, int64_t version,
                   struct mg_err *err) MG_MUSTCHECK;
/* The session's skills, by name. Arena memory. */
mg_rc mg_skills_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_skill_version_row **ret,
                   int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Whether the session of a live claim of this work item (or, work empty, any of this environment) holds the skill. */
mg_rc mg_skill_claimed(struct mg_pg *pg, struct mg_sv skill, struct mg_sv work, struct mg_sv environment, bool *ret,
                       struct mg_err *err) MG_MUSTCHECK;
/* The first two of these paths that are one path but for case and Unicode's normal forms; n: none. */
mg_rc mg_paths_twins(struct mg_arena *a, struct mg_pg *pg, const struct mg_sv *paths, size_t n, struct mg_sv *ret_one,
                     struct mg_sv *ret_other, struct mg_err *err) MG_MUSTCHECK;

#endif
