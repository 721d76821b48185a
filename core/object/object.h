/* The object store: bytes that are too large for rows, in a folder or in an S3-compatible store.
 *
 * An upload has a row of its own (store/object.h) before its first byte, under a lease that the keeper's thread renews while the bytes come in.
 * It becomes ready in the transaction that makes what refers to it. Whatever ends otherwise, a crash included, is found by the keeper of any
 * node, claimed by one, and removed; the row outlives the bytes until no late write can follow.
 *
 * Concurrency: any thread; an upload belongs to one at a time. Calls block on the disk or the network: they are made on threads that may wait. */
#ifndef MG_OBJECT_OBJECT_H
#define MG_OBJECT_OBJECT_H

#include "base/buf.h"
#include "base/cancel.h"
#include "store/object.h"

enum {
    MG_OBJECT_LEASE_MS = 60000, /* of an upload: renewed every third of it */
    MG_OBJECT_LATE_MS =
        15 * 60000, /* after the lease of a writer that nobody heard of again, when no write of its can come any more */
    MG_OBJECT_STEP_MS = 5000,    /* of one round of the keeper */
    MG_OBJECT_GUARDS_MAX = 100,  /* guards of one round */
    MG_OBJECT_PIECE = 64 * 1024, /* bytes that a reader gets at once */
};

/* The error code (with MG_EIO) of a read whose bytes are not there any more, or are others: no other try mends it. */
#define MG_OBJECT_LOST "object_lost"

struct mg_objects;
struct mg_upload;

/* An S3-compatible store; strings are never NULL. */
struct mg_s3_opts {
    const char *endpoint; /* "": the vendor's, of the region */
    const char *region, *bucket, *prefix, *access_key, *secret_key;
    const char *ca_file; /* NULL: the system's */
    bool path_style;
};

struct mg_objects_opts {
    const struct mg_s3_opts *s3; /* NULL: the folder */
    const char *dir;             /* the folder; made when missing */
    const char *conninfo;        /* of the keeper; copied */
    unsigned lease_ms, late_ms;  /* 0: the defaults above */
};

mg_rc mg_objects_open(const struct mg_objects_opts *o, struct mg_objects **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_objects_close(struct mg_objects *o); /* joins the keeper; no upload may be open. NULL is fine */

/* kind: "file", "skill". Writes the row, then opens the object. */
mg_rc mg_upload_begin(struct mg_objects *o, struct mg_pg *pg, struct mg_sv workspace, const char *kind,
                      struct mg_upload **ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_upload_write(struct mg_upload *u, struct mg_sv data, struct mg_err *err) MG_MUSTCHECK;
/* All bytes are written: makes them durable. */
mg_rc mg_upload_seal(struct mg_upload *u, struct mg_err *err) MG_MUSTCHECK;
int64_t mg_upload_size(const struct mg_upload *u);
const char *mg_upload_sha256(const struct mg_upload *u); /* after the seal */
const struct mg_object_key *mg_upload_key(const struct mg_upload *u);
/* In the transaction that makes what refers to the object; after the seal. */
mg_rc mg_upload_complete(struct mg_upload *u, struct mg_arena *a, struct mg_txn *t, struct mg_err *err) MG_MUSTCHECK;
/* Ends the upload and frees it. committed: MG_OK, or how the transaction failed: with code "commit_unknown" in err the bytes stay, for the
 * keeper to find out; else they are removed. */
void mg_upload_end(struct mg_upload *u, struct mg_pg *pg, mg_rc committed, const struct mg_err *err);

/* Gives the object's bytes to sink, piece by piece, on this thread. size: what the row says; another one is MG_EIO. */
typedef mg_rc mg_object_sink(void *ctx, struct mg_sv data, struct mg_err *err);
mg_rc mg_object_read(struct mg_objects *o, struct mg_pg *pg, struct mg_sv key, int64_t size, mg_object_sink *sink,
                     void *ctx, struct mg_cancel *cancel, struct mg_err *err) MG_MUSTCHECK;
/* All of it into out, which must have room for size bytes. */
mg_rc mg_object_load(struct mg_objects *o, struct mg_pg *pg, struct mg_sv key, int64_t size, struct mg_buf *out,
                     struct mg_cancel *cancel, struct mg_err *err) MG_MUSTCHECK;
/* At most max bytes from offset at into p; fewer only at the end. */
mg_rc mg_object_read_at(struct mg_objects *o, struct mg_pg *pg, struct mg_sv key, int64_t size, int64_t at, char *p,
                        size_t max, size_t *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Something was released (mg_object_release): the keeper looks soon. */
void mg_objects_wake(struct mg_objects *o);

#endif
