/* Bodies of uploads and downloads: a form with one file that streams, and a range that may come as the whole file. */
#ifndef MANGO_COMMON_CONTENT_H
#define MANGO_COMMON_CONTENT_H

#include "common/text.h"

enum {
    FORM_HEAD_MAX = 2048, /* bytes of what stands before the file */
    FORM_TAIL_MAX = 64,
    FORM_TYPE_MAX = 96,
};

/* multipart/form-data. Begin, add fields and the file's head, then it is a source. */
struct form {
    char boundary[40], type[FORM_TYPE_MAX];
    char head[FORM_HEAD_MAX], tail[FORM_TAIL_MAX];
    uint64_t n_head, n_tail, at; /* at: of head and tail together */
    mango_source_fn *source;
    void *ctx;
    bool ended, bad;
};
void form_begin(struct form *f, mango_source_fn *source, void *ctx);
/* disposition: what stands behind "form-data; ". type may be NULL. */
void form_field(struct form *f, const char *disposition, const char *type, const char *value);
void form_file(struct form *f, const char *disposition);
int64_t form_read(void *form, char *p, uint64_t n);     /* a mango_source_fn */
int64_t form_length(const struct form *f, int64_t len); /* of all, with a file of so many bytes; -1: not known */

/* A download from an offset, whether or not the service heeds Range. */
struct range {
    mango_sink_fn *sink;
    void *ctx;
    uint64_t skip; /* bytes before the range, when all of the file comes */
    bool partial;
    char header[64]; /* the value of Range */
};
void range_begin(struct range *g, uint64_t offset, uint64_t n, mango_sink_fn *sink, void *ctx);
void range_on_header(void *range, struct mango_sv name, struct mango_sv value);
int32_t range_take(void *range, int32_t stream, const char *p, uint64_t n);

#endif
