/* What adapters tell their host: errors, with words for people. */
#ifndef MANGO_COMMON_HOST_H
#define MANGO_COMMON_HOST_H

#include "common/sv.h"
#include "mango/host.h"

enum { SHOWN_MAX = 200 /* bytes of a path in an error */ };

/* Both give back the class of the error: "return fail(...)". */
mango_status fail(const struct mango_host *h, const struct mango_call *call, mango_status s, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* From errno, with the path that the caller gave: "'a/b' does not exist". */
mango_status fail_path(const struct mango_host *h, const struct mango_call *call, int errnum, struct mango_sv path);
/* The same with other words behind the path; empty: those of errnum. */
mango_status fail_path_as(const struct mango_host *h, const struct mango_call *call, int errnum, struct mango_sv path,
                          struct mango_sv text);

/* A path for people: control characters and bytes outside of ASCII become '?'. */
void shown(struct mango_sv path, char out[SHOWN_MAX + 1]);

static inline uint64_t now_ns(const struct mango_host *h)
{
    return h->now_ns(h);
}

#endif
