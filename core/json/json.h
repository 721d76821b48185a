/* JSON read with its text kept: every node knows the exact bytes it came from, so that tool inputs, results and stored
 * events travel as they arrived and are never re-encoded (jansson 2.14 does not preserve 0.1, -0, big integers,
 * duplicate keys or \u0000; see docs/architecture.md). It also reads and writes what is ours: one way to do it is enough.
 *
 * Nodes live in the arena and point into the source text, which must outlive them. */
#ifndef MG_JSON_JSON_H
#define MG_JSON_JSON_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"

enum mg_json_type { MG_JSON_NULL, MG_JSON_BOOL, MG_JSON_NUMBER, MG_JSON_STRING, MG_JSON_ARRAY, MG_JSON_OBJECT };

struct mg_json {
    uint8_t type;          /* enum mg_json_type */
    bool boolean;          /* MG_JSON_BOOL */
    bool escaped;          /* MG_JSON_STRING: raw holds a backslash */
    uint32_t n;            /* children of an array or object */
    struct mg_sv raw;      /* exact source span, quotes included */
    struct mg_sv key;      /* decoded member name, when the parent is an object */
    struct mg_json *child; /* first child */
    struct mg_json *next;  /* next sibling */
};

struct mg_json_limits {
    uint32_t max_depth; /* nesting levels */
    uint32_t max_nodes; /* values in all: bounds memory at about 72 bytes each */
    bool strict; /* API bodies: duplicate keys, numbers outside of a double's range, unpaired surrogates are errors.
                          * Otherwise (text of models and tools, kept raw) only the grammar and UTF-8 are checked. */
};

extern const struct mg_json_limits mg_json_api_limits; /* strict, 64 levels, 200,000 values */
extern const struct mg_json_limits mg_json_raw_limits; /* lenient, 512 levels, 2,000,000 values */

/* Parses one value and nothing behind it. Errors are MG_EINVAL and name the place ("events[0].content: ... at byte
 * 17"). A byte order mark is named in the error. */
mg_rc mg_json_parse(struct mg_arena *a, struct mg_sv text, const struct mg_json_limits *lim, struct mg_json **ret,
                    struct mg_err *err) MG_MUSTCHECK;
/* Grammar and UTF-8 only, no nodes, any size; for text that is kept raw. */
mg_rc mg_json_check(struct mg_sv text, uint32_t max_depth, struct mg_err *err) MG_MUSTCHECK;

/* NULL when obj is not an object or has no such member. With lenient text and duplicates: the last. */
const struct mg_json *mg_json_get(const struct mg_json *obj, const char *key);
const struct mg_json *mg_json_at(const struct mg_json *arr, uint32_t i);
bool mg_json_is(const struct mg_json *v, enum mg_json_type t); /* NULL: false */
const char *mg_json_type_name(const struct mg_json *v);        /* "a string"; for errors */
/* Decoded text of a string; a view of the source when it has no escape, else arena memory. May contain NUL bytes.
 * Unpaired surrogates become U+FFFD. v must be a string. */
struct mg_sv mg_json_str(struct mg_arena *a, const struct mg_json *v);
bool mg_json_i64(const struct mg_json *v, int64_t *ret); /* an integer in range; 1.0 and 1e2 count */
/* Equal as JSON values: member order and number spelling do not matter (compared as decimal values). */
bool mg_json_equal(struct mg_arena *a, const struct mg_json *x, const struct mg_json *y);

/* Convenience for text of ours: the decoded string member, or an empty view. */
struct mg_sv mg_json_get_str(struct mg_arena *a, const struct mg_json *obj, const char *key);
/* The inside of a raw array, without its brackets and outer white space: for joining arrays as text. */
struct mg_sv mg_json_inside(struct mg_sv raw_array);
/* The raw text of a member, or an empty view. */
struct mg_sv mg_json_get_raw(const struct mg_json *obj, const char *key);

#endif
