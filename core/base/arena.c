/* Arena: a chain of chunks, each twice as large as the one before, up to a bound. Chunks come zeroed from calloc, so an
 * allocation is a pointer bump. Under AddressSanitizer the unused part of a chunk is poisoned, with a gap behind each
 * allocation, so that an overrun is still seen. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
enum { ARENA_GAP = 16 };
#define arena_poison(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define arena_unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
enum { ARENA_GAP = 0 };
#define arena_poison(p, n) ((void)(p), (void)(n))
#define arena_unpoison(p, n) ((void)(p), (void)(n))
#endif

enum {
    ARENA_ALIGN = _Alignof(max_align_t),
    ARENA_CHUNK_FIRST = 4 * 1024,  /* bytes; a small request needs one */
    ARENA_CHUNK_MAX = 1024 * 1024, /* bytes; larger allocations get a chunk of their own */
};

struct chunk {
    struct chunk *next;
    size_t cap;
    _Alignas(max_align_t) char data[];
};

struct mg_arena {
    struct chunk *chunks; /* the first is the one being filled */
    size_t used;          /* of the first chunk */
    size_t next_cap;
    size_t bytes; /* asked for, rounded */
    bool secret;
};

struct mg_arena *mg_arena_new(void)
{
    struct mg_arena *a = mg_xcalloc(1, sizeof(*a));

    a->next_cap = ARENA_CHUNK_FIRST;
    return a;
}

void mg_arena_free(struct mg_arena *a)
{
    if (!a)
        return;
    for (struct chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        arena_unpoison(c->data, c->cap);
        if (a->secret)
            mg_wipe(c->data, c->cap);
        free(c);
    }
    free(a);
}

void mg_arena_set_secret(struct mg_arena *a)
{
    a->secret = true;
}

static struct chunk *chunk_new(size_t cap)
{
    struct chunk *c = mg_xcalloc(1, sizeof(*c) + cap);

    c->cap = cap;
    arena_poison(c->data, cap);
    return c;
}

void *mg_arena_alloc(struct mg_arena *a, size_t n)
{
    if (n > SIZE_MAX / 4)
        abort(); /* no caller computes such a size on purpose */
    size_t take = (n + (n == 0) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN + ARENA_GAP;

    a->bytes += take;
    if (take > ARENA_CHUNK_MAX / 4) {
        /* Behind the head, so that the chunk being filled stays in use. */
        struct chunk *own = chunk_new(take);
        if (a->chunks) {
            own->next = a->chunks->next;
            a->chunks->next = own;
        } else {
            a->chunks = own;
            a->used = take;
        }
        arena_unpoison(own->data, n);
        return own->data;
    }
    if (!a->chunks || a->chunks->cap - a->used < take) {
        while (a->next_cap < take)
            a->next_cap *= 2;
        struct chunk *c = chunk_new(a->next_cap);
        c->next = a->chunks;
        a->chunks = c;
        a->used = 0;
        if (a->next_cap < ARENA_CHUNK_MAX)
            a->next_cap *= 2;
    }
    char *p = a->chunks->data + a->used;
    a->used += take;
    arena_unpoison(p, n);
    return p;
}

char *mg_arena_strdup(struct mg_arena *a, struct mg_sv s)
{
    char *p = mg_arena_alloc(a, s.len + 1);

    if (s.len)
        memcpy(p, s.ptr, s.len);
    return p;
}

struct mg_sv mg_arena_sv(struct mg_arena *a, struct mg_sv s)
{
    return mg_sv_n(mg_arena_strdup(a, s), s.len);
}

struct mg_sv mg_arena_printf(struct mg_arena *a, const char *fmt, ...)
{
    mg_autofree char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        n = 0;
    }
    return mg_arena_sv(a, mg_sv_n(text, (size_t)n));
}

size_t mg_arena_bytes(const struct mg_arena *a)
{
    return a->bytes;
}
