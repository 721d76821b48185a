#include "service/skill.h"

#include <inttypes.h>

#include "base/hook.h"
#include "base/mem.h"
#include "domain/check.h"
#include "domain/zip.h"

enum { ARCHIVE_MAX = MG_SKILL_BYTES_MAX + 4 * 1024 * 1024 /* bytes: files, heads and paths */ };
#define SKILLS_BYTES_MAX (500LL * 1000 * 1000) /* of a session's skills together */

/* ---- versions ---- */

static mg_rc check_twins(struct mg_pg *pg, struct mg_arena *a, const struct mg_skill_bundle *b, struct mg_err *err)
{
    struct mg_sv *paths = mg_arena_alloc(a, sizeof(*paths) * (size_t)b->n), one, other;
    for (int i = 0; i < b->n; i++)
        paths[i] = b->files[i].path;
    mg_rc rc = mg_paths_twins(a, pg, paths, (size_t)b->n, &one, &other, err);
    if (rc < 0 || !one.ptr)
        return rc;
    return mg_err_set(err, MG_EINVAL,
                      "files: '%.*s' and '%.*s' are one file where case or Unicode's forms of a letter do not count",
                      (int)(one.len < 90 ? one.len : 90), one.ptr, (int)(other.len < 90 ? other.len : 90), other.ptr);
}

/* The skill that gets the version is there and locked. */
static mg_rc take_skill(struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, const struct mg_skill_new *x,
                        const struct mg_skill_bundle *b, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    if (x->skill_id.len == 0)
        rc = mg_skill_insert(t, id, workspace, x->display_name.ptr ? x->display_name : b->name, err);
    return rc >= 0 ? mg_skill_lock(t, workspace, id, err) : rc;
}

static mg_rc commit(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_upload *u,
                    const struct mg_skill_new *x, const struct mg_skill_bundle *b, struct mg_skill_version_row *ret,
                    struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    const struct mg_id fresh = mg_id_new("skill");
    const struct mg_sv made = x->vendors ? b->name : mg_id_sv(&fresh);
    const struct mg_sv workspace = mg_id_sv(&who->workspace), id = x->skill_id.len ? x->skill_id : made;
    const struct mg_skill_version_new v = {
        .name = b->name, .description = b->description, .directory = b->directory, .size = mg_upload_size(u)};
    mg_rc rc = take_skill(&t, workspace, id, x, b, err);
    if (rc >= 0)
        rc = mg_upload_complete(u, a, &t, err);
    if (rc >= 0)
        rc = mg_skill_version_insert(a, &t, id, &v, mg_upload_key(u), ret, err);
    if (rc < 0)
        return rc;
    mg_hook("skill.created.before");
    rc = mg_txn_commit(&t, err);
    mg_hook("skill.created.after");
    return rc;
}

mg_rc mg_skills_create(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                       const struct mg_skill_new *x, struct mg_skill_version_row *ret, struct mg_err *err)
{
    struct mg_skill_bundle b;
    struct mg_upload *u = NULL;
    mg_auto(buf) struct mg_buf archive = MG_BUF_INIT(ARCHIVE_MAX);
    mg_rc rc = mg_skill_check(a, x->files, x->n, &b, err);
    if (rc >= 0)
        rc = check_twins(pg, a, &b, err);
    if (rc >= 0 && mg_zip_write(b.files, b.n, &archive) < 0)
        rc = mg_err_set(err, MG_EINVAL, "files: the bundle is too large");
    if (rc >= 0)
        rc = mg_upload_begin(o, pg, mg_id_sv(&who->workspace), "skill", &u, err);
    if (rc < 0)
        return rc;
    rc = mg_upload_write(u, mg_buf_view(&archive), err);
    if (rc >= 0)
        rc = mg_upload_seal(u, err);
    if (rc >= 0)
        rc = commit(pg, a, who, u, x, &b, ret, err);
    if (rc == MG_EFENCED)
        rc = mg_err_set(err, MG_EUNAVAIL, "files: the upload took too long to be finished; send it again");
    mg_upload_end(u, pg, rc, err);
    return rc;
}

mg_rc mg_skills_delete(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                       struct mg_sv skill_id, bool with_versions, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_skill_lock(&t, mg_id_sv(&who->workspace), skill_id, err);
    if (rc >= 0)
        rc = with_versions ? mg_skill_versions_delete(a, &t, skill_id, 0, err) : mg_skill_empty(&t, skill_id, err);
    if (rc >= 0)
        rc = mg_skill_delete(&t, skill_id, err);
    if (rc >= 0)
        rc = mg_txn_commit(&t, err);
    if (rc >= 0)
        mg_objects_wake(o);
    return rc;
}

mg_rc mg_skills_delete_version(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a,
                               const struct mg_principal *who, struct mg_sv skill_id, struct mg_sv version,
                               struct mg_err *err)
{
    int64_t n = 0;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    if (!mg_sv_to_i64(version, &n) || n <= 0)
        return mg_err_set(err, MG_ENOTFOUND, "the skill has no version of that name");
    mg_rc rc = mg_skill_lock(&t, mg_id_sv(&who->workspace), skill_id, err);
    if (rc >= 0)
        rc = mg_skill_versions_delete(a, &t, skill_id, n, err);
    if (rc >= 0)
        rc = mg_txn_commit(&t, err);
    if (rc >= 0)
        mg_objects_wake(o);
    return rc;
}

