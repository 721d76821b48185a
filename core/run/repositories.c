#include "run/repositories.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/rng.h"
#include "domain/repository.h"
#include "domain/vault.h"
#include "git/git.h"
#include "run/engine-internal.h"
#include "run/memory.h"
#include "run/mounts.h"
#include "sandbox/manager.h"
#include "store/repository.h"

enum {
    ALL_MS = 15 * 60 * 1000, /* of all repositories of a session: what is left then waits for the next turn */
    UNPACK_MS = 180000,
    LOOK_MS = 30000,
    SLACK_MS = MG_SANDBOX_PUT_MS + UNPACK_MS + MG_GIT_FETCH_MS, /* of the one that began just before ALL_MS were over */
    ARCHIVE_MODE = 0600,
    NOTES_MAX = 8 * 1024, /* bytes of what the model is told */
    ERROR_MAX = 4096,     /* bytes of an event's error */
    TEXT_MAX = 900,       /* bytes of its text */
};

/* What the commands in the sandbox say. */
enum { IS_THERE = 0, OCCUPIED = 17, NO_TAR = 18, FAILED = 19, ABSENT = 20 };

/* $1 the resource's id, $2 where it goes, $3 look or put, $4 the archive, $5 a folder beside it. A folder that came into its place whole is never touched
 * again: what the agent made of it stays. */
static const char SCRIPT[] = "there() { grep -q \"resource = $1\\$\" \"$2/.git/config\" 2>/dev/null; }\n"
                             "if [ -e \"$2\" ] || [ -L \"$2\" ]; then\n"
                             "  if there \"$1\" \"$2\"; then rm -f -- \"$4\"; exit 0; fi\n"
                             "  rmdir -- \"$2\" 2>/dev/null || { rm -f -- \"$4\"; exit 17; }\n"
                             "fi\n"
                             "[ \"$3\" = put ] || exit 20\n"
                             "trap 'rm -rf -- \"$4\" \"$5\"' EXIT\n"
                             "command -v tar >/dev/null || exit 18\n"
                             "mkdir -p -- \"$5\" && tar -xof \"$4\" -C \"$5\" || exit 19\n"
                             "case $2 in */*) mkdir -p -- \"${2%/*}\" || exit 19;; esac\n"
                             "mv -- \"$5\" \"$2\" || exit 19\n"
                             "there \"$1\" \"$2\" || exit 19\n";

struct missing {
    struct mg_repository_row row;
    const char *error_type; /* of the session.error, or NULL: it is there, or was not tried */
    char text[TEXT_MAX];
};

struct mg_repository_work {
    struct mg_arena *arena;
    struct missing *all;
    int n;
    bool said; /* the model is to be told of the failures */
};

void mg_repository_work_free(struct mg_repository_work *w)
{
    if (!w)
        return;
    mg_arena_free(w->arena);
    free(w);
}

bool mg_repositories_wanted(const struct mg_run *r)
{
    return mg_box_wants_repositories(r->engine, &r->session, &r->thread, r->epoch);
}

/* ---- in the sandbox ---- */

struct preparing {
    struct mg_run *run;
    struct mg_arena *a;
    struct mg_sandbox *box;
    struct missing *x;
    const char *place, *archive, *folder; /* relative to the workspace */
};

static mg_rc run_script(struct preparing *p, const char *what, int ms, int *ret_code, struct mg_err *err)
{
    const char *const argv[] = {"/bin/sh", "-c", SCRIPT,     "sh",      mg_arena_sv(p->a, p->x->row.id).ptr,
                                p->place,  what, p->archive, p->folder, NULL};
    const struct mg_exec_req req = {
        .argv = argv, .deadline_ns = mg_now_ns() + (uint64_t)ms * UINT64_C(1000000), .cancel = p->run->cancel};
    struct mg_exec_status st;
    mg_rc rc = mg_sandbox_ops(p->box)->exec(p->box, &req, &st, err);
    *ret_code = st.exited ? st.exit_code : FAILED;
    return rc;
}

static mg_rc fail(struct preparing *p, const char *type, const char *why)
{
    p->x->error_type = type;
    (void)snprintf(p->x->text, sizeof(p->x->text), "repository %.*s (%.*s) is not in the sandbox at %.*s: %s",
                   (int)(p->x->row.url.len < 300 ? p->x->row.url.len : 300), p->x->row.url.ptr, MG_SV_ARG(p->x->row.id),
                   (int)(p->x->row.mount_path.len < 200 ? p->x->row.mount_path.len : 200), p->x->row.mount_path.ptr,
                   why);
    return MG_OK;
}

static mg_rc judge(struct preparing *p, int code)
{
    switch (code) {
    case IS_THERE:
        return MG_OK;
    case OCCUPIED:
        return fail(p, "repository_checkout_error",
                    "something else is there; move it away, or attach the repository at another mount_path");
    case NO_TAR:
        return fail(p, "repository_clone_error", "the sandbox has no tar to unpack it with; use an image that has it");
    default:
        return fail(p, "repository_clone_error",
                    "it could not be unpacked in the sandbox; its disk may be full, or the place not writable");
    }
}

