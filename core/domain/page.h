/* Pages of lists: limits, and opaque cursors that are bound to the list and the filters that made them. */
#ifndef MG_DOMAIN_PAGE_H
#define MG_DOMAIN_PAGE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"

/* Where a page begins: behind (or, for back, before) the row with this sort key, in the list's order. */
struct mg_cursor {
    bool given;
    bool back;       /* the page before the row, for prev_page */
    int64_t pos;     /* microseconds, a sequence number or a version: the first part of the key */
    struct mg_sv id; /* the second part; empty where pos alone is unique */
};

/* scope: names the list and all of its filters in a fixed form; another scope refuses the cursor. */
struct mg_sv mg_cursor_format(struct mg_arena *a, struct mg_sv scope, const struct mg_cursor *c);
/* token empty or ptr NULL: not given. MG_EINVAL names the parameter "page". */
mg_rc mg_cursor_parse(struct mg_arena *a, struct mg_sv scope, struct mg_sv token, struct mg_cursor *ret,
                      struct mg_err *err) MG_MUSTCHECK;

/* text ptr NULL: fallback. */
mg_rc mg_limit_parse(struct mg_sv text, int fallback, int max, int *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
