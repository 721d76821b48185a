/* Resources of a session (api-contract 3.6): what may be attached, and where. Pure. */
#ifndef MG_DOMAIN_RESOURCE_H
#define MG_DOMAIN_RESOURCE_H

#include "domain/check.h"

enum {
    MG_RESOURCES_MAX = 500,           /* of a session */
    MG_MOUNT_PATH_MAX = 1024,         /* bytes */
    MG_MOUNT_COMPONENT_MAX = 255,     /* bytes of one of its components */
    MG_SESSION_STORES_MAX = 8,        /* memory stores of a session: semantics ME1 */
    MG_STORE_INSTRUCTIONS_MAX = 4096, /* characters */
};
#define MG_RESOURCE_BYTES_MAX (500LL * 1024 * 1024) /* of all files of a session together */
#define MG_MOUNT_UPLOADS "/mnt/session/uploads"
#define MG_MOUNT_OUTPUTS "/mnt/session/outputs"
#define MG_MOUNT_MEMORY "/mnt/memory"

/* A file, or (memory_store_id set) a memory store, which has no mount path of the client's, or (url set) a repository. */
struct mg_resource_spec {
    struct mg_sv url, checkout, token; /* checkout: JSON; it and token ptr NULL: none. The token is in no other text */
    struct mg_sv memory_store_id, instructions; /* ptr NULL: none */
    bool read_only;
    struct mg_sv file_id;
    struct mg_sv mount_path; /* absolute and clean; filled in where none was given */
};

/* One entry; place: "resources[0]", or "" for the body of its own request. */
mg_rc mg_resource_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_resource_spec *ret,
                        struct mg_err *err) MG_MUSTCHECK;
/* The array of a session's creation; no two may meet at one place. */
mg_rc mg_resources_parse(struct mg_arena *a, const struct mg_json *v, struct mg_resource_spec **ret, int *ret_n,
                         struct mg_err *err) MG_MUSTCHECK;
/* An absolute path at which a file may be mounted; also read by its fuzzer. */
mg_rc mg_mount_path_check(struct mg_sv path, const char *place, struct mg_err *err) MG_MUSTCHECK;
/* Whether one of the paths is the other or lies below it. */
bool mg_mounts_meet(struct mg_sv a, struct mg_sv b);

#endif