static int64_t next_bytes(void *ctx, char *to, uint64_t n)
{
    ssize_t got = read(*(int *)ctx, to, (size_t)n);
    return got < 0 ? MANGO_ERETRY : got;
}

static mg_rc put(struct preparing *p, struct mg_git_archive *x, struct mg_err *err)
{
    int code = FAILED;
    mg_hook("repository.before_put");
    mg_rc rc = mg_sandbox_put(p->box, p->archive, ARCHIVE_MODE, next_bytes, &x->fd, x->size, err);
    if (rc >= 0)
        rc = run_script(p, "put", UNPACK_MS, &code, err);
    return rc < 0 ? rc : judge(p, code);
}

/* ---- one repository ---- */

static const char *type_of(enum mg_git_fault fault)
{
    static const char *const TYPES[] = {
        [MG_GIT_OTHER] = "repository_clone_error",         [MG_GIT_AUTH] = "repository_authentication_error",
        [MG_GIT_FORBIDDEN] = "repository_forbidden_error", [MG_GIT_NOT_FOUND] = "repository_not_found_error",
        [MG_GIT_CHECKOUT] = "repository_checkout_error",
    };
    return TYPES[fault];
}

static mg_rc fetch(struct preparing *p, struct mg_git_archive *ret, struct mg_err *err)
{
    mg_auto(secret) struct mg_buf token = MG_BUF_INIT(MG_CREDENTIAL_TOKEN_MAX);
    const struct mg_engine_opts *o = &p->run->engine->opts;
    const struct mg_repository_row *row = &p->x->row;
    struct mg_err why = {0};
    struct mg_checkout checkout;
    enum mg_git_fault fault = MG_GIT_OTHER;
    if (!o->git)
        return fail(p, type_of(fault), "this server cannot fetch repositories; its log says why");
    mg_rc rc = mg_checkout_read(p->a, row->checkout.ptr ? row->checkout : MG_SV(""), &checkout, err);
    if (rc < 0)
        return rc;
    if (row->sealed.ptr && mg_repository_token(o->keyring, row, &token, &why) < 0)
        return fail(p, "repository_authentication_error",
                    mg_arena_printf(p->a, "its authorization_token cannot be opened: %s", why.text).ptr);
    const struct mg_git_want want = {
        .url = row->url,
        .branch = checkout.branch,
        .commit = checkout.commit,
        .mark = row->id,
        .token = mg_buf_view(&token),
        .cancel = p->run->cancel,
    };
    rc = mg_git_fetch(o->git, &want, ret, &fault, &why);
    if (rc == MG_ECANCELED)
        return rc;
    return rc < 0 ? fail(p, type_of(fault), why.text) : MG_OK;
}

/* MG_OK also when it cannot be had, which x says. */
static mg_rc prepare(struct mg_run *r, struct mg_sandbox *box, struct missing *x, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_git_archive archive = {.fd = -1};
    unsigned long long number = mg_rng_u64();
    struct preparing p = {
        .run = r,
        .a = a,
        .box = box,
        .x = x,
        .place = mg_mount_place(a, x->row.mount_path).ptr,
        .archive = mg_arena_printf(a, ".session/repository.%016llx.tar", number).ptr,
        .folder = mg_arena_printf(a, ".session/repository.%016llx", number).ptr,
    };
    int code = FAILED;
    mg_rc rc = run_script(&p, "look", LOOK_MS, &code, err);
    if (rc >= 0 && code != ABSENT)
        rc = judge(&p, code);
    if (rc >= 0 && code == ABSENT)
        rc = fetch(&p, &archive, err);
    if (rc >= 0 && archive.fd >= 0)
        rc = put(&p, &archive, err);
    if (rc >= 0 && archive.shallow)
        mg_log(MG_INFO, "a repository came without its history, which is too large", MG_F_STR("session", r->session.s),
               MG_F_SV("resource", x->row.id));
    if (archive.fd >= 0)
        close(archive.fd);
    if (rc >= 0 && !x->error_type)
        rc = mg_mounts_note_repository(box, x->row.id, x->row.mount_path, err);
    return rc;
}

/* ---- all of them, on a tool thread ---- */

static void run_prepared(struct mg_run *r, struct mg_pg *pg);

