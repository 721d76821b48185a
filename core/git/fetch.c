/* One repository: clone, checkout, archive. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "git/child.h"
#include "git/internal.h"

enum {
    ARGS_MAX = 128,              /* more than a child may have, which refuses them */
    SAID_MAX = 16 * 1024,        /* bytes of what git said last that are looked at */
    TREE_MAX = 64 * 1024 * 1024, /* bytes of a listing with MG_GIT_ENTRIES_MAX entries of usual length */
    SHORT_MAX = 4096,            /* bytes of answers that are not looked at */
    DETAIL_MAX = 300,            /* bytes of git's own words in an error */
    SECRET_MAX = 16 * 1024,      /* bytes that the credential helper writes */
};

/* Git asks its helper by a shell; descriptor 3 is a pipe with the answer, which is read once. */
static const char HELPER[] = "credential.helper=!f() { test \"$1\" = get && cat <&3; }; f";

static const char *const SETTINGS[] = {
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.logAllRefUpdates=false", /* a log would name this host */
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.autocrlf=false",
    "core.askPass=",
    "credential.helper=",
    "http.followRedirects=false", /* another host was not judged, and must not get the token */
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "submodule.recurse=false",
    "transfer.bundleURI=false",
    "transfer.unpackLimit=1", /* one pack, to which the limit of a file applies */
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    NULL,
};

struct job {
    struct mg_git *git;
    const struct mg_git_want *want;
    struct mg_arena *a;
    const char *folder; /* private; the repository is tree in it */
    const char *resolve, *ca_file;
    struct mg_buf *secret, said;
    uint64_t deadline_ns;
    enum mg_git_fault fault;
    bool too_large; /* its history is: without it there may be room */
    bool shallow;
};

/* ---- git ---- */

struct args {
    const char *v[ARGS_MAX];
    int n;
};

static void add(struct args *x, const char *arg)
{
    if (x->n < ARGS_MAX - 1)
        x->v[x->n++] = arg;
}

static void add_setting(struct args *x, const char *setting)
{
    add(x, "-c");
    add(x, setting);
}

static struct args git_args(struct job *j)
{
    struct args x = {.n = 0};
    add(&x, "git");
    for (int i = 0; SETTINGS[i]; i++)
        add_setting(&x, SETTINGS[i]);
    if (j->secret->len)
        add_setting(&x, HELPER);
    if (j->resolve)
        add_setting(&x, j->resolve);
    if (j->ca_file)
        add_setting(&x, j->ca_file);
    return x;
}

static mg_rc run(struct job *j, const char *const *argv, bool secret, uint64_t file_max, struct mg_buf *out,
                 int *ret_status, struct mg_err *err)
{
    const struct mg_git_child c = {
        .argv = argv,
        .cwd = j->folder,
        .secret = secret ? mg_buf_view(j->secret) : MG_SV(""),
        .deadline_ns = j->deadline_ns,
        .file_max = file_max,
        .cancel = j->want->cancel,
        .out = out,
        .err = &j->said,
    };
    mg_buf_reset(&j->said);
    mg_rc rc = mg_git_child_run(&c, ret_status, err);
    if (rc == MG_ETIMEOUT)
        return mg_err_set(err, MG_EUNAVAIL, "it was not fetched within %d s, the server's limit for a repository",
                          MG_GIT_FETCH_MS / 1000);
    return rc;
}

/* A command in the repository that asks nobody. */
static mg_rc run_here(struct job *j, const char *const *words, struct mg_buf *out, int *ret_status, struct mg_err *err)
{
    struct args x = git_args(j);
    add(&x, "-C");
    add(&x, "tree");
    for (int i = 0; words[i]; i++)
        add(&x, words[i]);
    return run(j, x.v, false, MG_GIT_PACK_MAX, out, ret_status, err);
}

/* ---- what went wrong ---- */

static bool said(const struct job *j, const char *words)
{
    return j->said.len && strstr(j->said.ptr, words);
}

