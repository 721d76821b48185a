/* Backend `daytona`: one sandbox of a Daytona service per session.
 *
 *   API      {DAYTONA_API_URL}             makes, finds, starts and ends sandboxes; the only authority on what exists
 *   toolbox  {toolboxProxyUrl}/{id}        commands and files of a sandbox
 *
 * A sandbox's name is made from the label and the service takes each name once, so creation is idempotent. A stopped sandbox keeps
 * its disk, and is started when somebody comes back.
 *
 * Concurrency: `stops` and `clock_us` are atomic; `lock` of struct own guards the toolbox's address. Nothing else changes. */
#ifndef MANGO_DAYTONA_H
#define MANGO_DAYTONA_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/remote/errands.h"
#include "mango/plugin.h"

enum {
    PAGE_SIZE = 200, /* of a list; the service allows no more */
    PAGES_MAX = 1000,
    POLL_MS = 200,     /* between two looks at a state that changes */
    READY_MS = 600000, /* the first build of an image, or the return from an archive, takes minutes */
    SETTLE_MS = 60000, /* for a deletion that another change holds up */
    HEALTH_MS = 5000,
    DESTROY_MS = 120000,
    SNAPSHOT_MS = 900000,
    STATE_MAX = 24,
    ID_MAX = 128,
    NAME_LEN = 6 + 32,
    URL_LEN = 512,
    LIST_MAX = 4096, /* bytes of a list of hosts */
};

#define SNAPSHOT_PREFIX "daytona-snapshot:" /* of an image that is a snapshot */

struct daytona {
    struct remote remote;
    struct errands errands;
    char *base, *key, *bearer, *organization;
    char *target, *snapshot, *image, *workspace;
    uint64_t idle_minutes;
    bool pause_asked;         /* DAYTONA_AUTO_PAUSE_MINUTES is set */
    _Atomic bool stops;       /* the service has said that its sandboxes stop and cannot pause */
    _Atomic int64_t clock_us; /* the service's clock minus ours */
};

/* The adapter's part of a live sandbox. */
struct own {
    pthread_mutex_t lock;
    char toolbox[URL_LEN]; /* guarded by lock; with the id, without '/' */
};

/* A sandbox as the API tells it. */
struct seen {
    char id[ID_MAX + 1], name[ID_MAX + 1], state[STATE_MAX], why[200];
    char label[40], owner[40], toolbox[URL_LEN], domains[LIST_MAX];
    bool ours, blocked, recoverable;
    int64_t created_us, ends_us; /* ends_us: a fixed end that the service has set; 0: none */
};

/* ---- api.c ---- */
struct api_res {
    struct remote_res http;
    struct mango_sv body;
};
mango_status api_call(struct daytona *d, const struct mango_call *call, const char *method, const char *path,
                      const struct text *body, uint32_t flags, const char *what, struct api_res *ret);
void api_free(struct daytona *d, struct api_res *r);
bool api_gone(const struct api_res *r); /* the service itself says that it does not exist */
mango_status api_fail(struct daytona *d, const struct mango_call *call, const struct api_res *r, const char *what,
                      mango_status not_found);
uint64_t api_headers(const struct daytona *d, struct mango_http_header *list);

/* ---- sandbox.c ---- */
bool seen_parse(struct mango_sv value, struct seen *ret);
bool state_is(const struct seen *s, const char *state);
bool state_gone(const struct seen *s);
mango_status sandbox_get(struct daytona *d, const struct mango_call *call, const char *id_or_name, struct seen *ret);
mango_status sandbox_post(struct daytona *d, const struct mango_call *call, const char *id, const char *verb,
                          const struct text *body, const char *what, int *ret_http);
mango_status sandbox_run(struct daytona *d, const struct mango_call *call, const char *id, struct seen *ret);
/* Until the service says that it is gone. */
mango_status sandbox_delete(struct daytona *d, const struct mango_call *call, const char *id);
mango_status daytona_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                                void *fn_ctx);

/* ---- lifecycle.c ---- */
mango_status daytona_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            struct mango_sandbox_ref *ret);
mango_status daytona_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                            const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
mango_status daytona_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label);
mango_status daytona_detach(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status daytona_pause(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status daytona_resume(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status daytona_keep_alive(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds);

/* ---- network.c ---- */
/* Members of a creation or of a change: ,"networkBlockAll":true */
mango_status network_body(struct daytona *d, const struct mango_call *call, const struct mango_network *net,
                          bool change, struct text *body);
/* The sandbox is held as was asked: a service that forgets a member is no boundary. */
mango_status network_check(struct daytona *d, const struct mango_call *call, const struct mango_network *net,
                           const struct seen *seen);
mango_status daytona_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                                 const struct mango_network *net);

/* ---- snapshot.c ---- */
mango_status daytona_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_buf *ret);
mango_status daytona_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot);
mango_status daytona_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                          const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);

/* ---- toolbox.c ---- */
extern const struct errands_service toolbox_service;
struct own *own_new(const struct seen *seen);

#endif
