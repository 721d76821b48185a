/* Files: the rules of their names, types and times (api-contract 2.8, 3.7). Pure. */
#ifndef MG_DOMAIN_FILE_H
#define MG_DOMAIN_FILE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_FILE_NAME_MAX = 255,                 /* characters */
    MG_FILE_EXPIRES_MIN_S = 3600,           /* of expires_in_seconds */
    MG_FILE_EXPIRES_MAX_S = 90 * 24 * 3600, /* the same */
};
#define MG_FILE_BYTES_MAX (500LL * 1024 * 1024) /* of one file */

/* What becomes of the filename of a part: its last component; "unnamed" and an extension that fits when it is empty. */
mg_rc mg_file_name(struct mg_arena *a, struct mg_sv given, struct mg_sv mime, struct mg_sv *ret,
                   struct mg_err *err) MG_MUSTCHECK;
/* The media type of a part: as it was given when it is one, else by the name, else application/octet-stream. */
struct mg_sv mg_file_type(struct mg_arena *a, struct mg_sv given, struct mg_sv name);
mg_rc mg_file_expiry(struct mg_sv text, int64_t *ret_s, struct mg_err *err) MG_MUSTCHECK;
/* A Content-Disposition that no browser shows in place, with the name in both forms. */
struct mg_sv mg_file_disposition(struct mg_arena *a, struct mg_sv name);

#endif