/* Stars for the token in every form in which a server gets it. */
static void scrub(const struct job *j, char *text)
{
    mg_auto(secret) struct mg_buf basic = MG_BUF_INIT(2 * SECRET_MAX), pair = MG_BUF_INIT(SECRET_MAX);
    if (!j->want->token.len || mg_buf_reserve(&pair, SECRET_MAX) < 0 || mg_buf_reserve(&basic, 2 * SECRET_MAX) < 0)
        return;
    (void)mg_buf_printf(&pair, "%s:%.*s", MG_GIT_USER, MG_SV_ARG(j->want->token));
    (void)mg_base64_encode(&basic, mg_buf_view(&pair));
    const struct mg_sv forms[] = {j->want->token, mg_buf_view(&basic)};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (char *p; forms[i].len && (p = memmem(text, strlen(text), forms[i].ptr, forms[i].len));)
            memset(p, '*', forms[i].len);
}

/* The last line in which git gives up, as one line of plain text. */
static const char *detail(const struct job *j, char out[DETAIL_MAX])
{
    struct mg_sv rest = mg_buf_view(&j->said), last = MG_SV("");
    while (rest.len) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        if (mg_sv_starts(line, "fatal: ") || mg_sv_starts(line, "error: ") || mg_sv_starts(line, "tar: "))
            last = mg_sv_from(line, mg_sv_find(line, ' ') + 1);
    }
    mg_autofree char *text = mg_xstrndup(last.ptr, last.len);
    scrub(j, text);
    (void)snprintf(out, DETAIL_MAX, "%s", last.len ? text : "git gave no reason");
    for (char *p = out; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    return out;
}

static mg_rc fault(struct job *j, enum mg_git_fault f, struct mg_err *err, const char *text)
{
    j->fault = f;
    return mg_err_set(err, f == MG_GIT_OTHER ? MG_EUNAVAIL : MG_EINVAL, "%s", text);
}

static mg_rc too_large(struct job *j, struct mg_err *err)
{
    j->too_large = true;
    return mg_err_set(err, MG_ETOOBIG,
                      "it is too large: a repository may have %llu MiB of history as it comes, and %llu MiB in the "
                      "sandbox, history included",
                      MG_GIT_PACK_MAX >> 20, MG_GIT_ARCHIVE_MAX >> 20);
}

static mg_rc no_such(struct job *j, struct mg_err *err)
{
    const struct mg_git_want *w = j->want;
    j->fault = MG_GIT_CHECKOUT;
    if (w->commit.len)
        return mg_err_set(err, MG_EINVAL, "it has no commit %.*s, or does not give it out; attach it with another one",
                          MG_SV_ARG(w->commit));
    return mg_err_set(err, MG_EINVAL, "it has no branch '%.*s'; attach it with another one", MG_SV_ARG(w->branch));
}

/* By git's words, which LC_ALL=C keeps the same. */
static mg_rc refused(struct job *j, int status, struct mg_err *err)
{
    char text[DETAIL_MAX];
    bool token = j->want->token.len > 0;
    if (said(j, "File too large") || said(j, "signal 25") || status == 128 + SIGXFSZ)
        return too_large(j, err);
    if (said(j, "Authentication failed") || said(j, "could not read Username") || said(j, "could not read Password"))
        return fault(j, MG_GIT_AUTH, err,
                     token ? "the host does not accept the authorization_token; set one that is valid and may read it"
                           : "the host asks for credentials: it is private, or it is not there; set an "
                             "authorization_token that may read it");
    if (said(j, "returned error: 403"))
        return fault(j, MG_GIT_FORBIDDEN, err,
                     token ? "the host refuses access with this authorization_token; set one that may read it"
                           : "the host refuses access without an authorization_token; set one that may read it");
    if (said(j, "Remote branch ") || said(j, "not our ref") || said(j, "couldn't find remote ref"))
        return no_such(j, err);
    if (said(j, "' not found") || said(j, "returned error: 404") || said(j, "returned error: 410"))
        return fault(j, MG_GIT_NOT_FOUND, err,
                     token ? "the host knows no such repository, or hides it from this authorization_token; mend the "
                             "URL, or set another token"
                           : "the host knows no such repository; mend the URL, or set an authorization_token if it is "
                             "private");
    if (said(j, "returned error: 30") || said(j, "redirect"))
        return fault(j, MG_GIT_OTHER, err, "the host redirects to another URL; attach the repository by its final one");
    return mg_err_set(err, MG_EUNAVAIL, "it cannot be fetched: %s", detail(j, text));
}

/* ---- the steps ---- */

