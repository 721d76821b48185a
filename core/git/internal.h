/* Inside of core/git. */
#ifndef MG_GIT_INTERNAL_H
#define MG_GIT_INTERNAL_H

#include "base/arena.h"
#include "git/git.h"

/* What hosts take beside a token; GitHub's name for it, and others look at the token alone. */
#define MG_GIT_USER "x-access-token"

struct mg_git_folder {
    char path[4096], name[32];
    int lock; /* of the folder, as long as somebody works in it */
};
mg_rc mg_git_folder_make(struct mg_git *g, struct mg_git_folder *ret, struct mg_err *err) MG_MUSTCHECK;
void mg_git_folder_remove(struct mg_git *g, struct mg_git_folder *f);

/* "http.curloptResolve=HOST:PORT:ADDRESSES" with addresses that were judged; NULL: the host is a literal address, which
 * mg_git_check has judged. */
mg_rc mg_git_resolve(struct mg_git *g, struct mg_arena *a, struct mg_sv url, uint64_t deadline_ns,
                     struct mg_cancel *cancel, const char **ret, struct mg_err *err) MG_MUSTCHECK;
const char *mg_git_ca_setting(const struct mg_git *g); /* "http.sslCAInfo=FILE", or NULL */

#endif
