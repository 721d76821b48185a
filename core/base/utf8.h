/* UTF-8 (RFC 3629): validation and cuts that never split a character. */
#ifndef MG_BASE_UTF8_H
#define MG_BASE_UTF8_H

#include "base/buf.h"
#include "base/sv.h"

/* True when s is valid UTF-8; else *ret_off (may be NULL) is the offset of the first bad byte. */
bool mg_utf8_valid(struct mg_sv s, size_t *ret_off);
/* Bytes of the valid character at the front of s; 0 when there is none. */
size_t mg_utf8_char(struct mg_sv s);
/* The longest prefix of at most max bytes that does not end inside a character. */
size_t mg_utf8_floor(struct mg_sv s, size_t max);
/* The offset of the first character that starts at or after off; for keeping a tail. */
size_t mg_utf8_ceil(struct mg_sv s, size_t off);
/* The length of s without a character that its end cuts off; for bytes that come in pieces. */
size_t mg_utf8_whole(struct mg_sv s);
/* Appends s with every byte that is not part of a valid character replaced by U+FFFD. */
mg_rc mg_utf8_clean(struct mg_buf *out, struct mg_sv s);

#endif
