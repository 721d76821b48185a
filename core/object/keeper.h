/* The object store's own thread: renews the leases of this process's uploads, and removes what any process left behind. Inside of core/object. */
#ifndef MG_OBJECT_KEEPER_H
#define MG_OBJECT_KEEPER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "object/backend.h"

struct mg_sha256;

struct mg_upload {
    struct mg_list link; /* objects.uploads */
    struct mg_objects *objects;
    struct mg_object_key key;
    struct mg_object_put *put;
    struct mg_sha256 *hash;
    char sha256[65];
    int64_t size;
    atomic_bool lost; /* its lease is over: whatever it writes is removed */
};

struct mg_objects {
    struct mg_object_backend *backend;
    char *conninfo;
    unsigned lease_ms, late_ms;
    atomic_bool claimed; /* the deployment's store is this one */
    pthread_t keeper;
    pthread_mutex_t lock; /* of the following */
    pthread_cond_t changed;
    struct mg_list uploads;
    bool stopping, woken;
};

mg_rc mg_keeper_start(struct mg_objects *o, struct mg_err *err) MG_MUSTCHECK;
void mg_keeper_stop(struct mg_objects *o);

#endif
