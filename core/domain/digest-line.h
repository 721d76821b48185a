/* Lines that sha256sum writes, in the forms of GNU and of busybox. Pure. */
#ifndef MG_DOMAIN_DIGEST_LINE_H
#define MG_DOMAIN_DIGEST_LINE_H

#include <stdbool.h>

#include "base/arena.h"

/* False: it is none, as the rest of a name with a line break. *ret_sha borrows from line; *ret_name as well, or is arena memory. */
bool mg_digest_line(struct mg_arena *a, struct mg_sv line, struct mg_sv *ret_sha, struct mg_sv *ret_name);

#endif
