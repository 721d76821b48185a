#include "base/clock.h"
#include "base/log.h"
#include "object/object.h"
#include "run/outputs-internal.h"
#include "store/file.h"

enum {
    PREPARE_MS = 10000,
    PIECE = 1024 * 1024, /* bytes that are read at once */
    SLACK_MS = 120000,   /* behind the publication's own deadline: a call that began just before it */
};

/* ---- bytes ---- */

/* Reads the file to its end, or to one byte more than size. *ret_same: it had size bytes. */
static mg_rc read_file(struct mg_publication *p, const struct mg_output *x, struct mg_sha256 *hash, struct mg_upload *u,
                       bool *ret_same, struct mg_err *err)
{
    const char *place = mg_arena_printf(p->a, MG_OUTPUTS_PATH "/%.*s", MG_SV_ARG(x->path)).ptr;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(PIECE + 1);
    int64_t at = 0;
    bool eof = false;
    mg_rc rc = MG_OK;
    while (rc >= 0 && !eof && at <= x->size) {
        mg_buf_reset(&b);
        rc = mg_publication_in_time(p, err);
        if (rc >= 0)
            rc = p->ops->read(p->box, place, at, PIECE, &b, &eof, err);
        if (rc >= 0 && hash)
            mg_sha256_update(hash, b.ptr ? b.ptr : "", b.len);
        if (rc >= 0 && u)
            rc = mg_upload_write(u, mg_buf_view(&b), err);
        if (rc >= 0 && b.len == 0)
            eof = true;
        at += (int64_t)b.len;
    }
    *ret_same = at == x->size;
    return rc;
}

/* What the agent did to the file is said; what the sandbox or a store does not do ends the publication. */
static bool is_files_fault(mg_rc rc)
{
    return rc == MG_ENOTFOUND || rc == MG_EINVAL || rc == MG_EDENIED;
}

static mg_rc hash_file(struct mg_publication *p, struct mg_output *x, bool *ret_ok, struct mg_err *err)
{
    struct mg_sha256 *h = mg_sha256_new();
    mg_rc rc = read_file(p, x, h, NULL, ret_ok, err);
    mg_sha256_final_hex(h, x->sha256);
    if (is_files_fault(rc)) {
        *ret_ok = false;
        rc = MG_OK;
    }
    return rc;
}

static mg_rc commit_file(struct mg_publication *p, const struct mg_output *x, struct mg_upload *u, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    struct mg_file_row row;
    struct mg_sv session = mg_id_sv(&p->run->session);
    const struct mg_file_new f = {
        .id = mg_id_new("file"),
        .workspace = p->workspace,
        .filename = x->filename,
        .mime_type = x->mime,
        .session_id = session,
        .output_path = x->path,
        .size = x->size,
        .sha256 = x->sha256,
    };
    mg_rc rc = mg_step_begin_run(&s, p->run, p->pg, p->a, err);
    if (rc >= 0)
        rc = mg_output_hide(s.t, session, x->path, err);
    if (rc >= 0)
        rc = mg_upload_complete(u, p->a, s.t, err);
    if (rc >= 0)
        rc = mg_file_insert(p->a, s.t, &f, mg_upload_key(u), &row, err);
    return rc < 0 ? rc : mg_step_commit(&s, "turn.output", err);
}

static mg_rc publish_file(struct mg_publication *p, struct mg_output *x, struct mg_err *err)
{
    struct mg_upload *u = NULL;
    bool same = false;
    mg_rc rc = mg_upload_begin(p->run->engine->opts.objects, p->pg, p->workspace, "file", &u, err);
    if (rc < 0)
        return rc;
    rc = read_file(p, x, NULL, u, &same, err);
    if (rc >= 0 && same)
        rc = mg_upload_seal(u, err);
    bool changed = is_files_fault(rc) || (rc >= 0 && (!same || strcmp(mg_upload_sha256(u), x->sha256) != 0));
    if (rc >= 0 && !changed)
        rc = commit_file(p, x, u, err);
    mg_upload_end(u, p->pg, changed ? MG_ECONFLICT : rc, err);
    if (changed)
        mg_publication_note(p, x->path, "changed while it was read");
    return changed ? MG_OK : rc;
}

