#include "store/skill.h"

#include <inttypes.h>

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

#define SKILL_COLUMNS                                                                                           \
    "s.id, s.display_name, coalesce((SELECT max(v.version) FROM skill_versions v WHERE v.skill_id = s.id), 0)," \
    " mg_us(s.created_at), mg_us(s.updated_at)"
#define VERSION_COLUMNS \
    "v.skill_id, v.version, v.name, v.description, v.directory, v.object_key, v.size_bytes, mg_us(v.created_at)"

static struct mg_skill_row skill_from_row(const struct mg_res *r, int i)
{
    return (struct mg_skill_row){
        .id = mg_res_sv(r, i, 0),
        .display_name = mg_res_sv(r, i, 1),
        .latest = mg_res_int(r, i, 2),
        .created_us = mg_res_time(r, i, 3),
        .updated_us = mg_res_time(r, i, 4),
    };
}

static struct mg_skill_version_row version_from_row(const struct mg_res *r, int i)
{
    return (struct mg_skill_version_row){
        .skill_id = mg_res_sv(r, i, 0),
        .version = mg_res_int(r, i, 1),
        .name = mg_res_sv(r, i, 2),
        .description = mg_res_sv(r, i, 3),
        .directory = mg_res_sv(r, i, 4),
        .object_key = mg_res_sv(r, i, 5),
        .size = mg_res_int(r, i, 6),
        .created_us = mg_res_time(r, i, 7),
    };
}

static struct mg_skill_version_row kept(struct mg_arena *a, struct mg_skill_version_row x)
{
    struct mg_sv *const views[] = {&x.skill_id, &x.name, &x.description, &x.directory, &x.object_key};
    mg_row_keep(a, views, sizeof(views) / sizeof(views[0]));
    return x;
}

static mg_rc no_skill(struct mg_sv id, struct mg_err *err)
{
    return mg_err_set(err, MG_ENOTFOUND, "skill '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
}

static mg_rc no_version(struct mg_sv skill, struct mg_sv version, struct mg_err *err)
{
    return mg_err_set(err, MG_ENOTFOUND, "skill '%.*s' has no version '%.*s'", MG_SV_ARG(mg_shown_id(skill)),
                      MG_SV_ARG(mg_shown_id(version)));
}

static mg_rc take_version(struct mg_arena *a, const struct mg_res *r, struct mg_sv skill, struct mg_sv version,
                          struct mg_skill_version_row *ret, struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return no_version(skill, version, err);
    *ret = kept(a, version_from_row(r, 0));
    return MG_OK;
}

/* ---- writing ---- */

static const struct mg_stmt SQL_INSERT = {
    "skill_insert",
    "INSERT INTO skills (id, workspace_id, display_name) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING",
};

mg_rc mg_skill_insert(struct mg_txn *t, struct mg_sv id, struct mg_sv workspace, struct mg_sv display_name,
                      struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_INSERT, (const struct mg_sv[]){id, workspace, display_name}, 3, -1, err);
}

static const struct mg_stmt SQL_LOCK = {"skill_lock",
                                        "SELECT 1 FROM skills WHERE workspace_id = $1 AND id = $2 FOR UPDATE"};

mg_rc mg_skill_lock(struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc >= 0 && mg_res_rows(r) == 0 ? no_skill(id, err) : rc;
}

static const struct mg_stmt SQL_TOUCH = {"skill_touch", "UPDATE skills SET updated_at = now() WHERE id = $1"};
static const struct mg_stmt SQL_VERSION_INSERT = {
    "skill_version_insert",
    "INSERT INTO skill_versions AS v (skill_id, version, name, description, directory, object_key, size_bytes)"
    " SELECT $1, greatest(mg_us(clock_timestamp()), coalesce((SELECT max(version) + 1 FROM skill_versions WHERE "
    "skill_id = $1), 0)),"
    " $2, $3, $4, $5, $6::bigint RETURNING " VERSION_COLUMNS,
};

mg_rc mg_skill_version_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv skill,
                              const struct mg_skill_version_new *v, const struct mg_object_key *key,
                              struct mg_skill_version_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {
        skill, v->name, v->description, v->directory, mg_object_key_sv(key), mg_p_int(a, v->size)};
    mg_rc rc = mg_txn_queue(t, &SQL_TOUCH, &skill, 1, 1, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_VERSION_INSERT, p, 6, &r, err);
    if (rc >= 0)
        *ret = kept(a, version_from_row(r, 0));
    return rc;
}

/* ---- reading ---- */

static const struct mg_stmt SQL_GET = {"skill_get", "SELECT " SKILL_COLUMNS
                                                    " FROM skills s WHERE s.workspace_id = $1 AND s.id = $2"};

