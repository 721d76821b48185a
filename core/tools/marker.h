/* Finds the shell's markers in its output: RS, a secret of 32 hex digits, a short text, RS, newline. What is not a marker goes on as output.
 * Works at every cut of the stream, in constant memory. */
#ifndef MG_TOOLS_MARKER_H
#define MG_TOOLS_MARKER_H

#include "base/sv.h"

enum {
    MG_MARKER_SECRET = 32,     /* hex digits */
    MG_MARKER_TEXT_MAX = 1024, /* bytes between secret and RS; the longest holds a line of /proc/PID/stat */
};

struct mg_marker {
    char lead[1 + MG_MARKER_SECRET]; /* RS and the secret */
    uint8_t matched;                 /* bytes of lead seen */
    bool in_text, found;
    bool swallow; /* the newline of the last marker is still to come */
    uint16_t n;
    char text[MG_MARKER_TEXT_MAX + 1];
};

typedef void mg_marker_output(void *ctx, const char *p, size_t n);

void mg_marker_init(struct mg_marker *m, const char secret[MG_MARKER_SECRET + 1]);
/* Takes bytes up to the end of the next marker and returns how many; m->found tells whether there was one (then m->text, NUL-terminated, is its
 * text, until the next call). */
size_t mg_marker_feed(struct mg_marker *m, const char *p, size_t n, mg_marker_output *output, void *ctx);

#endif
