/* From the regular expressions that models write (Perl and Rust style) to POSIX extended ones. */
#ifndef MG_TOOLS_REGEX_H
#define MG_TOOLS_REGEX_H

#include "base/buf.h"

/* Appends the pattern with \d \D \t written out, also \w \s and escaped characters inside of brackets, and (?: as (. A leading (?i) is taken
 * off and reported. What has no POSIX form stays as it is: grep refuses it by name. */
mg_rc mg_regex_to_posix(struct mg_buf *out, struct mg_sv pattern, bool *ret_ignore_case);

#endif
