/* Shared by the files of libmango-plugin.a only. */
#ifndef MANGO_HELPERS_HELPERS_H
#define MANGO_HELPERS_HELPERS_H

#include <stdbool.h>

#include "common/host.h"
#include "mango/helpers.h"

/* Bytes that come whole, or from a source. */
struct helper_content {
    struct mango_sv whole;
    mango_source_fn *source; /* or NULL */
    void *ctx;
    int64_t len; /* that source gives; -1: not known */
};

mango_status helper_check(const struct mango_host *h, const struct mango_call *call, const struct mango_folder *f);
int helper_open(const struct mango_folder *f, struct mango_sv path, uint64_t flags); /* -errno on failure */
int helper_put(int fd, const char *p, uint64_t n);                                   /* 0 or errno */
mango_status helper_put_all(const struct mango_host *h, const struct mango_call *call, int fd,
                            const struct helper_content *c, struct mango_sv path);

#endif