static mg_rc clone(struct job *j, struct mg_err *err)
{
    const struct mg_git_want *w = j->want;
    struct args x = git_args(j);
    int status = 0;
    const char *const words[] = {"clone",           "--quiet",     "--no-checkout",          "--single-branch",
                                 "--origin=origin", "--template=", "--no-recurse-submodules"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        add(&x, words[i]);
    add(&x, mg_arena_printf(j->a, "--config=mango.resource=%.*s", MG_SV_ARG(w->mark)).ptr);
    if (j->shallow)
        add(&x, "--depth=1");
    if (w->branch.len)
        add(&x, mg_arena_printf(j->a, "--branch=%.*s", MG_SV_ARG(w->branch)).ptr);
    add(&x, "--");
    add(&x, mg_arena_sv(j->a, w->url).ptr);
    add(&x, "tree");
    mg_rc rc = run(j, x.v, true, MG_GIT_PACK_MAX, NULL, &status, err);
    return rc < 0 || status == 0 ? rc : refused(j, status, err);
}

static mg_rc has(struct job *j, const char *revision, bool *ret, struct mg_err *err)
{
    const char *const words[] = {"rev-parse", "--verify", "--quiet", revision, NULL};
    int status = 0;
    mg_rc rc = run_here(j, words, NULL, &status, err);
    *ret = status == 0;
    return rc;
}

/* A commit that the branch does not have is asked for by its id. */
static mg_rc fetch_commit(struct job *j, const char *commit, struct mg_err *err)
{
    struct args x = git_args(j);
    bool here = false;
    int status = 0;
    mg_rc rc = has(j, commit, &here, err);
    if (rc < 0 || here)
        return rc;
    const char *const words[] = {"-C", "tree", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        add(&x, words[i]);
    if (j->shallow)
        add(&x, "--depth=1");
    add(&x, "origin");
    add(&x, mg_arena_sv(j->a, j->want->commit).ptr);
    rc = run(j, x.v, true, MG_GIT_PACK_MAX, NULL, &status, err);
    if (rc >= 0 && status != 0)
        rc = refused(j, status, err);
    if (rc >= 0)
        rc = has(j, commit, &here, err);
    return rc < 0 || here ? rc : no_such(j, err);
}

/* *ret NULL: the repository is empty. */
static mg_rc find(struct job *j, const char **ret, struct mg_err *err)
{
    const struct mg_git_want *w = j->want;
    bool there = false;
    const char *revision = "HEAD^{commit}";
    if (w->commit.len)
        revision = mg_arena_printf(j->a, "%.*s^{commit}", MG_SV_ARG(w->commit)).ptr;
    else if (w->branch.len) /* and not a tag of that name */
        revision = mg_arena_printf(j->a, "refs/heads/%.*s^{commit}", MG_SV_ARG(w->branch)).ptr;
    mg_rc rc = w->commit.len ? fetch_commit(j, revision, err) : has(j, revision, &there, err);
    *ret = w->commit.len || there ? revision : NULL;
    return rc >= 0 && w->branch.len && !there ? no_such(j, err) : rc;
}

/* MODE SP blob SP HASH SP+ SIZE TAB PATH NUL; a submodule's size is -. */
static mg_rc measure(struct job *j, const char *revision, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf list = MG_BUF_INIT(TREE_MAX);
    const char *const words[] = {"ls-tree", "-r", "-l", "-z", "--full-tree", revision, NULL};
    int64_t entries = 0, size = 0;
    uint64_t bytes = 0;
    int status = 0;
    mg_rc rc = run_here(j, words, &list, &status, err);
    if (rc >= 0 && status != 0)
        rc = refused(j, status, err);
    struct mg_sv rest = mg_buf_view(&list);
    for (; rc >= 0 && rest.len; entries++) {
        struct mg_sv entry = mg_sv_split(&rest, '\0'), head = mg_sv_n(entry.ptr, mg_sv_find(entry, '\t'));
        const char *space = head.len ? memrchr(head.ptr, ' ', head.len) : NULL;
        if (space && mg_sv_to_i64(mg_sv_n(space + 1, (size_t)(head.ptr + head.len - space - 1)), &size) && size > 0)
            bytes += (uint64_t)size;
    }
    if (rc >= 0 && (!mg_buf_ok(&list) || entries > MG_GIT_ENTRIES_MAX || bytes > MG_GIT_ARCHIVE_MAX))
        return mg_err_set(err, MG_ETOOBIG,
                          "it is too large: what is checked out may have %d files and %llu MiB in the sandbox",
                          MG_GIT_ENTRIES_MAX, MG_GIT_ARCHIVE_MAX >> 20);
    return rc;
}

static mg_rc check_out(struct job *j, const char *revision, struct mg_err *err)
{
    const char *const branch[] = {"reset", "--quiet", "--hard", NULL};
    const char *const commit[] = {"checkout", "--quiet", "--force", "--detach", revision, NULL};
    int status = 0;
    mg_rc rc = run_here(j, j->want->commit.len ? commit : branch, NULL, &status, err);
    return rc < 0 || status == 0 ? rc : refused(j, status, err);
}

static mg_rc pack(struct job *j, struct mg_git_archive *ret, struct mg_err *err)
{
    static const char *const WORDS[] = {
        "tar",       "--create",  "--file=archive.tar",      "--format=gnu",     "--numeric-owner",
        "--owner=0", "--group=0", "--mode=u+rwX,go+rX,go-w", "--directory=tree", ".",
        NULL,
    };
    struct stat st;
    int status = 0;
    mg_rc rc = run(j, WORDS, false, MG_GIT_ARCHIVE_MAX, NULL, &status, err);
    if (rc < 0)
        return rc;
    if (status != 0)
        return refused(j, status, err);
    mg_autofd int fd = open(mg_arena_printf(j->a, "%s/archive.tar", j->folder).ptr, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return mg_err_set(err, MG_EUNAVAIL, "its archive cannot be read: %s", strerror(errno));
    *ret = (struct mg_git_archive){.fd = mg_steal_fd(&fd), .size = st.st_size, .shallow = j->shallow};
    return MG_OK;
}

static mg_rc fetch_once(struct job *j, struct mg_git_archive *ret, struct mg_err *err)
{
    const char *revision = NULL;
    mg_rc rc = clone(j, err);
    if (rc >= 0)
        rc = find(j, &revision, err);
    if (rc >= 0 && revision)
        rc = measure(j, revision, err);
    if (rc >= 0 && revision)
        rc = check_out(j, revision, err);
    return rc < 0 ? rc : pack(j, ret, err);
}

/* In a folder of its own for each try, so that nothing of the first is left. */
static mg_rc fetch_in_folder(struct job *j, struct mg_git_archive *ret, struct mg_err *err)
{
    struct mg_git_folder folder;
    mg_rc rc = mg_git_folder_make(j->git, &folder, err);
    if (rc < 0)
        return rc;
    j->folder = folder.path;
    j->too_large = false;
    j->fault = MG_GIT_OTHER;
    rc = fetch_once(j, ret, err);
    mg_git_folder_remove(j->git, &folder);
    return rc;
}

static mg_rc write_secret(struct job *j, struct mg_err *err)
{
    if (!j->want->token.len)
        return MG_OK;
    if (mg_buf_reserve(j->secret, SECRET_MAX) < 0 ||
        mg_buf_printf(j->secret, "username=%s\npassword=%.*s\n", MG_GIT_USER, MG_SV_ARG(j->want->token)) < 0)
        return mg_err_set(err, MG_EINVAL, "its authorization_token is too long");
    return MG_OK;
}

mg_rc mg_git_fetch(struct mg_git *g, const struct mg_git_want *w, struct mg_git_archive *ret,
                   enum mg_git_fault *ret_fault, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(secret) struct mg_buf secret = MG_BUF_INIT(SECRET_MAX);
    struct job j = {.git = g,
                    .want = w,
                    .a = a,
                    .secret = &secret,
                    .said = MG_BUF_INIT(SAID_MAX),
                    .deadline_ns = mg_now_ns() + MG_GIT_FETCH_MS * UINT64_C(1000000)};
    mg_rc rc = mg_git_check(g, w->url, err);
    if (rc >= 0)
        rc = mg_git_resolve(g, a, w->url, j.deadline_ns, w->cancel, &j.resolve, err);
    if (rc >= 0)
        rc = write_secret(&j, err);
    j.ca_file = mg_git_ca_setting(g);
    if (rc >= 0)
        rc = fetch_in_folder(&j, ret, err);
    if (rc == MG_ETOOBIG && j.too_large) {
        j.shallow = true;
        rc = fetch_in_folder(&j, ret, err);
    }
    mg_buf_done(&j.said);
    *ret_fault = j.fault;
    return mg_cancel_fired(w->cancel) && rc < 0 ? MG_ECANCELED : rc;
}