/* A sandbox that fails is told by the calls, which need it too: what was not tried is the next turn's. */
static bool prepare_all(struct mg_run *r, struct mg_box *box)
{
    struct mg_repository_work *w = r->repositories;
    uint64_t end = mg_now_ns() + ALL_MS * UINT64_C(1000000);
    bool missing = false;
    for (int i = 0; i < w->n && !mg_cancel_fired(r->cancel); i++) {
        struct mg_err err = {0};
        mg_rc rc = mg_now_ns() < end ? prepare(r, mg_box_sandbox(box), &w->all[i], &err) : MG_ETIMEOUT;
        if (rc < 0 && rc != MG_ECANCELED)
            mg_log(MG_WARN, "a repository is not put into the sandbox yet", MG_F_STR("session", r->session.s),
                   MG_F_SV("resource", w->all[i].row.id), MG_F_STR("error", err.text));
        missing |= rc < 0 || w->all[i].error_type;
        w->said |= w->all[i].error_type != NULL;
    }
    return missing;
}

static void prepare_work(void *arg, void *thread)
{
    struct mg_run *r = arg;
    (void)thread;
    struct mg_box *box = mg_box_lock(r->engine, &r->session, &r->thread);
    if (box) {
        bool missing = prepare_all(r, box);
        mg_box_repositories(box, missing, r->epoch);
        mg_box_unlock(box);
    }
    atomic_store(&r->busy_until_ns, 0);
    if (mg_cancel_fired(r->cancel))
        mg_run_drop(r);
    else
        mg_run_later(r, run_prepared);
    mg_run_unref(r);
}

/* ---- telling ---- */

static struct mg_sv error_members(struct mg_arena *a, const struct missing *x)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ERROR_MAX * 2);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", x->error_type);
    mg_jw_kstrz(&w, "message", x->text);
    mg_jw_kstr(&w, "repository_url", x->row.url);
    mg_jw_kraw(&w, "retry_status", MG_SV("{\"type\":\"retrying\"}"));
    mg_jw_obj_end(&w);
    return mg_arena_printf(a, "\"error\":%.*s", MG_SV_ARG(mg_buf_view(&b)));
}

static mg_rc commit_failures(struct mg_run *r, struct mg_pg *pg, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    const struct mg_repository_work *w = r->repositories;
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc < 0 || s.st.turn_step != MG_TURN_TOOLS)
        return rc;
    for (int i = 0; i < w->n; i++) {
        if (!w->all[i].error_type)
            continue;
        mg_log(MG_WARN, "a repository cannot be had", MG_F_STR("session", r->session.s),
               MG_F_SV("resource", w->all[i].row.id), MG_F_STR("error", w->all[i].text));
        mg_step_event(&s, MG_EV_SESSION_ERROR, error_members(a, &w->all[i]), true);
    }
    return mg_step_commit(&s, "turn.no_repository", err);
}

static void run_prepared(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    mg_rc rc = r->repositories->said ? commit_failures(r, pg, &err) : MG_OK;
    if (rc < 0)
        mg_run_failed(r, rc, &err, run_prepared);
    else
        mg_run_calls(r, pg);
}

void mg_repositories_noted(struct mg_run *r, struct mg_arena *a, struct mg_sv *content)
{
    const struct mg_repository_work *w = r->repositories;
    mg_auto(buf) struct mg_buf notes = MG_BUF_INIT(NOTES_MAX);
    if (!w || !w->said || content->len <= 2)
        return;
    for (int i = 0; i < w->n; i++)
        if (w->all[i].error_type && notes.len + TEXT_MAX < NOTES_MAX)
            (void)mg_buf_printf(&notes, "Note: %s\n", w->all[i].text);
    *content = mg_content_with_notes(a, *content, mg_buf_view(&notes));
}

void mg_repositories_told(struct mg_run *r)
{
    if (r->repositories)
        r->repositories->said = false;
}

/* ---- the beginning ---- */

static mg_rc load(struct mg_run *r, struct mg_pg *pg, struct mg_err *err)
{
    struct mg_repository_row *rows;
    struct mg_repository_work *w = mg_xcalloc(1, sizeof(*w));
    mg_repository_work_free(r->repositories);
    r->repositories = w;
    w->arena = mg_arena_new();
    mg_rc rc = mg_repositories_of(w->arena, pg, mg_id_sv(&r->session), &rows, &w->n, err);
    if (rc < 0)
        return rc;
    w->all = mg_arena_alloc(w->arena, sizeof(*w->all) * (size_t)(w->n + 1));
    for (int i = 0; i < w->n; i++)
        w->all[i].row = rows[i];
    return MG_OK;
}

void mg_run_repositories(struct mg_run *r, struct mg_pg *pg)
{
    enum { PAUSE_MS = 1000 /* before it is tried again when all threads were busy */ };
    struct mg_err err = {0};
    mg_rc rc = load(r, pg, &err);
    if (rc < 0) {
        mg_run_failed(r, rc, &err, mg_run_calls);
        return;
    }
    atomic_store(&r->busy_until_ns, mg_run_until((uint64_t)ALL_MS + SLACK_MS));
    if (mg_pool_submit(r->engine->tools, prepare_work, mg_run_ref(r)) == MG_OK)
        return;
    atomic_store(&r->busy_until_ns, 0);
    mg_run_unref(r);
    mg_run_after(r, PAUSE_MS, mg_run_calls);
}