mg_rc mg_skill_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                   struct mg_skill_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return no_skill(id, err);
    *ret = skill_from_row(r, 0);
    ret->id = mg_arena_sv(a, ret->id);
    ret->display_name = mg_arena_sv(a, ret->display_name);
    return MG_OK;
}

#define ONE_VERSION                                                                       \
    "SELECT " VERSION_COLUMNS " FROM skills s JOIN skill_versions v ON v.skill_id = s.id" \
    " WHERE s.workspace_id = $1 AND s.id = $2 AND v.version = coalesce($3::bigint,"       \
    " (SELECT max(version) FROM skill_versions WHERE skill_id = $2))"
static const struct mg_stmt SQL_VERSION_GET = {"skill_version_get", ONE_VERSION};
static const struct mg_stmt SQL_RESOLVE = {"skill_resolve", ONE_VERSION " FOR SHARE OF v"};

/* A version's text as a parameter: NULL for "latest". False when it can be no version. */
static bool version_param(struct mg_sv version, struct mg_sv *ret)
{
    int64_t n;
    *ret = mg_sv_eqz(version, "latest") ? mg_p_null() : version;
    return !ret->ptr || mg_sv_to_i64(version, &n);
}

mg_rc mg_skill_version_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv skill,
                           struct mg_sv version, struct mg_skill_version_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv v;
    if (!version_param(version, &v))
        return no_version(skill, version, err);
    mg_rc rc = mg_pg_exec(pg, &SQL_VERSION_GET, (const struct mg_sv[]){workspace, skill, v}, 3, &r, err);
    return rc < 0 ? rc : take_version(a, r, skill, version, ret, err);
}

static const struct mg_stmt SQL_LIST = {
    "skill_list",
    "SELECT " SKILL_COLUMNS " FROM skills s WHERE s.workspace_id = $1 AND s.id < $2"
    " AND ($4 = '' OR ($4 = 'custom') = starts_with(s.id, 'skill_')) ORDER BY s.id DESC LIMIT $3::int",
};

mg_rc mg_skill_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv source,
                    struct mg_res **ret_res, struct mg_skill_row **ret, struct mg_list_page *ret_page,
                    struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {q->workspace, q->cursor.given ? q->cursor.id : MG_SV("~"), mg_p_int(a, q->limit + 1),
                              source};
    mg_rc rc = mg_pg_exec(pg, &SQL_LIST, p, 4, &r, err);
    if (rc < 0)
        return rc;
    *ret_page = mg_list_page_of(q, mg_res_rows(r));
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        (*ret)[i] = skill_from_row(r, i);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_VERSION_LIST = {
    "skill_version_list",
    "SELECT " VERSION_COLUMNS " FROM skill_versions v WHERE v.skill_id = $1 AND v.version < $2::bigint"
    " ORDER BY v.version DESC LIMIT $3::int",
};

mg_rc mg_skill_version_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv skill,
                            struct mg_res **ret_res, struct mg_skill_version_row **ret, struct mg_list_page *ret_page,
                            struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {skill, mg_p_int(a, q->cursor.given ? q->cursor.pos : INT64_MAX),
                              mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_pg_exec(pg, &SQL_VERSION_LIST, p, 3, &r, err);
    if (rc < 0)
        return rc;
    *ret_page = mg_list_page_of(q, mg_res_rows(r));
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        (*ret)[i] = version_from_row(r, i);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

/* ---- deleting ---- */

static const struct mg_stmt SQL_HELD = {
    "skill_held",
    "SELECT p.session_id FROM session_skills p JOIN session_state st ON st.session_id = p.session_id"
    " WHERE p.skill_id = $1 AND ($2::bigint = 0 OR p.version = $2::bigint) AND st.deleting_at IS NULL LIMIT 1",
};
static const struct mg_stmt SQL_UNPIN = {
    "skill_unpin", "DELETE FROM session_skills WHERE skill_id = $1 AND ($2::bigint = 0 OR version = $2::bigint)"};
static const struct mg_stmt SQL_VERSIONS_LOCK = {"skill_versions_lock",
                                                 "SELECT object_key FROM skill_versions WHERE skill_id = $1 AND "
                                                 "($2::bigint = 0 OR version = $2::bigint) FOR UPDATE"};
static const struct mg_stmt SQL_VERSIONS_DELETE = {
    "skill_versions_delete",
    "DELETE FROM skill_versions WHERE skill_id = $1 AND ($2::bigint = 0 OR version = $2::bigint)"};

mg_rc mg_skill_versions_delete(struct mg_arena *a, struct mg_txn *t, struct mg_sv skill, int64_t version,
                               struct mg_err *err)
{
    mg_auto(res) struct mg_res *locked = NULL, *held = NULL;
    const struct mg_sv p[] = {skill, mg_p_int(a, version)};
    mg_rc rc = mg_txn_query(t, &SQL_VERSIONS_LOCK, p, 2, &locked, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_HELD, p, 2, &held, err);
    if (rc < 0)
        return rc;
    if (version && mg_res_rows(locked) == 0)
        return no_version(skill, p[1], err);
    if (mg_res_rows(held))
        return mg_err_set(err, MG_ECONFLICT,
                          "skill '%.*s': session '%.*s' holds this version; delete the session first",
                          MG_SV_ARG(mg_shown_id(skill)), MG_SV_ARG(mg_res_sv(held, 0, 0)));
    rc = mg_txn_queue(t, &SQL_UNPIN, p, 2, -1, err);
    if (rc >= 0)
        rc = mg_txn_queue(t, &SQL_VERSIONS_DELETE, p, 2, -1, err);
    for (int i = 0; i < mg_res_rows(locked) && rc >= 0; i++)
        rc = mg_object_release(t, mg_res_sv(locked, i, 0), err);
    return rc;
}

static const struct mg_stmt SQL_COUNT = {"skill_count", "SELECT count(*) FROM skill_versions WHERE skill_id = $1"};

mg_rc mg_skill_empty(struct mg_txn *t, struct mg_sv skill, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_COUNT, &skill, 1, &r, err);
    if (rc < 0 || mg_res_int(r, 0, 0) == 0)
        return rc;
    return mg_err_set(err, MG_ECONFLICT, "the skill has %lld versions; delete them first",
                      (long long)mg_res_int(r, 0, 0));
}

