/* multipart/form-data (RFC 7578), read as it arrives in whatever pieces. Pure, bounded: a part's headers are kept, its content is handed on.
 *
 * Strict: a body that is not whole, a part without a name, two values of one parameter, a transfer encoding are errors (MG_EINVAL). */
#ifndef MG_HTTP_MULTIPART_H
#define MG_HTTP_MULTIPART_H

#include "base/err.h"
#include "base/sv.h"

struct mg_part {
    struct mg_sv name;
    struct mg_sv
        filename; /* ptr NULL: a plain field. As it was sent, decoded; valid UTF-8 without control characters */
    struct mg_sv content_type; /* empty: none given */
};

struct mg_multipart_ops {
    mg_rc (*part)(void *ctx, const struct mg_part *p, struct mg_err *err); /* begins; the views end with the call */
    mg_rc (*data)(void *ctx, struct mg_sv data, struct mg_err *err);
    mg_rc (*end)(void *ctx, struct mg_err *err);
    void *ctx;
};

enum {
    MG_MULTIPART_HEAD_MAX = 16 * 1024, /* bytes of one part's headers */
    MG_MULTIPART_PARTS_MAX = 2000,     /* parts of a body: a skill has up to 1,000 files */
};

struct mg_multipart;

/* content_type: the request's header. MG_EMEDIA when it is not multipart/form-data, MG_EINVAL when its boundary is not usable. */
mg_rc mg_multipart_new(struct mg_sv content_type, const struct mg_multipart_ops *ops, struct mg_multipart **ret,
                       struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_multipart_feed(struct mg_multipart *m, struct mg_sv data, struct mg_err *err) MG_MUSTCHECK;
/* The body has ended: MG_EINVAL when its last boundary is missing. */
mg_rc mg_multipart_finish(struct mg_multipart *m, struct mg_err *err) MG_MUSTCHECK;
void mg_multipart_free(struct mg_multipart *m); /* NULL is fine */
static inline void mg_multipart_cleanup(struct mg_multipart **m)
{
    mg_multipart_free(*m);
}

#endif
