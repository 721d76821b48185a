/* Bounded growing byte buffer. The limit is set at init; an append past it fails with MG_ETOOBIG, frees the content and
 * sticks: every later append fails too, so a writer may chain appends and look at mg_buf_ok() once at the end. */
#ifndef MG_BASE_BUF_H
#define MG_BASE_BUF_H

#include "base/err.h"
#include "base/mem.h"
#include "base/sv.h"

struct mg_buf {
    char *ptr; /* NUL-terminated whenever not NULL */
    size_t len, cap, max;
    bool failed;
};

#define MG_BUF_INIT(limit) ((struct mg_buf){.max = (limit)})

void mg_buf_done(struct mg_buf *b); /* frees; usable again with the same limit */
static inline void mg_buf_cleanup(struct mg_buf *b)
{
    mg_buf_done(b);
}
/* Overwrites what is there, then frees: for secrets, whose room was reserved before the first byte, since growing
 * leaves copies behind. mg_auto(secret) struct mg_buf b = ...; */
void mg_buf_wipe(struct mg_buf *b);
static inline void mg_secret_cleanup(struct mg_buf *b)
{
    mg_buf_wipe(b);
}
mg_rc mg_buf_append(struct mg_buf *b, const void *p, size_t n);
mg_rc mg_buf_sv(struct mg_buf *b, struct mg_sv s);
mg_rc mg_buf_str(struct mg_buf *b, const char *z);
mg_rc mg_buf_char(struct mg_buf *b, char c);
/* s as a part of a URL: everything but RFC 3986's unreserved characters becomes %XX. */
mg_rc mg_buf_percent(struct mg_buf *b, struct mg_sv s);
mg_rc mg_buf_printf(struct mg_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for n more bytes at ptr+len (uninitialised); the caller calls mg_buf_added(n) afterwards. */
mg_rc mg_buf_reserve(struct mg_buf *b, size_t n);
static inline void mg_buf_added(struct mg_buf *b, size_t n)
{
    b->len += n;
    b->ptr[b->len] = '\0';
}
void mg_buf_consume(struct mg_buf *b, size_t n); /* drops n bytes from the front */
void mg_buf_reset(struct mg_buf *b);             /* len = 0, keeps memory, clears failed */
static inline bool mg_buf_ok(const struct mg_buf *b)
{
    return !b->failed;
}
static inline struct mg_sv mg_buf_view(const struct mg_buf *b)
{
    return (struct mg_sv){b->ptr ? b->ptr : "", b->len};
}
/* Hands the bytes (malloc memory, NUL-terminated, never NULL) to the caller. */
char *mg_buf_steal(struct mg_buf *b, size_t *ret_len);

#endif
