/* Backend `docker`: one hardened container and one volume per session, over the Engine API.
 *
 *   container  mango-LABEL       from mango-box:TAG, the image with the program mango-box and the workspace's folder in it
 *   volume     mango-LABEL       the workspace; its label io.mango.identity tells this disk from another of the name
 *   process 1  mango-box init    waits for orphans
 *   one exec   mango-box serve   starts the commands and moves files (mux.h); a new one takes over what an old one left
 *
 * Concurrency: as in common/live.h; a box's lock guards its connection too, and its `start` is held while its connection
 * is made. No other lock is held while something blocks. */
#ifndef MANGO_DOCKER_H
#define MANGO_DOCKER_H

#include <pthread.h>
#include <stdbool.h>

#include "common/host.h"
#include "common/live.h"
#include "common/text.h"
#include "docker/endpoint.h"
#include "mango/plugin.h"

enum {
    LABEL_LEN = 32,           /* hex digits */
    NAME_LEN = 6 + LABEL_LEN, /* "mango-" and the label */
    IDENTITY_LEN = 32,
    TAG_MAX = 80,
    ARCH_MAX = 32,           /* bytes of "amd64", "arm64", ... */
    SETSID_MAX = 128,        /* bytes of a program's path in an image */
    IMAGE_MAX = 512,         /* bytes of an image's name */
    ROOT_MAX = 512,          /* bytes of the workspace's path */
    CONTROL_MS = 30000,      /* one call to the Engine that moves no content */
    TEMPLATE_MAX = 80,       /* bytes of a template's name or id, NUL included */
    DESTROY_WAIT_MS = 10000, /* for calls inside to end once the container is gone */
    KILL_WAIT_MS = 3000,     /* for everything of a command to be dead after a kill */
};

#define WORKSPACE "/workspace"
#define BOX_PATH "/.mango/box"
#define FORK_REPO "mango-fork" /* images of sandboxes that began as a snapshot: mango-fork:LABEL */
#define SNAPSHOT_REPO "mango-snapshot"
#define UNFINISHED_REPO "mango-unfinished" /* of snapshots whose names nobody knows yet */

struct settings {
    char *image, *user, *runtime, *network, *config_dir;
    int runner;                                   /* RUNNER_* */
    uint64_t memory_bytes, disk_bytes, tmp_bytes; /* disk_bytes 0: no limit */
    uint32_t cpu_millis, pids;
};

/* How commands are started: by mango-box in the container where it can run; by nothing else; by execs of the Engine. */
enum { RUNNER_AUTO, RUNNER_BOX, RUNNER_EXEC };

struct bundle;
struct docker {
    const struct mango_host *host;
    struct endpoint at;
    char api[16];            /* "1.41", as agreed with the Engine */
    char arch[ARCH_MAX];     /* of the Engine's host, as images name theirs */
    char box_arch[ARCH_MAX]; /* of mango-box */
    struct settings set;
    struct mango_buf *program; /* mango-box, for new images */
    uint64_t program_hash;
    uint32_t uid, gid;     /* of set.user */
    struct bundle *bundle; /* of the launcher; its own */
    struct live_table boxes;
};

struct mux;
struct box {
    struct live live; /* first; its lock guards mux and paused */
    struct docker *docker;
    char identity[IDENTITY_LEN + 1];
    char *root;
    char **env; /* of the spec; NULL-terminated */

    pthread_mutex_t start; /* held while a connection is made */
    struct mux *mux;       /* counted; NULL: none yet */
    bool paused;
    bool limited; /* has a door of the filtering proxy; does not change, as plain */

    bool plain;           /* no mango-box in it: plain.h */
    struct plain *plains; /* guarded by lock: commands that this process waits for */
    bool plain_ready;     /* taken over by this process; guarded by lock, as has_tar */
    bool has_tar;
    char setsid[SETSID_MAX]; /* the program that starts and waits, or empty; written under start before plain_ready */
};

/* call with another limit: ms from now, or call's own deadline when that comes first. */
static inline struct mango_call call_within(const struct docker *d, const struct mango_call *call, uint32_t ms)
{
    struct mango_call own = {.struct_size = sizeof(own), .token = call->token, .err = call->err};
    uint64_t until = now_ns(d->host) + ms * UINT64_C(1000000);
    own.deadline_ns = call->deadline_ns && call->deadline_ns < until ? call->deadline_ns : until;
    return own;
}

