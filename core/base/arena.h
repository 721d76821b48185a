/* Arena: many small allocations that die together (one request, one step of a turn).
 *
 * Not thread-safe: one owner at a time. Never keep an arena pointer in an object that outlives the arena. */
#ifndef MG_BASE_ARENA_H
#define MG_BASE_ARENA_H

#include <stddef.h>

#include "base/mem.h"
#include "base/sv.h"

struct mg_arena;

struct mg_arena *mg_arena_new(void);
void mg_arena_free(struct mg_arena *a); /* NULL is fine */
/* It holds secrets: what is freed is overwritten first. */
void mg_arena_set_secret(struct mg_arena *a);
static inline void mg_arena_cleanup(struct mg_arena **a)
{
    mg_arena_free(*a);
}
/* Zeroed, aligned for any type; aborts when memory is gone (sizes that peers choose are bounded before). */
void *mg_arena_alloc(struct mg_arena *a, size_t n) __attribute__((returns_nonnull));
char *mg_arena_strdup(struct mg_arena *a, struct mg_sv s) __attribute__((returns_nonnull)); /* adds a NUL */
struct mg_sv mg_arena_sv(struct mg_arena *a, struct mg_sv s);                               /* a copy, NUL behind it */
struct mg_sv mg_arena_printf(struct mg_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t mg_arena_bytes(const struct mg_arena *a);

#define mg_arena_new_of(a, type) ((type *)mg_arena_alloc((a), sizeof(type)))

#endif
