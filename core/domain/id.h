/* Identifiers: prefix, underscore, 26 characters of Crockford base 32 (48 bits of milliseconds, 80 random bits), so
 * that ids made in sequence sort and index well. Ids that clients send are opaque strings of at most MG_ID_MAX - 1 bytes. */
#ifndef MG_DOMAIN_ID_H
#define MG_DOMAIN_ID_H

#include "base/sv.h"

enum { MG_ID_MAX = 48 /* bytes with the NUL */ };

struct mg_id {
    char s[MG_ID_MAX];
};

/* prefix: "agent", "env", "sesn", "sthr", "sevt", "work", "file", "req", "node", "key", "wrkspc", ... */
struct mg_id mg_id_new(const char *prefix);
static inline struct mg_sv mg_id_sv(const struct mg_id *id)
{
    return mg_sv_of(id->s);
}
/* False when s is too long or holds a character outside [A-Za-z0-9_-]. */
bool mg_id_from(struct mg_sv s, struct mg_id *ret);

#endif
