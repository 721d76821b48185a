/* Shared by the files of errands.h: one errand and its answer. */
#ifndef MANGO_COMMON_ERRAND_CALL_H
#define MANGO_COMMON_ERRAND_CALL_H

#include "common/errand/errand.h"
#include "common/remote/errands.h"

/* An answer, as it comes. Content goes to on_content; the last line is kept. */
struct reply {
    void (*on_content)(void *ctx, char kind, uint64_t offset, const char *p, uint64_t n); /* may be NULL */
    void (*on_fetch)(void *ctx, int stream, uint64_t offset, uint64_t n);                 /* line "b" */
    void *ctx;
    char line[ERRAND_PIECE * 4 / 3 + 128];
    uint32_t len;
    bool skip;      /* the present line is too long to be ours */
    bool bad;       /* a line of ours that makes no sense */
    bool sent;      /* of any try */
    char last;      /* kind of the last line, 0: it has not come */
    char rest[256]; /* of it, behind the kind */
};
int32_t reply_feed(void *reply, int32_t stream, const char *p, uint64_t n); /* a mango_sink_fn */

/* A request of errand.h. */
void request_begin(struct text *t, uint64_t op, const struct errands_box *b, char *const *forget, unsigned n_forget);
void request_number(struct text *t, uint64_t v);
void request_text(struct text *t, struct mango_sv s);

/* Sends it until an answer has come whole, and puts the program in when it is missing. body: the fields behind the list. r is
 * begun anew for each try. MANGO_OK: r->last is there. */
mango_status errand_send(struct errands *e, const struct mango_call *call, struct errands_box *b, uint64_t op,
                         const struct text *body, uint32_t ms, struct reply *r);
/* The error of an answer "!". */
mango_status errand_refused(const struct errands *e, const struct mango_call *call, const struct reply *r,
                            struct mango_sv path);
mango_status errand_install(struct errands *e, const struct mango_call *call, struct errands_box *b);

/* "in-..." and its path in the sandbox. */
void content_name(char name[32]);
char *content_path(const struct errands_box *b, const char *name); /* malloc */
void box_forget(struct errands_box *b, const char *prefix, const char *name);

/* Content that comes in from a caller, counted. */
struct inflow {
    struct mango_sv data; /* what is left of the whole content */
    mango_source_fn *source;
    void *ctx;
    uint64_t bytes;
    mango_status gave_up;
};
int64_t inflow_read(void *ctx, char *p, uint64_t n);
/* Puts it in under name. Whole content is sent again after a break, a stream is not. */
mango_status content_upload(struct errands *e, const struct mango_call *call, struct errands_box *b, const char *name,
                            struct mango_sv data, mango_source_fn *source, void *source_ctx, int64_t len,
                            uint64_t *ret_bytes);
/* Fetches n bytes from offset of a file in ERRAND_DIR; goes on where a connection broke. *ret_n: that many came. */
mango_status content_fetch(struct errands *e, const struct mango_call *call, struct errands_box *b, const char *name,
                           uint64_t offset, uint64_t n, mango_sink_fn *sink, void *sink_ctx, uint64_t *ret_n);

#endif