/* ---- engine.c ---- */
struct engine_req {
    const char *method, *path; /* path without the version: "/containers/create?name=x" */
    struct mango_sv body;
    const char *type;     /* of body; NULL: application/json */
    const char *registry; /* X-Registry-Auth, or NULL */
    mango_sink_fn *sink;  /* gets the body of a good answer, or NULL */
    void *sink_ctx;
    mango_source_fn *source; /* instead of body */
    void *source_ctx;
    bool control; /* limited to CONTROL_MS */
    bool once;    /* must not be sent twice */
};
struct engine_res {
    int status; /* HTTP; 0: none came */
    struct mango_buf *body;
};
/* MANGO_OK: an answer came, good or bad. The caller frees the answer in every case. */
mango_status engine_call(const struct docker *d, const struct mango_call *call, const struct engine_req *req,
                         struct engine_res *ret);
/* For what is taken back after a failure: neither the token nor the deadline of the call that failed. */
struct mango_call call_of_ours(const struct docker *d);
struct mango_sv engine_body(const struct docker *d, const struct engine_res *r); /* checked JSON, or empty */
void engine_free(const struct docker *d, struct engine_res *r);
/* The Engine's own words with what was tried; the class follows from the HTTP status. */
mango_status engine_fail(const struct docker *d, const struct mango_call *call, const struct engine_res *r,
                         const char *what);
/* A POST that turns into a stream. MANGO_OK with *ret 0: the Engine refused, see r. */
mango_status engine_hijack(const struct docker *d, const struct mango_call *call, const char *path,
                           struct mango_sv body, struct engine_res *r, mango_conn *ret);
/* Asks the Engine who it is and agrees on a version. */
mango_status engine_hello(struct docker *d, const struct mango_call *call);

/* ---- credentials.c ---- */
/* Appends the value of X-Registry-Auth for the image's registry; nothing when there are no credentials for it. */
mango_status registry_auth(const struct docker *d, const struct mango_call *call, const char *image, struct text *out);

/* ---- image.c ---- */
struct image {
    char child[TAG_MAX];
    char arch[ARCH_MAX]; /* when it is another than that of the Engine's host; else empty */
};
/* Pulls the image when it is not there, and names its child with mango-box and the workspace's folder. */
mango_status image_child(struct docker *d, const struct mango_call *call, const char *image, const char *root,
                         struct image *ret);
/* The same, and the child is there. */
mango_status image_ready(struct docker *d, const struct mango_call *call, const char *image, const char *root,
                         struct image *ret);
/* Makes the child. */
mango_status image_make(struct docker *d, const struct mango_call *call, const char *image, const char *root,
                        const char *child);

/* MANGO_ENOENT without words when it is not there; ret_id: its Id; ret_arch: when it is foreign to the Engine's host. */
mango_status image_inspect(struct docker *d, const struct mango_call *call, const char *image, char ret_id[TAG_MAX],
                           char ret_arch[ARCH_MAX]);

/* A container that never runs, to make an image of; whoever made it drops it. */
mango_status template_make(const struct docker *d, const struct mango_call *call, const char *image,
                           char ret_name[TEMPLATE_MAX]);
void template_drop(const struct docker *d, const char *name);
/* Another name for an image. */
mango_status image_tag(const struct docker *d, const struct mango_call *call, struct mango_sv image, const char *repo,
                       struct mango_sv tag);
/* Takes the name away, and the image where it was its last. MANGO_ENOENT: there is none. */
mango_status image_drop(const struct docker *d, const struct mango_call *call, struct mango_sv name);
/* Templates and unfinished snapshots of processes that died. */
void templates_sweep(const struct docker *d, const struct mango_call *call);
/* name: "repository:tag"; kind and base become labels. */
mango_status image_commit(const struct docker *d, const struct mango_call *call, const char *id, const char *name,
                          const char *kind, const char *base);

/* ---- container.c ---- the Engine's side of one sandbox */
struct container {
    bool there, running, paused;
    char image[TAG_MAX]; /* its Id */
    bool open_network;   /* any but none */
    bool door;           /* the filtering proxy's folder is mounted */
    bool plain;          /* without mango-box */
    char arch[ARCH_MAX]; /* of its image, when that is foreign here */
    char label[LABEL_LEN + 1], identity[IDENTITY_LEN + 1];
    char root[ROOT_MAX];
};
mango_status container_inspect(const struct docker *d, const struct mango_call *call, const char *name,
                               struct container *ret);
