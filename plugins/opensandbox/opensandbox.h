/* Backend `opensandbox`: one sandbox of an OpenSandbox service per session.
 *
 *   lifecycle API  {OPEN_SANDBOX_DOMAIN}/v1     makes, finds, pauses and ends sandboxes; the only authority on what exists
 *   execd          endpoint of port 44772       a program in the sandbox: commands and files
 *   egress         endpoint of port 18080       the filter of a limited network beside the sandbox
 *
 * A sandbox is known by its metadata: io.mango.session_key is the label, io.mango.owner the deployment. The service has no key for
 * idempotent creation: after each creation all sandboxes of the label are listed, the oldest stays, the maker of a younger one
 * ends it.
 *
 * Concurrency: `clock` and the numbers of struct osb are atomic, `making` is a set of locks by label held while a sandbox is made;
 * `lock` of struct own guards the endpoint, which changes when a sandbox is started anew. Nothing else changes. */
#ifndef MANGO_OPENSANDBOX_H
#define MANGO_OPENSANDBOX_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/remote/errands.h"
#include "mango/plugin.h"

enum {
    EXECD_PORT = 44772,
    EGRESS_PORT = 18080,
    MAKING_LOCKS = 64,
    PAGE_SIZE = 100,        /* of a list; the service allows 200 */
    PAGES_MAX = 1000,       /* of one list; more is a service that repeats itself */
    POLL_MS = 200,          /* between two looks at a state that changes, as the official client has it */
    READY_MS = 120000,      /* for a sandbox to answer after its creation, its start, or its resumption */
    STREAM_IDLE_MS = 20000, /* the service pings every 3 s */
    ENDPOINT_HEADERS = 8,
    TIMEOUT_MIN_S = 60, /* the service's lower limit */
    HEALTH_MS = 5000,
    DESTROY_MS = 60000,
    SNAPSHOT_MS = 600000,
    STATE_MAX = 24,
    ID_MAX = 128,
};

#define SNAPSHOT_PREFIX "opensandbox-snapshot:" /* of an image that is a snapshot */

struct osb {
    struct remote remote;
    struct errands errands;
    char *base, *scheme; /* "http://localhost:8080/v1", "http" */
    char *key;           /* NULL: none */
    char *image, *cpu, *memory, *workspace;
    bool server_proxy;
    uint64_t timeout_s;       /* 0: sandboxes live until they are destroyed */
    _Atomic int64_t clock_us; /* the service's clock minus ours */
    pthread_mutex_t making[MAKING_LOCKS];
};

/* An address in the sandbox, with what must go along; a secret. */
struct endpoint {
    char *url;
    char *names[ENDPOINT_HEADERS], *values[ENDPOINT_HEADERS];
    uint64_t n_headers;
};

/* The adapter's part of a live sandbox. */
struct own {
    pthread_mutex_t lock;
    struct endpoint execd; /* guarded by lock; url NULL: to be asked for */
    int64_t expires_us;    /* guarded by lock; of the service's clock; 0: never */
};

/* A sandbox as the lifecycle API tells it. */
struct seen {
    char id[ID_MAX + 1], state[STATE_MAX];
    char label[40], owner[40];
    bool ours;                      /* made by Mango */
    bool no_metadata;               /* it has none at all: some runtimes show none of a paused one */
    int64_t created_us, expires_us; /* 0: not told, never */
};

/* ---- api.c ---- */
struct api_res {
    struct remote_res http;
    struct mango_sv body; /* checked JSON, or empty */
};
/* path: behind /v1. flags of remote.h; JSON is asked for. The answer is the caller's to free. */
mango_status api_call(struct osb *o, const struct mango_call *call, const char *method, const char *path,
                      const struct text *body, uint32_t flags, const char *what, struct api_res *ret);
void api_free(struct osb *o, struct api_res *r);
bool api_gone(const struct api_res *r); /* the service itself says that it does not exist */
mango_status api_fail(struct osb *o, const struct mango_call *call, const struct api_res *r, const char *what,
                      mango_status not_found);
int64_t service_now_us(struct osb *o);

/* ---- sandbox.c ---- */
bool seen_parse(struct mango_sv value, struct seen *ret);
/* MANGO_EGONE: the service says so, or its state is one without return. */
mango_status sandbox_get(struct osb *o, const struct mango_call *call, const char *id, struct seen *ret);
/* Calls fn for every sandbox with that metadata; non-zero stops. */
mango_status sandbox_list(struct osb *o, const struct mango_call *call, const char *key, struct mango_sv value,
                          int (*fn)(void *ctx, const struct seen *s), void *ctx);
mango_status sandbox_delete(struct osb *o, const struct mango_call *call, const char *id);
/* Until it runs: resumes what is paused, waits for what is on its way. */
mango_status sandbox_run(struct osb *o, const struct mango_call *call, const char *id, struct seen *ret);
mango_status sandbox_renew(struct osb *o, const struct mango_call *call, const char *id, uint64_t seconds,
                           int64_t *ret_expires_us);
bool state_is(const struct seen *s, const char *state);
bool state_over(const struct seen *s); /* it will not run again */

/* ---- lifecycle.c ---- */
mango_status osb_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                        struct mango_sandbox_ref *ret);
mango_status osb_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                        const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
mango_status osb_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label);
mango_status osb_detach(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status osb_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                            void *fn_ctx);
mango_status osb_pause(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status osb_resume(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status osb_keep_alive(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds);

/* ---- snapshot.c ---- */
mango_status osb_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_buf *ret);
mango_status osb_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot);
mango_status osb_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                      const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);

/* ---- policy.c ---- */
/* The "networkPolicy" of a creation; nothing for an open network. */
mango_status policy_body(struct osb *o, const struct mango_call *call, const struct mango_network *net,
                         struct text *body);
/* A filter that can be walked around is none: MANGO_EUNSUPPORTED. */
mango_status policy_refused(struct osb *o, const struct mango_call *call);
mango_status policy_check(struct osb *o, const struct mango_call *call, const char *id);
mango_status osb_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_network *net);

/* ---- execd.c ---- */
extern const struct errands_service execd_service;
struct own *own_new(void);
mango_status endpoint_get(struct osb *o, const struct mango_call *call, const char *id, int port, struct endpoint *ret);
void endpoint_free(struct endpoint *e);
uint64_t endpoint_headers(const struct endpoint *e, struct mango_http_header *list);
mango_status execd_wait(struct osb *o, const struct mango_call *call, const char *id, struct endpoint *e);

#endif
