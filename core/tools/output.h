/* Output of a command in constant memory: terminal escapes are taken out as it comes, the tail is kept. */
#ifndef MG_TOOLS_OUTPUT_H
#define MG_TOOLS_OUTPUT_H

#include "base/buf.h"

struct mg_output {
    char *ring;
    size_t cap, start, len; /* len bytes from start, wrapping at cap */
    uint64_t total;         /* bytes kept or dropped, without the escapes */
    uint8_t state;          /* of the escape filter */
    uint16_t string_len;    /* bytes of the control string that is being skipped */
    bool closed;            /* what comes from now on is not of this command */
};

void mg_output_init(struct mg_output *o, size_t cap);
void mg_output_done(struct mg_output *o);
static inline void mg_output_cleanup(struct mg_output *o)
{
    mg_output_done(o);
}
void mg_output_feed(struct mg_output *o, const char *p, size_t n);
/* Appends the text as a result shows it, without newlines at its end and at most max bytes, cut at a character. Where something is missing,
 * a line that says how much comes first and counts. */
mg_rc mg_output_render(const struct mg_output *o, struct mg_buf *out, size_t max);

#endif
