#include "service/resource.h"

#include "base/mem.h"
#include "domain/repository.h"
#include "git/git.h"
#include "run/engine.h"
#include "run/mounts.h"
#include "run/step.h"
#include "sandbox/manager.h"
#include "service/memory.h"
#include "service/vault.h"
#include "store/repository.h"

static mg_rc refuse_self_hosted(struct mg_err *err)
{
    return mg_err_code(err, MG_EINVAL, "self_hosted_resources_unsupported",
                       "resources: files and repositories cannot be attached in a self_hosted environment, whose "
                       "sandbox is the worker's; use a cloud environment, or let the worker fetch them");
}

static mg_rc check_sums(const struct mg_resource_sums *sums, struct mg_err *err)
{
    if (sums->n > MG_RESOURCES_MAX)
        return mg_err_set(err, MG_EINVAL, "resources: a session may have at most %d", MG_RESOURCES_MAX);
    if (sums->repositories > MG_SESSION_REPOSITORIES_MAX)
        return mg_err_set(err, MG_EINVAL, "resources: a session may have at most %d repositories",
                          MG_SESSION_REPOSITORIES_MAX);
    if (sums->bytes > MG_RESOURCE_BYTES_MAX)
        return mg_err_set(err, MG_EINVAL, "resources: the files of a session may have at most %lld bytes together",
                          MG_RESOURCE_BYTES_MAX);
    return MG_OK;
}

static mg_rc check_repository(const struct mg_engine *e, const struct mg_resource_spec *s, struct mg_err *err)
{
    struct mg_git *git = mg_engine_git(e);
    mg_rc rc = s->token.ptr ? mg_needs_keyring(mg_engine_keyring(e), err) : MG_OK;
    if (rc < 0)
        return rc;
    return git ? mg_git_check(git, s->url, err)
               : mg_err_set(err, MG_EINVAL, "this server cannot fetch repositories; its log says why");
}

static mg_rc insert_one(struct mg_engine *e, struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace,
                        struct mg_sv session, const struct mg_resource_spec *s, struct mg_resource_row *ret,
                        struct mg_err *err)
{
    int64_t size = 0;
    mg_rc rc = s->url.ptr ? check_repository(e, s, err) : mg_resource_file(t, workspace, s->file_id, &size, err);
    if (rc < 0)
        return rc;
    return s->url.ptr ? mg_repository_insert(a, t, mg_engine_keyring(e), session, s, ret, err)
                      : mg_resource_insert(a, t, session, s, ret, err);
}

static mg_rc settle(struct mg_txn *t, struct mg_sv session, struct mg_err *err)
{
    struct mg_resource_sums sums;
    mg_rc rc = mg_resource_sum(t, session, &sums, err);
    return rc < 0 ? rc : check_sums(&sums, err);
}

mg_rc mg_resources_attach(struct mg_engine *e, struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace,
                          struct mg_sv session, bool self_hosted, const struct mg_resource_spec *specs, int n,
                          struct mg_sv *ret_shown, struct mg_err *err)
{
    struct mg_resource_row row;
    mg_rc rc = MG_OK;
    *ret_shown = MG_SV("[]");
    if (n == 0)
        return MG_OK;
    for (int i = 0; i < n && rc >= 0; i++) {
        if (specs[i].memory_store_id.ptr)
            rc = mg_memory_stores_attach(a, t, workspace, session, self_hosted, i, &specs[i], err);
        else
            rc = self_hosted ? refuse_self_hosted(err) : insert_one(e, a, t, workspace, session, &specs[i], &row, err);
        if (rc < 0)
            rc = mg_err_wrap(err, rc, "resources[%d]", i);
    }
    if (rc >= 0)
        rc = settle(t, session, err);
    return rc < 0 ? rc : mg_resources_shown(a, t, session, ret_shown, err);
}

/* ---- one of a session that is there ---- */

static mg_rc takes_change(const struct mg_session_state *st, struct mg_err *err)
{
    if (st->deleting)
        return mg_err_set(err, MG_ENOTFOUND, "session '%s' does not exist", st->session.s);
    if (st->archived || st->status == MG_ST_TERMINATED)
        return mg_err_set(err, MG_ECONFLICT, "session '%s' is over: its resources stay as they are", st->session.s);
    return MG_OK;
}

static mg_rc check_place(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv path,
                         struct mg_err *err)
{
    struct mg_sv *paths;
    int n = 0;
    mg_rc rc = mg_resource_paths(a, t, session, &paths, &n, err);
    for (int i = 0; rc >= 0 && i < n; i++)
        if (mg_mounts_meet(paths[i], path))
            rc = mg_err_set(err, MG_ECONFLICT, "mount_path: meets that of another resource of the session");
    return rc;
}

mg_rc mg_resources_add(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                       const struct mg_principal *who, struct mg_sv session, const struct mg_json *body,
                       struct mg_resource_row *ret, struct mg_err *err)
{
    struct mg_resource_spec spec;
    struct mg_sv workspace = mg_id_sv(&who->workspace);
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_resource_parse(a, body, "", &spec, err);
    if (rc < 0)
        return rc;
    rc = mg_step_begin(&s, e, pg, a, session, workspace, -1, err);
    if (rc >= 0)
        rc = takes_change(&s.st, err);
    if (rc >= 0 && s.st.self_hosted)
        rc = refuse_self_hosted(err);
    if (rc >= 0 && boxes)
        rc = mg_sandbox_check_any(boxes, "resources", err);
    if (rc >= 0)
        rc = check_place(a, s.t, session, spec.mount_path, err);
    if (rc >= 0)
        rc = insert_one(e, a, s.t, workspace, session, &spec, ret, err);
    if (rc >= 0)
        rc = settle(s.t, session, err);
    if (rc >= 0)
        rc = mg_resources_show(s.t, session, err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "resource_add", err);
    if (rc >= 0)
        mg_mounts_changed(e, &s.st.session);
    return rc;
}

/* Counts from the next call on, also for a repository that could not be had before. */
mg_rc mg_resources_rotate(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv session, struct mg_sv id, const struct mg_json *body,
                          struct mg_resource_row *ret, struct mg_err *err)
{
    struct mg_sv token;
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_repository_parse_update(a, body, &token, err);
    if (rc >= 0)
        rc = mg_step_begin(&s, e, pg, a, session, mg_id_sv(&who->workspace), -1, err);
    if (rc >= 0)
        rc = takes_change(&s.st, err);
    if (rc >= 0)
        rc = mg_needs_keyring(mg_engine_keyring(e), err);
    if (rc >= 0)
        rc = mg_repository_set_token(a, s.t, mg_engine_keyring(e), session, id, token, ret, err);
    if (rc >= 0)
        rc = mg_resources_show(s.t, session, err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "resource_rotate", err);
    if (rc >= 0)
        mg_mounts_changed(e, &s.st.session);
    return rc;
}

mg_rc mg_resources_remove(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv session, struct mg_sv id, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin(&s, e, pg, a, session, mg_id_sv(&who->workspace), -1, err);
    if (rc >= 0)
        rc = takes_change(&s.st, err);
    if (rc >= 0)
        rc = mg_resource_delete(s.t, session, id, err);
    if (rc >= 0)
        rc = mg_resources_show(s.t, session, err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "resource_remove", err);
    if (rc >= 0)
        mg_mounts_changed(e, &s.st.session);
    return rc;
}
