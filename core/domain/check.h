/* Checks a JSON object against a table of its fields, so that every resource's body is one table and every refusal names the
 * field, the limit and the fix. No field is accepted and forgotten: what the table does not name is refused. */
#ifndef MG_DOMAIN_CHECK_H
#define MG_DOMAIN_CHECK_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"
#include "json/json.h"

enum mg_field_type {
    MG_FT_STRING, /* min, max: characters; NUL and other control characters are refused unless MG_FF_TEXT */
    MG_FT_ID,     /* an opaque id: 1 to MG_ID_MAX - 1 characters of [A-Za-z0-9_-] */
    MG_FT_INT,    /* min, max: value */
    MG_FT_BOOL,
    MG_FT_OBJECT, /* min, max: members */
    MG_FT_ARRAY,  /* min, max: items */
    MG_FT_STRING_OR_OBJECT,
    MG_FT_ANY,
};

enum {
    MG_FF_REQUIRED = 1,
    MG_FF_NULL = 2, /* null is allowed; whatever it means is the caller's business */
    MG_FF_TEXT = 4, /* a text for the model: every character may appear, NUL too (it travels as an escape) */
};

enum { MG_FIELDS_MAX = 24, MG_PATH_MAX = 256 /* bytes of a place in an error */ };

struct mg_field_rule {
    const char *name; /* NULL ends a table */
    uint8_t type, flags;
    int64_t min, max;          /* max 0: no upper limit */
    const char *const *one_of; /* NULL-terminated words that the string may be */
    const char *refusal;       /* set: any value but null, [] and {} is refused with this text */
};

/* path: where obj stands ("events[2]"), or "" for the body. out gets the member of each rule, NULL where it is absent; a null that the
 * rule allows arrives as a node of MG_JSON_NULL. */
mg_rc mg_check_object(struct mg_arena *a, const struct mg_json *obj, const char *path,
                      const struct mg_field_rule *rules, const struct mg_json **out, struct mg_err *err) MG_MUSTCHECK;
/* One value against one rule; place is its full name. */
mg_rc mg_check_value(struct mg_arena *a, const struct mg_json *v, const char *place, const struct mg_field_rule *rule,
                     struct mg_err *err) MG_MUSTCHECK;
/* The string member "type" of obj, which must be one of words; *ret is its index. */
mg_rc mg_check_tag(struct mg_arena *a, const struct mg_json *obj, const char *path, const char *const *words, int *ret,
                   struct mg_err *err) MG_MUSTCHECK;

/* "path.name" or "name"; "path[3]". Cut at MG_PATH_MAX. */
const char *mg_place(char out[MG_PATH_MAX], const char *path, const char *name);
const char *mg_place_at(char out[MG_PATH_MAX], const char *path, unsigned i);
/* "a, b, c" in arena memory. */
const char *mg_words(struct mg_arena *a, const char *const *words);
/* Index in words, or -1. */
int mg_word_index(const char *const *words, struct mg_sv s);
/* Characters of valid UTF-8. */
size_t mg_utf8_count(struct mg_sv s);

/* Whether s holds control characters, or what breaks lines or turns the direction of text: it would show as another text than it is. */
bool mg_text_hides(struct mg_sv s);

/* An id of a client as an error may show it: what is longer than any id is cut. */
struct mg_sv mg_shown_id(struct mg_sv id);

/* True for a node that is there and not null. */
static inline bool mg_given(const struct mg_json *v)
{
    return v && v->type != MG_JSON_NULL;
}

/* Parses a body: an object, an empty body counts as {}. */
mg_rc mg_body_parse(struct mg_arena *a, struct mg_sv body, const struct mg_json **ret, struct mg_err *err) MG_MUSTCHECK;

#endif