/* The first pass: what each file holds of which the list did not say it. */
static mg_rc hash_all(struct mg_publication *p, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = 0; i < p->n && rc >= 0; i++) {
        bool ok = true;
        struct mg_output *x = &p->files[i];
        if (x->sha256[0])
            continue;
        rc = hash_file(p, x, &ok, err);
        const struct mg_output_row *old = mg_publication_old(p, x->path);
        if (rc >= 0 && !ok)
            mg_publication_note(p, x->path, "changed while it was read");
        x->kept = !ok || (old && old->size == x->size && mg_sv_eqz(old->sha256, x->sha256));
    }
    return rc;
}

static bool is_there(const struct mg_publication *p, struct mg_sv path)
{
    for (int i = 0; i < p->n; i++)
        if (mg_sv_eq(p->files[i].path, path))
            return true;
    return false;
}

/* What is not in the folder any more goes; the calls so far are done with. */
static mg_rc commit_end(struct mg_publication *p, int64_t calls, bool hide, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    struct mg_sv session = mg_id_sv(&p->run->session);
    mg_rc rc = mg_step_begin_run(&s, p->run, p->pg, p->a, err);
    for (int i = 0; hide && i < p->n_old && rc >= 0; i++)
        if (!is_there(p, p->old[i].path))
            rc = mg_output_hide(s.t, session, p->old[i].path, err);
    if (rc >= 0)
        rc = mg_outputs_done(p->a, s.t, session, calls, err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "turn.outputs_done", err);
    if (rc >= 0)
        mg_objects_wake(p->run->engine->opts.objects);
    return rc;
}

static mg_rc publish_all(struct mg_publication *p, struct mg_err *err)
{
    mg_rc rc = mg_outputs_of(p->a, p->pg, mg_id_sv(&p->run->session), &p->old, &p->n_old, err);
    if (rc >= 0)
        rc = mg_publication_list(p, err);
    if (rc >= 0)
        rc = hash_all(p, err);
    for (int i = 0; i < p->n && rc >= 0; i++)
        if (!p->files[i].kept)
            rc = publish_file(p, &p->files[i], err);
    return rc;
}

/* ---- the turn ---- */

static mg_rc publish(struct mg_publication *p, struct mg_err *err)
{
    struct mg_run *r = p->run;
    int64_t calls = 0;
    mg_rc rc = mg_outputs_due(p->a, p->pg, mg_id_sv(&r->session), &calls, &p->workspace, err);
    if (rc < 0 || !p->workspace.len)
        return rc;
    rc = mg_box_acquire(r->engine, p->pg, &r->session, &r->thread, r->cancel, err);
    struct mg_box *box = rc < 0 ? NULL : mg_box_lock(r->engine, &r->session, &r->thread);
    if (!box)
        return rc < 0 ? rc : mg_err_set(err, MG_EGONE, "the session's sandbox is gone");
    p->box = mg_box_sandbox(box);
    p->ops = mg_sandbox_ops(p->box);
    rc = publish_all(p, err);
    mg_box_unlock(box);
    if (rc < 0 && rc != MG_EINVAL)
        return rc;
    struct mg_err later = {0};
    mg_rc end = commit_end(p, calls, rc >= 0, rc < 0 ? &later : err);
    return rc < 0 ? rc : end;
}

static void set_fault(struct mg_run *r, const struct mg_publication *p, mg_rc rc, const struct mg_err *err)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(2 * MG_OUTPUTS_NOTES_BYTES);
    if (rc < 0)
        (void)mg_buf_printf(&b, "the files in " MG_MOUNT_OUTPUTS " were not published: %s", err->text);
    else if (p->n_notes)
        (void)mg_buf_printf(&b, "%d of what is in " MG_MOUNT_OUTPUTS " was not published: %.*s", p->n_notes,
                            MG_SV_ARG(mg_buf_view(&p->notes)));
    if (!b.len)
        return; /* an earlier answer of the turn may have left one that is not said yet */
    free(r->outputs_fault);
    r->outputs_fault = mg_buf_steal(&b, NULL);
    mg_log(MG_WARN, "outputs were not published", MG_F_STR("session", r->session.s), MG_F_STR("why", r->outputs_fault));
}

