/* Memory stores and memories: the checks of their bodies and of paths, without I/O. */
#ifndef MG_DOMAIN_MEMORY_H
#define MG_DOMAIN_MEMORY_H

#include "base/arena.h"
#include "base/err.h"
#include "json/json.h"

enum {
    MG_STORE_NAME_MAX = 255,            /* characters */
    MG_STORE_DESCRIPTION_MAX = 1024,    /* characters */
    MG_STORE_MEMORIES_MAX = 2000,       /* of a store: semantics ME1 */
    MG_MEMORY_CONTENT_MAX = 100 * 1024, /* bytes of UTF-8 */
    MG_MEMORY_PATH_MAX = 1024,          /* bytes */
    MG_MEMORY_SEGMENTS_MAX = 20,
    MG_MEMORY_SHA = 64, /* hex digits */
};

struct mg_memory_store {
    struct mg_sv name, description, metadata;
};
mg_rc mg_memory_store_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_memory_store *ret,
                                   struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_store_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_memory_store *base,
                                   struct mg_memory_store *ret, struct mg_err *err) MG_MUSTCHECK;

/* A text as it is stored. */
struct mg_memory_content {
    struct mg_sv json; /* a JSON string literal */
    struct mg_sv sha256;
    int64_t size; /* bytes of the text */
};
/* text: at most MG_MEMORY_CONTENT_MAX bytes of UTF-8 (MG_EINVAL else, with place). Arena memory. */
mg_rc mg_memory_content_of(struct mg_arena *a, struct mg_sv text, const char *place, struct mg_memory_content *ret,
                           struct mg_err *err) MG_MUSTCHECK;

/* What a write wants. ptr NULL: that stays. */
struct mg_memory_wish {
    struct mg_sv path;
    struct mg_memory_content content; /* json.ptr NULL: none */
    struct mg_sv precondition;        /* the sha256 that must be there; ptr NULL: none */
};
mg_rc mg_memory_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_memory_wish *ret,
                             struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_parse_update(struct mg_arena *a, const struct mg_json *body, struct mg_memory_wish *ret,
                             struct mg_err *err) MG_MUSTCHECK;

/* The rules of a path but for its normal form, which the database knows (IS NFC NORMALIZED). */
mg_rc mg_memory_path_check(struct mg_sv path, const char *place, struct mg_err *err) MG_MUSTCHECK;
/* What a list may begin with: a path, or its beginning, that ends with a slash. */
mg_rc mg_memory_prefix_check(struct mg_sv prefix, struct mg_err *err) MG_MUSTCHECK;
bool mg_memory_sha_ok(struct mg_sv s); /* 64 lowercase hex digits */
/* The folder of a mount: lower case, every run of other characters than letters and digits of ASCII one hyphen. Of a
 * name that has none of them: the store's id. */
struct mg_sv mg_memory_slug(struct mg_arena *a, struct mg_sv name, struct mg_sv id);

#endif
