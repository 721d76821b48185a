/* Sandboxes of E2B and of what speaks like it: a control plane over REST, and in every sandbox envd, which starts programs over the
 * Connect protocol and moves files over HTTP. Two backends share all of this; what differs is in struct envd_flavor.
 *
 *   sandbox    found by the metadata io.mango.label; its id is the service's
 *   workspace  root of the settings; ROOT/.mango-run has mango-rbox (common/rbox) and what its commands leave
 *   command    one Start of mango-rbox; an interrupted stream is taken up by another Start of the same id
 *
 * Whether a sandbox is gone is told by the control plane alone (envd_after).
 *
 * Concurrency: live.h has the rules of the table; the lock of a box guards its tokens and its timer, and is never held while
 * something blocks. */
#ifndef MANGO_COMMON_ENVD_H
#define MANGO_COMMON_ENVD_H

#include <stdatomic.h>

#include "common/live.h"
#include "common/remote/rbox.h"
#include "mango/plugin.h"

enum {
    ENVD_PORT = 49983,
    ENVD_LABEL_LEN = 32,         /* hex digits */
    ENVD_ID_MAX = LIVE_ID_MAX,   /* bytes of a sandbox's id */
    ENVD_TOKEN_MAX = 1024,       /* bytes */
    ENVD_ROOT_MAX = 512,         /* bytes of the workspace's path */
    ENVD_ENV_MAX = 256,          /* variables of a spec */
    ENVD_HOSTS_MAX = 512,        /* entries of an allow list */
    ENVD_TRIES = 8,              /* of one operation on the data plane, without progress in between */
    ENVD_PING_S = 20,            /* envd says so often that a stream lives */
    ENVD_SILENCE_MS = 50000,     /* a stream without a word for so long is dead: two pings and some */
    ENVD_KILL_MS = 20000,        /* for a command to be killed, and for that to be told */
    ENVD_GRACE_MS = 12000,       /* behind a command's limit: mango-rbox kills at the limit, and needs its time */
    ENVD_IDLE_MIN_S = 30,        /* shortest timer: half of it must be long against a call */
    ENVD_IDLE_MAX_S = 24 * 3600, /* no plan has more */
};

struct envd;

struct envd_flavor {
    const char *service; /* for people */
    const char *prefix;  /* of variables: "E2B" */
    bool bearer;         /* the key goes as a bearer token */
    bool by_host;        /* the data plane is found by its host name alone: no routing headers */
    bool v2;             /* POST /v2/sandboxes first */
    bool both_spellings; /* of the internet switch: versions differ */
    /* What only this one has; those that both have are read by then. */
    mango_status (*settings)(struct envd *e, const struct mango_call *call);
};

struct envd {
    const struct envd_flavor *flavor;
    const struct mango_host *host;
    struct remote r;
    struct rbox_program program;
    struct live_table boxes;
    char *api, *key, *image, *domain, *root, *user;
    char *data_url;    /* of the data plane, fixed; or empty */
    char *data_scheme; /* "https" */
    char *data_at;     /* "host:port" to connect to; or empty */
    char *data_port;   /* ":8080" behind the host; or empty */
    uint64_t idle_s;
    bool public_traffic;                    /* the sandbox's own ports may be reached without a token */
    atomic_bool v1, one_spelling, no_timer; /* what this server turned out to be */
    _Atomic uint64_t key_good_ns;           /* until then the key needs no other look */
};

struct box {
    struct live live;
    struct envd *e;
    char label[ENVD_LABEL_LEN + 1];
    char *root;
    char **env; /* of the spec; NULL-terminated */
    /* guarded by live.lock */
    char token[ENVD_TOKEN_MAX], traffic[ENVD_TOKEN_MAX], domain[256];
    uint64_t until_ns; /* the service's timer; 0: none */
    bool paused;
};

/* What the control plane says about one sandbox. */
struct sandbox {
    char id[ENVD_ID_MAX + 1], state[16], label[ENVD_LABEL_LEN + 1], owner[ENVD_LABEL_LEN + 1], version[24];
    char token[ENVD_TOKEN_MAX], traffic[ENVD_TOKEN_MAX], domain[256];
    bool has_metadata;
    int64_t started_us; /* 0: not known */
    uint64_t left_s;    /* of its timer, by the service's own clock; 0: not known */
};

/* ---- setup.c ---- */
/* init and fini of a backend of this flavor. */
mango_status envd_init(const struct envd_flavor *flavor, const struct mango_host *h, const struct mango_call *call,
                       void **ret_ctx);
void envd_fini(void *ctx);
/* PREFIX_NAME; malloc memory or NULL. */
char *envd_setting(const struct envd *e, const char *name);
mango_status envd_no_memory(const struct envd *e, const struct mango_call *call);

/* ---- control.c ---- */
mango_status control_get(struct envd *e, const struct mango_call *call, const char *id, struct sandbox *ret);
/* Calls fn for each sandbox with the metadata name=value, also those that are paused. */
typedef bool control_each_fn(void *ctx, const struct sandbox *s); /* false: enough */
mango_status control_list(struct envd *e, const struct mango_call *call, const char *name, struct mango_sv value,
                          control_each_fn *fn, void *ctx);
