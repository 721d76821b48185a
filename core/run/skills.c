#include "run/skills.h"

#include <inttypes.h>

#include "base/mem.h"
#include "domain/zip.h"
#include "object/object.h"
#include "run/engine-internal.h"
#include "run/prompt.h"
#include "sandbox/manager.h"
#include "store/skill.h"

enum {
    TEXT_MAX = 4 * 1024 * 1024, /* bytes: 500 descriptions of 1,024 characters and their frames */
    LIST_MAX = 256 * 1024,      /* bytes of the list of what is there */
};

/* What is there: a line "SKILL VERSION NAME" each. */
#define LIST_PATH ".session/skills"

/* ---- the prompt ---- */

static bool has_skill(struct mg_arena *a, const struct mg_json *skills, const struct mg_skill_version_row *x)
{
    struct mg_sv version = mg_arena_printf(a, "%" PRId64, x->version);
    for (const struct mg_json *e = skills->child; e; e = e->next)
        if (mg_sv_eq(mg_json_get_str(a, e, "skill_id"), x->skill_id) &&
            mg_sv_eq(mg_json_get_str(a, e, "version"), version))
            return true;
    return false;
}

mg_rc mg_skills_system(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, const struct mg_json *agent,
                       struct mg_sv *system, struct mg_err *err)
{
    const struct mg_json *skills = mg_json_get(agent, "skills");
    struct mg_skill_version_row *rows;
    int n = 0;
    if (!mg_json_is(skills, MG_JSON_ARRAY) || skills->n == 0)
        return MG_OK;
    mg_rc rc = mg_skills_of(a, pg, mg_id_sv(session), &rows, &n, err);
    if (rc < 0)
        return rc;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TEXT_MAX);
    (void)mg_buf_str(
        &b, "You have skills: folders with instructions for particular tasks. Before you begin a task that one of them "
            "is for, read its SKILL.md; paths in it are relative to its folder, and folders are relative to the "
            "workspace.\n");
    for (int i = 0; i < n; i++)
        if (has_skill(a, skills, &rows[i]))
            (void)mg_buf_printf(&b, "- %.*s (skills/%.*s/SKILL.md): %.*s\n", MG_SV_ARG(rows[i].name),
                                MG_SV_ARG(rows[i].name), MG_SV_ARG(rows[i].description));
    if (!mg_buf_ok(&b))
        return mg_err_set(err, MG_EINTERNAL, "the descriptions of the skills are too long");
    mg_prompt_add(a, mg_buf_view(&b), system);
    return MG_OK;
}

/* ---- the files ---- */

static mg_rc put_in(struct mg_engine *e, struct mg_pg *pg, struct mg_sandbox *box, const struct mg_skill_version_row *x,
                    struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf archive = MG_BUF_INIT((size_t)x->size + 1);
    struct mg_skill_file *files;
    int n = 0;
    mg_rc rc = mg_object_load(e->opts.objects, pg, x->object_key, x->size, &archive, NULL, err);
    if (rc >= 0)
        rc = mg_zip_read(a, mg_buf_view(&archive), &files, &n, err);
    if (rc < 0)
        return mg_err_wrap(err, rc == MG_EUNAVAIL ? MG_EUNAVAIL : MG_EINTERNAL, "skill '%.*s'", MG_SV_ARG(x->name));
    for (int i = 0; i < n && rc >= 0; i++) {
        struct mg_sv rest = mg_sv_from(files[i].path, mg_sv_find(files[i].path, '/'));
        struct mg_sv path = mg_arena_printf(a, "skills/%.*s%.*s", MG_SV_ARG(x->name), MG_SV_ARG(rest));
        rc = mg_sandbox_ops(box)->write(box, path.ptr, files[i].content, err);
    }
    return rc;
}

mg_rc mg_skills_prepare(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, struct mg_sandbox *box,
                        struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf was = MG_BUF_INIT(LIST_MAX), now = MG_BUF_INIT(LIST_MAX);
    struct mg_skill_version_row *rows;
    int n = 0;
    bool eof = false;
    if (!e->opts.objects)
        return MG_OK;
    mg_rc rc = mg_skills_of(a, pg, mg_id_sv(session), &rows, &n, err);
    if (rc < 0 || n == 0)
        return rc;
    rc = mg_sandbox_ops(box)->read(box, LIST_PATH, 0, LIST_MAX, &was, &eof, err);
    if (rc < 0 && rc != MG_ENOTFOUND && rc != MG_EINVAL)
        return rc;
    for (int i = 0; i < n; i++)
        (void)mg_buf_printf(&now, "%.*s %" PRId64 " %.*s\n", MG_SV_ARG(rows[i].skill_id), rows[i].version,
                            MG_SV_ARG(rows[i].name));
    if (mg_sv_eq(mg_buf_view(&was), mg_buf_view(&now)))
        return MG_OK; /* a session's skills never change */
    rc = MG_OK;
    for (int i = 0; i < n && rc >= 0; i++)
        rc = put_in(e, pg, box, &rows[i], err);
    return rc >= 0 ? mg_sandbox_ops(box)->write(box, LIST_PATH, mg_buf_view(&now), err) : rc;
}