static const struct mg_stmt SQL_DELETE = {"skill_delete", "DELETE FROM skills WHERE id = $1"};

mg_rc mg_skill_delete(struct mg_txn *t, struct mg_sv skill, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_DELETE, &skill, 1, 1, err);
}

/* ---- pins ---- */

mg_rc mg_skill_resolve(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv skill,
                       struct mg_sv version, struct mg_skill_version_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv v;
    if (!version_param(version, &v))
        return no_version(skill, version, err);
    mg_rc rc = mg_txn_query(t, &SQL_RESOLVE, (const struct mg_sv[]){workspace, skill, v}, 3, &r, err);
    return rc < 0 ? rc : take_version(a, r, skill, version, ret, err);
}

static const struct mg_stmt SQL_PIN = {
    "skill_pin",
    "INSERT INTO session_skills (session_id, skill_id, version) VALUES ($1, $2, $3::bigint) ON CONFLICT DO NOTHING"};

mg_rc mg_skill_pin(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv skill, int64_t version,
                   struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_PIN, (const struct mg_sv[]){session, skill, mg_p_int(a, version)}, 3, -1, err);
}

static const struct mg_stmt SQL_OF = {
    "skills_of",
    "SELECT " VERSION_COLUMNS
    " FROM session_skills p JOIN skill_versions v ON v.skill_id = p.skill_id AND v.version = p.version"
    " WHERE p.session_id = $1 ORDER BY v.name COLLATE \"C\", v.version",
};

mg_rc mg_skills_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_skill_version_row **ret,
                   int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_OF, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = kept(a, version_from_row(r, i));
    return MG_OK;
}

static const struct mg_stmt SQL_CLAIMED = {
    "skill_claimed",
    "SELECT EXISTS (SELECT 1 FROM session_skills p JOIN work w ON w.session_id = p.session_id WHERE p.skill_id = $1"
    " AND w.environment_id = $3 AND ($2 = '' OR w.id = $2) AND w.state IN ('starting', 'active', 'stopping'))",
};

mg_rc mg_skill_claimed(struct mg_pg *pg, struct mg_sv skill, struct mg_sv work, struct mg_sv environment, bool *ret,
                       struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_CLAIMED, (const struct mg_sv[]){skill, work, environment}, 3, &r, err);
    *ret = rc >= 0 && mg_res_bool(r, 0, 0);
    return rc;
}

static const struct mg_stmt SQL_TWINS = {
    "paths_twins",
    "SELECT min(p), max(p) FROM unnest($1::text[]) p GROUP BY normalize(lower(upper(normalize(p, NFKC) COLLATE "
    "\"und-x-icu\")"
    " COLLATE \"und-x-icu\"), NFKC) HAVING count(*) > 1 LIMIT 1",
};

mg_rc mg_paths_twins(struct mg_arena *a, struct mg_pg *pg, const struct mg_sv *paths, size_t n, struct mg_sv *ret_one,
                     struct mg_sv *ret_other, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_p_array(a, paths, n)};
    mg_rc rc = mg_pg_exec(pg, &SQL_TWINS, p, 1, &r, err);
    *ret_one = *ret_other = mg_sv_n(NULL, 0);
    if (rc >= 0 && mg_res_rows(r)) {
        *ret_one = mg_arena_sv(a, mg_res_sv(r, 0, 0));
        *ret_other = mg_arena_sv(a, mg_res_sv(r, 0, 1));
    }
    return rc;
}
