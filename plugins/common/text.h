/* A bounded growing text of the plugin's own: request bodies, paths, messages. */
#ifndef MANGO_COMMON_TEXT_H
#define MANGO_COMMON_TEXT_H

#include <stdbool.h>

#include "common/sv.h"
#include "mango/types.h"

enum { TEXT_MAX = 16 * 1024 * 1024 /* bytes; a body that we make ourselves is far below */ };

/* All zero is the empty text. An append that fails (memory, TEXT_MAX) sets bad, and later ones do nothing. */
struct text {
    char *ptr; /* NUL behind the end once anything was appended */
    uint64_t len, cap;
    bool bad;
};

void text_bytes(struct text *t, const char *p, uint64_t n);
void text_add(struct text *t, const char *z);
void text_sv(struct text *t, struct mango_sv s);
void text_printf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD, so that the result is always JSON. */
void text_json(struct text *t, struct mango_sv s);
void text_jsonz(struct text *t, const char *z);
/* For a path or a query of a URL: everything but letters, digits and -._~ as %XX. */
void text_url(struct text *t, struct mango_sv s);
void text_base64(struct text *t, struct mango_sv s, bool url_safe);
struct mango_sv text_view(const struct text *t);
void text_free(struct text *t);

#define text_auto __attribute__((cleanup(text_free)))

#endif