/* ---- a session's ---- */

struct edit {
    struct mg_sv old; /* a span of the agent's text */
    struct mg_sv text;
};

struct resolving {
    struct mg_arena *a;
    struct mg_txn *t;
    struct mg_sv workspace;
    struct edit edits[MG_SKILLS_MAX];
    int n;
    struct mg_skill_pins *pins;
};

static mg_rc keep_pin(struct resolving *r, const struct mg_skill_version_row *v, struct mg_err *err)
{
    int64_t bytes = v->size;
    for (int i = 0; i < r->pins->n; i++) {
        const struct mg_skill_version_row *x = &r->pins->rows[i];
        if (mg_sv_eq(x->skill_id, v->skill_id) && x->version == v->version)
            return MG_OK;
        if (mg_sv_eq(x->name, v->name))
            return mg_err_set(err, MG_EINVAL, "agent.skills: two skills, or two versions of one, have the name '%.*s'",
                              MG_SV_ARG(v->name));
        bytes += x->size;
    }
    if (bytes > SKILLS_BYTES_MAX)
        return mg_err_set(err, MG_EINVAL, "agent.skills: the skills of a session may have at most %lld bytes together",
                          SKILLS_BYTES_MAX);
    r->pins->rows[r->pins->n++] = *v;
    return MG_OK;
}

static mg_rc resolve_one(struct resolving *r, const struct mg_json *e, struct mg_err *err)
{
    struct mg_skill_version_row v;
    struct mg_sv skill = mg_json_get_str(r->a, e, "skill_id");
    if (r->n == MG_SKILLS_MAX)
        return mg_err_set(err, MG_EINVAL, "agent.skills: a session may have at most %d skills", MG_SKILLS_MAX);
    mg_rc rc = mg_skill_resolve(r->a, r->t, r->workspace, skill, mg_json_get_str(r->a, e, "version"), &v, err);
    if (rc == MG_ENOTFOUND && mg_skill_is_vendors(skill))
        return mg_err_set(err, rc,
                          "agent.skills: the vendor's skill '%.*s', or that version of it, is not on this server; "
                          "import it with POST /v1/skills "
                          "and the field source=anthropic",
                          MG_SV_ARG(mg_shown_id(skill)));
    if (rc < 0)
        return mg_err_wrap(err, rc, "agent.skills");
    r->edits[r->n++] = (struct edit){
        .old = e->raw,
        .text = mg_arena_printf(r->a, "{\"type\":\"%s\",\"skill_id\":\"%.*s\",\"version\":\"%" PRId64 "\"}",
                                mg_skill_is_vendors(skill) ? "anthropic" : "custom", MG_SV_ARG(skill), v.version),
    };
    return keep_pin(r, &v, err);
}

/* Skills stand in an agent, and in the agents of its roster; in the order of the text. */
static mg_rc walk(struct resolving *r, const struct mg_json *v, int depth, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (const struct mg_json *m = v->child; m && rc >= 0; m = m->next) {
        if (v->type == MG_JSON_OBJECT && mg_sv_eqz(m->key, "skills") && m->type == MG_JSON_ARRAY) {
            for (const struct mg_json *e = m->child; e && rc >= 0; e = e->next)
                rc = resolve_one(r, e, err);
        } else if (depth == 0 ? mg_sv_eqz(m->key, "multiagent")
                              : v->type == MG_JSON_ARRAY || mg_sv_eqz(m->key, "agents")) {
            rc = walk(r, m, depth + 1, err);
        }
    }
    return rc;
}

static struct mg_sv spliced(struct mg_arena *a, struct mg_sv text, const struct edit *edits, int n)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(text.len + (size_t)n * 256 + 1);
    const char *at = text.ptr;
    for (int i = 0; i < n; i++) {
        (void)mg_buf_append(&b, at, (size_t)(edits[i].old.ptr - at));
        (void)mg_buf_sv(&b, edits[i].text);
        at = edits[i].old.ptr + edits[i].old.len;
    }
    (void)mg_buf_append(&b, at, (size_t)(text.ptr + text.len - at));
    return mg_arena_sv(a, mg_buf_view(&b));
}

mg_rc mg_skills_resolve(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv *agent,
                        struct mg_skill_pins *ret, struct mg_err *err)
{
    struct mg_json *v;
    *ret = (struct mg_skill_pins){.n = 0};
    if (!memmem(agent->ptr, agent->len, "\"skill_id\"", 10))
        return MG_OK;
    struct resolving *r = mg_arena_new_of(a, struct resolving);
    ret->rows = mg_arena_alloc(a, sizeof(*ret->rows) * MG_SKILLS_MAX);
    *r = (struct resolving){.a = a, .t = t, .workspace = workspace, .pins = ret};
    mg_rc rc = mg_json_parse(a, *agent, &mg_json_raw_limits, &v, err);
    if (rc >= 0)
        rc = walk(r, v, 0, err);
    if (rc >= 0)
        *agent = spliced(a, *agent, r->edits, r->n);
    return rc;
}

mg_rc mg_skills_pin(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, const struct mg_skill_pins *pins,
                    struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = 0; i < pins->n && rc >= 0; i++)
        rc = mg_skill_pin(a, t, session, pins->rows[i].skill_id, pins->rows[i].version, err);
    return rc;
}
