/* What keeps the bytes: a folder, or S3. Inside of core/object. */
#ifndef MG_OBJECT_BACKEND_H
#define MG_OBJECT_BACKEND_H

#include "object/object.h"

struct mg_object_backend;
struct mg_object_put;

struct mg_object_ops {
    mg_rc (*put)(struct mg_object_backend *b, const char *key, struct mg_object_put **ret, struct mg_err *err);
    mg_rc (*write)(struct mg_object_put *p, struct mg_sv data, struct mg_err *err);
    /* The object is there, whole and durable, when this is MG_OK; otherwise it may be. */
    mg_rc (*seal)(struct mg_object_put *p, struct mg_err *err);
    /* Frees; what was not sealed is dropped as far as it can be. False: the store may still carry out a write of it. */
    bool (*end)(struct mg_object_put *p);
    mg_rc (*read)(struct mg_object_backend *b, const char *key, int64_t size, mg_object_sink *sink, void *ctx,
                  struct mg_cancel *cancel, struct mg_err *err);
    /* Exactly n bytes from offset at. */
    mg_rc (*read_at)(struct mg_object_backend *b, const char *key, int64_t at, char *p, size_t n, struct mg_err *err);
    /* MG_OK: nothing of it is there any more; partial: the beginnings of an upload included. */
    mg_rc (*remove)(struct mg_object_backend *b, const char *key, bool partial, struct mg_err *err);
    void (*close)(struct mg_object_backend *b);
};

/* The beginning of every backend. */
struct mg_object_backend {
    const struct mg_object_ops *ops;
    char identity[256]; /* which store this is, the same on every node that has it */
};

mg_rc mg_object_s3_open(const struct mg_s3_opts *o, struct mg_object_backend **ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_object_folder_open(const char *dir, struct mg_object_backend **ret, struct mg_err *err) MG_MUSTCHECK;

#endif
