/* Hash map from byte strings to pointers (SipHash-keyed against chosen keys). Keys are copied. Not thread-safe. */
#ifndef MG_BASE_MAP_H
#define MG_BASE_MAP_H

#include <stddef.h>

#include "base/sv.h"

struct mg_map;

struct mg_map *mg_map_new(void);
void mg_map_free(struct mg_map *m);                         /* values are the caller's */
void *mg_map_get(const struct mg_map *m, struct mg_sv key); /* NULL when absent */
/* Returns the value that was there before, or NULL. value must not be NULL. */
void *mg_map_put(struct mg_map *m, struct mg_sv key, void *value);
void *mg_map_del(struct mg_map *m, struct mg_sv key); /* the value that was there, or NULL */
size_t mg_map_len(const struct mg_map *m);
/* Visits all in no order; fn must not change the map. */
void mg_map_each(const struct mg_map *m, void (*fn)(void *ctx, struct mg_sv key, void *value), void *ctx);

#endif