/* Members of a request's HostConfig, each with a comma behind it; the mounts without. */
void container_put_limits(struct text *t, const struct docker *d, const struct mango_sandbox_spec *spec);
void container_put_mounts(struct text *t, const struct mango_sandbox_spec *spec, const char *volume, const char *root,
                          struct mango_sv door);
/* *ret_status 409: the name is taken. MANGO_ENOENT: the image is not there. */
mango_status container_post(const struct docker *d, const struct mango_call *call, struct mango_sv body,
                            const char *name, int *ret_status);
/* Makes it or finds it; identity is the one of what is there then. MANGO_EDENIED: it is another session's. */
mango_status volume_make(const struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         const char *name, const char *root, char identity[IDENTITY_LEN + 1], bool *ret_new);
mango_status volume_look(const struct docker *d, const struct mango_call *call, const char *name, struct mango_sv label,
                         bool *ret_there);
mango_status volume_drop(const struct docker *d, const struct mango_call *call, const char *name);
/* *ret: what was made. *ret_lost: another one has made it meanwhile, and *ret is as it was. */
mango_status container_make(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            const char *name, const char *root, bool plain, struct container *ret, bool *ret_lost);
/* *ret_refused: the Engine said no. After a crash in the middle of a start it does so for ever. */
mango_status container_start(const struct docker *d, const struct mango_call *call, const char *name,
                             bool *ret_refused);
/* Ends all that runs in it, at once. */
mango_status container_restart(const struct docker *d, const struct mango_call *call, const char *name);
mango_status container_pause(const struct docker *d, const struct mango_call *call, const char *name);
mango_status container_unpause(const struct docker *d, const struct mango_call *call, const char *name);
/* MANGO_EGONE with words when there is none or another than identity. */
mango_status volume_check(const struct docker *d, const struct mango_call *call, const char *name,
                          const char *identity);
/* The container alone, whosever it is. */
mango_status container_drop(const struct docker *d, const struct mango_call *call, const char *name);
mango_status container_remove(const struct docker *d, const struct mango_call *call, const char *name,
                              struct mango_sv label);

/* ---- create.c ---- */
mango_status docker_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           struct mango_sandbox_ref *ret);
mango_status docker_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                           const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);

/* ---- box.c ---- */
/* The one that is attached already, or a new one in the table. ret: told, or NULL. */
mango_status box_enlist(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                        const char *id, const struct container *c, bool found, struct mango_sandbox_ref *ret);
/* It runs afterwards. *ret_refused: as container_start has it. */
mango_status box_wake(const struct docker *d, const struct mango_call *call, const char *name,
                      const struct container *c, bool *ret_refused);
mango_status docker_detach(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status docker_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label);
/* "mango-LABEL": the name of a session's container and volume. */
void sandbox_name(struct mango_sv label, char id[NAME_LEN + 1]);
/* Finds an attached box for one call; MANGO_EGONE when it is dying or was never attached. */
mango_status box_enter(struct docker *d, const struct mango_call *call, struct mango_sv id, struct box **ret);
void boxes_drop_all(struct docker *d);
/* The connection into the container, made when there is none; starts a container that has stopped. The caller gives it
 * back with mux_unref. */
mango_status box_mux(struct box *b, const struct mango_call *call, struct mux **ret);

/* Starts a container that has stopped, when it is still the session's. */
mango_status box_revive(struct box *b, const struct mango_call *call);

/* ---- owned.c ---- */
mango_status docker_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                               void *fn_ctx);

/* ---- exec.c, file.c, proc.c ---- */
mango_status docker_exec(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_exec_req *req,
                         struct mango_exec_result *ret);
mango_status docker_read(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_read_req *req,
                         int32_t *ret_eof);
mango_status docker_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_write_req *req);
mango_status docker_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                         uint32_t flags, struct mango_stat *ret);
mango_status docker_proc_open(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_exec_req *req, mango_proc *ret);
mango_status docker_proc_write(void *ctx, const struct mango_call *call, mango_proc proc, struct mango_sv data);
mango_status docker_proc_read(void *ctx, const struct mango_call *call, mango_proc proc, mango_sink_fn *sink,
                              void *sink_ctx, int32_t *ret_closed, struct mango_exec_result *ret);
mango_status docker_proc_close(void *ctx, const struct mango_call *call, mango_proc proc);

#endif