static void publish_work(void *arg, void *thread)
{
    struct mg_run *r = arg;
    struct mg_err err = {0};
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_publication p = {.run = r,
                               .pg = thread,
                               .a = a,
                               .deadline_ns = mg_now_ns() + MG_OUTPUTS_MS * UINT64_C(1000000),
                               .notes = MG_BUF_INIT(MG_OUTPUTS_NOTES_BYTES)};
    mg_rc rc = publish(&p, &err);
    set_fault(r, &p, rc, &err);
    mg_buf_done(&p.notes);
    atomic_store(&r->busy_until_ns, 0);
    r->outputs_done = true;
    if (mg_cancel_fired(r->cancel))
        mg_run_drop(r);
    else
        mg_run_later(r, mg_run_response);
    mg_run_unref(r);
}

/* Tools run after no other answer than one that stopped for them; which of the others ends the turn is response.c's to say. */
static bool may_end_turn(const struct mg_run *r)
{
    return r->result->fail == MG_MODEL_OK && !r->grading && strcmp(r->result->stop_reason, "tool_use") != 0;
}

/* Only a session whose sandbox is here may have made calls since it last published; or one that another node, or this one before a crash, left. */
bool mg_outputs_first(struct mg_run *r)
{
    struct mg_engine *e = r->engine;
    bool may = r->resumed || r->roster || mg_box_have(e, &r->session, &r->thread);
    if (!may || r->outputs_done || r->thread.s[0] || !e->opts.objects || !e->opts.sandboxes || !may_end_turn(r))
        return false;
    atomic_store(&r->busy_until_ns, mg_run_until(MG_OUTPUTS_MS + SLACK_MS));
    if (mg_pool_submit(e->outputs, publish_work, mg_run_ref(r)) == MG_OK)
        return true;
    mg_run_unref(r);
    atomic_store(&r->busy_until_ns, 0);
    return false; /* the server is stopping, or very busy: the next turn that calls a tool publishes */
}

void mg_outputs_say(struct mg_run *r, struct mg_step *s)
{
    if (r->outputs_fault)
        mg_step_event(s, MG_EV_SESSION_ERROR,
                      mg_members_error(s->arena, "unknown_error", r->outputs_fault, "exhausted"), true);
    r->outputs_said = true;
}

void mg_outputs_committed(struct mg_run *r)
{
    r->outputs_done = false;
    if (r->outputs_said)
        free(mg_steal(&r->outputs_fault));
    r->outputs_said = false;
}

/* A sandbox of its own has a /mnt of its own: where its backend made no links, commands find the session's folders by them. As far as its user
 * may; the file tools know both names anyway. */
static const char PREPARE[] =
    "mkdir -p " MG_OUTPUTS_PATH " || exit\n"
    "link() { [ -e \"$1\" ] || [ -h \"$1\" ] || ln -s \"$2\" \"$1\" || sudo -n ln -s \"$2\" \"$1\"; }\n"
    "{ [ -d /mnt ] || mkdir /mnt; link /mnt/session \"$PWD/.session\"; link /mnt/memory \"$PWD/.session/memory\"; } "
    "</dev/null >/dev/null 2>&1; :";

void mg_outputs_prepare(struct mg_sandbox *box)
{
    static const char *const make[] = {"mkdir", "-p", MG_OUTPUTS_PATH, NULL};
    static const char *const make_and_link[] = {"/bin/sh", "-c", PREPARE, NULL};
    struct mg_file_stat stat;
    struct mg_exec_status st;
    struct mg_err err = {0};
    const struct mg_exec_req req = {.argv = mg_sandbox_isolated(box) ? make_and_link : make,
                                    .deadline_ns = mg_now_ns() + PREPARE_MS * UINT64_C(1000000)};
    if (mg_sandbox_ops(box)->stat(box, MG_OUTPUTS_PATH, &stat, &err) == MG_ENOTFOUND)
        (void)mg_sandbox_ops(box)->exec(box, &req, &st, &err); /* the file tools make it too */
}
