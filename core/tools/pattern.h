/* Doublestar patterns: * ? [a-z] [!a-z] within a name, ** for any number of folders, {a,b} choices, \ for the next character as it is.
 * Names that start with a dot are matched like others. */
#ifndef MG_TOOLS_PATTERN_H
#define MG_TOOLS_PATTERN_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_PATTERN_MAX = 1024,   /* bytes */
    MG_PATTERN_CHOICES = 64, /* patterns after the choices in braces are written out */
    MG_PATTERN_NAMES = 64,   /* parts between slashes */
};

struct mg_pattern {
    struct mg_sv choice[MG_PATTERN_CHOICES];
    int n;
    bool folders; /* it ended in / */
};

/* MG_EINVAL with the rule: empty, absolute, "..", too long, unbalanced braces. */
mg_rc mg_pattern_parse(struct mg_arena *a, struct mg_sv text, struct mg_pattern *ret, struct mg_err *err) MG_MUSTCHECK;
/* path is relative, without "./". */
bool mg_pattern_match(const struct mg_pattern *p, struct mg_sv path);
/* Levels below the root that a match can lie at, or 0 for any. */
int mg_pattern_depth(const struct mg_pattern *p);
/* The leading folders without any special character, that every choice shares ("src/lib" of "src/lib/x*"); may be empty. */
struct mg_sv mg_pattern_prefix(const struct mg_pattern *p);

#endif
