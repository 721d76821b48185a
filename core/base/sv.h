/* String views: borrowed bytes with a length, not NUL-terminated unless a comment says so. */
#ifndef MG_BASE_SV_H
#define MG_BASE_SV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct mg_sv {
    const char *ptr;
    size_t len;
};

/* A view of a string literal, usable in static initialisers. */
#define MG_SV(lit) ((struct mg_sv){(lit), sizeof(lit) - 1})
/* printf("%.*s", MG_SV_ARG(s)) */
#define MG_SV_ARG(s) (int)(s).len, (s).ptr

static inline struct mg_sv mg_sv_of(const char *z)
{
    return (struct mg_sv){z, z ? strlen(z) : 0};
}

static inline struct mg_sv mg_sv_n(const char *p, size_t n)
{
    return (struct mg_sv){p, n};
}

static inline bool mg_sv_eq(struct mg_sv a, struct mg_sv b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool mg_sv_eqz(struct mg_sv a, const char *z)
{
    return mg_sv_eq(a, mg_sv_of(z));
}

static inline bool mg_sv_starts(struct mg_sv s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.len >= n && memcmp(s.ptr, prefix, n) == 0;
}

static inline bool mg_sv_ends(struct mg_sv s, const char *suffix)
{
    size_t n = strlen(suffix);
    return s.len >= n && memcmp(s.ptr + s.len - n, suffix, n) == 0;
}

static inline struct mg_sv mg_sv_from(struct mg_sv s, size_t off)
{
    return off >= s.len ? mg_sv_n(s.ptr + s.len, 0) : mg_sv_n(s.ptr + off, s.len - off);
}

/* ASCII case-insensitive equality; for header names and keywords. */
bool mg_sv_eq_nocase(struct mg_sv a, struct mg_sv b);
/* Byte offset of c in s, or s.len. */
size_t mg_sv_find(struct mg_sv s, char c);
/* Without leading and trailing ASCII white space. */
struct mg_sv mg_sv_trim(struct mg_sv s);
/* Cuts the part before sep off *s and returns it; the rest (after sep) stays in *s. */
struct mg_sv mg_sv_split(struct mg_sv *s, char sep);
/* The place of s among n names, or 0: for closed sets that a CHECK of the database guards. */
int mg_sv_index(struct mg_sv s, const char *const *names, int n);
/* A token of RFC 9110, as the names of HTTP methods and headers are: not empty. */
bool mg_sv_is_token(struct mg_sv s);
/* Decimal digits with an optional minus sign only; false on anything else or overflow. */
bool mg_sv_to_i64(struct mg_sv s, int64_t *ret);

#endif