/* *ret_maybe: it failed, and there may be one all the same. */
mango_status control_create(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            struct sandbox *ret, bool *ret_maybe);
/* Resumes it where it is paused; its timer is at least seconds afterwards. */
mango_status control_connect(struct envd *e, const struct mango_call *call, const char *id, uint64_t seconds,
                             struct sandbox *ret);
mango_status control_delete(struct envd *e, const struct mango_call *call, const char *id);
mango_status control_timer(struct envd *e, const struct mango_call *call, const char *id, uint64_t seconds);
mango_status control_pause(struct envd *e, const struct mango_call *call, const char *id);
mango_status control_network(struct envd *e, const struct mango_call *call, const char *id,
                             const struct mango_network *net);
mango_status control_snapshot(struct envd *e, const struct mango_call *call, const char *id, struct mango_buf *ret);
mango_status control_snapshot_delete(struct envd *e, const struct mango_call *call, struct mango_sv snapshot);
mango_status control_health(struct envd *e, const struct mango_call *call);

/* ---- network.c ---- */
/* Members of a create's body, or the body of a change. */
mango_status network_json(const struct envd *e, const struct mango_call *call, const struct mango_network *net,
                          bool create, struct text *out);

/* ---- data.c ---- */
struct data_req {
    const char *method, *path; /* path: with its query */
    const char *what, *type;
    struct mango_sv body;
    mango_source_fn *source;
    void *source_ctx;
    int64_t source_len;
    mango_sink_fn *sink;
    void *sink_ctx;
    const char *range; /* or NULL */
    bool stream;       /* a Connect stream: pings, no end of its own */
};
/* One try. The answer is the caller's to judge and to free. */
mango_status data_try(struct box *b, const struct mango_call *call, const struct data_req *req, struct remote_res *ret);
/* After a failed try number n (from 1): MANGO_OK says that another one makes sense, now. Otherwise the error is set: the sandbox
 * is gone, the sandbox refuses, or it was enough. */
mango_status envd_after(struct box *b, const struct mango_call *call, const struct data_req *req, mango_status s,
                        const struct remote_res *res, unsigned n);
/* The timer is moved on when half of it is over. */
mango_status box_touch(struct box *b, const struct mango_call *call);
/* One request that asks for nothing. */
mango_status data_ping(struct box *b, const struct mango_call *call);
void box_take_tokens(struct box *b, const struct sandbox *s, uint64_t seconds);
/* What comes from the sandbox, for people, may give back what it was asked with. */
void box_blank(struct box *b, struct text *words);
/* A file of the sandbox, by its absolute path. */
mango_status data_upload(struct box *b, const struct mango_call *call, const char *path, struct mango_sv content,
                         mango_source_fn *source, void *source_ctx, int64_t len);
/* n bytes from offset; fewer at the file's end. */
mango_status data_download(struct box *b, const struct mango_call *call, const char *path, uint64_t offset, uint64_t n,
                           mango_sink_fn *sink, void *sink_ctx, uint64_t *ret_n);
void data_remove(struct box *b, const struct mango_call *call, const char *path);

/* ---- start.c ---- one operation of mango-rbox, however many starts that takes */
struct start {
    void (*args)(void *ctx, struct rbox_args *a, const struct rbox_frames *f);
    void *ctx;
    const char *id;   /* a command: a tag for the service's own list, and each start goes on where the last one ended */
    const char *what; /* for people */
    struct rbox_frames f;
    bool sent;   /* it may have begun */
    bool anyway; /* also in a sandbox that is being removed */
};
mango_status envd_start(struct box *b, const struct mango_call *call, struct start *s);
/* Brings mango-rbox into the sandbox, and makes the workspace. */
mango_status envd_provision(struct box *b, const struct mango_call *call);

/* ---- box.c ---- */
mango_status box_enter(struct envd *e, const struct mango_call *call, struct mango_sv id, struct box **ret);
void box_leave(struct box *b);
mango_status envd_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         struct mango_sandbox_ref *ret);
mango_status envd_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
mango_status envd_detach(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status envd_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label);
mango_status envd_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                             void *fn_ctx);
void envd_drop_all(struct envd *e);

/* ---- service.c ---- */
/* All that there is; the bits of a backend say what of it is good with its service. */
extern const struct mango_sandbox_ops envd_ops;
mango_status envd_health(void *ctx, const struct mango_call *call);
mango_status envd_pause(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status envd_resume(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status envd_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_buf *ret);
mango_status envd_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot);
mango_status envd_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                       const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
mango_status envd_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_network *net);
mango_status envd_keep_alive(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds);

/* ---- exec.c, file.c ---- */
mango_status envd_exec(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_exec_req *req,
                       struct mango_exec_result *ret);
mango_status envd_read(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_read_req *req,
                       int32_t *ret_eof);
mango_status envd_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                        const struct mango_write_req *req);
mango_status envd_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                       uint32_t flags, struct mango_stat *ret);

#endif
