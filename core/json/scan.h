/* Scanning of JSON tokens; used inside core/json only. */
#ifndef MG_JSON_SCAN_H
#define MG_JSON_SCAN_H

#include "base/arena.h"
#include "base/sv.h"

struct mg_json;

/* Offset at or after i of the first byte that is a quote, a backslash, a control character or not ASCII; else s.len. */
size_t mg_json_plain_end(struct mg_sv s, size_t i);

struct mg_json_token {
    size_t end;       /* offset behind the token, or of the byte that is wrong */
    const char *what; /* what is wrong, or NULL */
    bool escaped;     /* strings: there is a backslash */
};

/* A string whose opening quote is at off. strict: unpaired surrogates are wrong. */
struct mg_json_token mg_json_scan_string(struct mg_sv s, size_t off, bool strict);
/* A number whose first byte is at off. strict: one that overflows a double is wrong. */
struct mg_json_token mg_json_scan_number(struct mg_sv s, size_t off, bool strict);
/* Decodes what stands between the quotes of a string that was scanned; arena memory when there is an escape. */
struct mg_sv mg_json_decode(struct mg_arena *a, struct mg_sv inside, bool escaped);

/* A number: sign, digits without leading and trailing zeros, exponent of the last digit. Zero has no digits. */
struct mg_json_decimal {
    bool negative;
    struct mg_sv digits; /* spans of the source; a decimal point may stand inside */
    size_t n_digits;     /* without the point */
    int64_t exponent;    /* saturates far outside of any use */
};

struct mg_json_decimal mg_json_decimal_of(struct mg_sv number);
bool mg_json_decimal_overflows(const struct mg_json_decimal *d); /* rounds to infinity as a double */

#endif
