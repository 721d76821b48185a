/* Reading JSON answers of services. Values are views of the text: nothing is copied, nothing is freed.
 *
 * The text is checked as a whole once (json_valid); the other functions take views of checked text, and give an empty
 * view (len 0) for what is not there. */
#ifndef MANGO_COMMON_JSON_H
#define MANGO_COMMON_JSON_H

#include <stdbool.h>

#include "common/text.h"
#include "mango/types.h"

enum { JSON_DEPTH_MAX = 64 /* folders in each other; more is refused */ };

/* One value and nothing behind it but blanks. */
bool json_valid(struct mango_sv text);
/* The member at the end of a path of names with '/' between them: "Config/Labels/io.mango.label". Of several with one
 * name the last one counts. */
struct mango_sv json_get(struct mango_sv value, const char *path);
/* Goes through an array or an object: *pos starts at 0. False at the end. name may be NULL; it is the raw string. */
bool json_next(struct mango_sv value, uint64_t *pos, struct mango_sv *name, struct mango_sv *ret);
char json_kind(struct mango_sv value); /* '{' '[' '"' 't' 'f' 'n' '0' (a number), 0 for none */
/* Appends the content of a string; false when value is no string. */
bool json_text(struct mango_sv value, struct text *out);
/* The content of the string at path in a buffer of its own size: false when it is no string or too long. */
bool json_copy(struct mango_sv value, const char *path, char *out, uint64_t size);
bool json_is(struct mango_sv value, const char *path, const char *text); /* the string at path is text */
bool json_true(struct mango_sv value, const char *path);
bool json_int(struct mango_sv value, const char *path, int64_t *ret); /* an integer that fits */

#endif
