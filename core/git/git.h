/* Repositories of other hosts, fetched by the host's git into an archive for a sandbox.
 *
 * What a repository holds is hostile: no hook, filter, submodule or setting of it runs here, nothing but https is
 * spoken, and only with an address that was judged before. A token reaches git through a pipe, and no command line,
 * environment or file. Concurrency: any thread; mg_git_fetch blocks. */
#ifndef MG_GIT_GIT_H
#define MG_GIT_GIT_H

#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_GIT_FETCH_MS = 300000,    /* of one repository, with its archive: semantics EX12 */
    MG_GIT_ENTRIES_MAX = 100000, /* files and folders of what is checked out: the same */
};
#define MG_GIT_PACK_MAX (1024ULL * 1024 * 1024)   /* bytes of its history as it comes: the same */
#define MG_GIT_ARCHIVE_MAX (500ULL * 1024 * 1024) /* bytes of what goes into the sandbox: the same */

struct mg_git;

struct mg_git_opts {
    const char *dir;     /* where its folders are made; whoever opens it next removes what was left */
    const char *ca_file; /* NULL: the system's authorities */
    bool public_only;    /* private addresses are refused, whatever name leads to them */
};

/* MG_EIO: dir cannot be used. What earlier processes left there is removed. */
mg_rc mg_git_open(const struct mg_git_opts *o, struct mg_git **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_git_close(struct mg_git *g); /* NULL is fine */

/* MG_EINVAL: this host has no git, or one that is too old, and what to do. Blocks for as long as `git version` takes. */
mg_rc mg_git_here(struct mg_err *err) MG_MUSTCHECK;
/* Whether url could be fetched at all: git is here, new enough, and the URL has no private address in it. MG_EINVAL
 * names what to mend. */
mg_rc mg_git_check(struct mg_git *g, struct mg_sv url, struct mg_err *err) MG_MUSTCHECK;

struct mg_git_want {
    struct mg_sv url;            /* https, without user and password */
    struct mg_sv branch, commit; /* both empty: the default branch */
    struct mg_sv mark;           /* the value of mango.resource in the folder's .git/config */
    struct mg_sv token;          /* empty: none */
    struct mg_cancel *cancel;
};

enum mg_git_fault {
    MG_GIT_OTHER,     /* unreachable, too large, too slow, not a repository */
    MG_GIT_AUTH,      /* the server wants (other) credentials */
    MG_GIT_FORBIDDEN, /* it refuses these */
    MG_GIT_NOT_FOUND,
    MG_GIT_CHECKOUT, /* it has no such branch or commit */
};

/* An open tar file: the folder's files, named ./..., .git among them. */
struct mg_git_archive {
    int fd; /* read-only; the caller closes it. Nothing else is left of it in the file system */
    int64_t size;
    bool shallow; /* its history was too large: only the newest commit came along */
};

/* MG_ECANCELED; any other failure is told by *ret_fault, and err says what happened and what to mend, without the
 * repository's name. */
mg_rc mg_git_fetch(struct mg_git *g, const struct mg_git_want *w, struct mg_git_archive *ret,
                   enum mg_git_fault *ret_fault, struct mg_err *err) MG_MUSTCHECK;

#endif
