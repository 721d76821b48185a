/* Mango plugin ABI 1: operations of a sandbox backend.
 *
 * A sandbox is named by a text id that the plugin chooses and the core stores, so that another process can attach to it
 * later; live state hangs on ctx. In each process the core calls create or attach for an id before any other operation
 * on it (destroy excepted).
 *
 * Threads: operations block and run on the core's workers. Different sandboxes: called at the same time. One sandbox:
 * one call at a time, unless MANGO_CAP_CONCURRENT_EXEC is set; destroy may come at any moment and ends what runs. */
#ifndef MANGO_SANDBOX_H
#define MANGO_SANDBOX_H

#include "mango/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Capabilities (mango_plugin.caps). A bit whose operation is missing refuses the plugin. Bits marked * promise
 * behaviour only. */
#define MANGO_CAP_LIST_OWNED (UINT64_C(1) << 0)     /* list_owned: orphans can be found */
#define MANGO_CAP_PROC (UINT64_C(1) << 1)           /* proc_open, proc_write, proc_read, proc_close */
#define MANGO_CAP_PAUSE (UINT64_C(1) << 2)          /* pause, resume */
#define MANGO_CAP_SNAPSHOT (UINT64_C(1) << 3)       /* snapshot, snapshot_delete */
#define MANGO_CAP_FORK (UINT64_C(1) << 4)           /* fork: a new sandbox from a snapshot */
#define MANGO_CAP_EGRESS_LIMITED (UINT64_C(1) << 5) /* set_network: an allow list of hosts is enforced */
#define MANGO_CAP_PACKAGES (UINT64_C(1) << 6)       /* packages */
#define MANGO_CAP_MOUNTS_RO (UINT64_C(1) << 7)      /* * spec.mounts */
#define MANGO_CAP_ARCHIVES (UINT64_C(1) << 8)       /* archive_in, archive_out */
#define MANGO_CAP_LIMITS (UINT64_C(1) << 9)         /* * spec.memory_bytes, cpu_millis, pids, disk_bytes are enforced */
#define MANGO_CAP_PTY (UINT64_C(1) << 10)           /* proc_open with MANGO_PROC_PTY, proc_resize */
#define MANGO_CAP_KEEP_ALIVE (UINT64_C(1) << 11)    /* keep_alive: the service has an expiry timer that can be moved */
#define MANGO_CAP_DURABLE_WORKSPACE \
    (UINT64_C(1) << 12)                               /* * files survive a stop, a pause and a restart of the host   \
                                                         */
#define MANGO_CAP_CONCURRENT_EXEC (UINT64_C(1) << 13) /* * several calls on one sandbox at a time */
#define MANGO_CAP_ISOLATED \
    (UINT64_C(1) << 14) /* * a boundary against hostile commands; without it no network model is allowed */
#define MANGO_CAP_NO_NETWORK (UINT64_C(1) << 15) /* * MANGO_NET_NONE is enforced */
/* Weaknesses of the service, so that the core brings its helper for them. */
#define MANGO_TRAIT_NO_KILL \
    (UINT64_C(1) << 32) /* * a command cannot be killed by the service: the core signals its group itself */
#define MANGO_TRAIT_TEXT_OUTPUT \
    (UINT64_C(1) << 33)                         /* * output comes as text: the core encodes bytes inside the sandbox */
#define MANGO_TRAIT_EXPIRES (UINT64_C(1) << 34) /* * sandboxes end by themselves after a time */
#define MANGO_TRAIT_SNAPSHOT_STOPS \
    (UINT64_C(1) << 35) /* * taking a snapshot stops the sandbox: resume comes before the next call */
#define MANGO_TRAIT_NO_STREAMS (UINT64_C(1) << 36) /* * stdout and stderr come as one stream */
#define MANGO_TRAIT_HOST_NAMES \
    (UINT64_C(1) << 37) /* * an allow list takes names with a dot, no addresses: others are refused before a session */
#define MANGO_CAP_KNOWN (UINT64_C(0xFFFF) | (UINT64_C(0x3F) << 32))

#define MANGO_NET_NONE 0
#define MANGO_NET_LIMITED 1 /* only spec.hosts */
#define MANGO_NET_OPEN 2

struct mango_mount {
    uint32_t struct_size;
    uint32_t flags;         /* 0: read-only */
    struct mango_sv source; /* absolute path on the server's host */
    struct mango_sv target; /* absolute path in the sandbox */
};
MANGO_ASSERT(sizeof(struct mango_mount) == 40);

/* Who may be reached. */
struct mango_network {
    uint32_t struct_size;
    uint32_t mode;                /* MANGO_NET_* */
    const struct mango_sv *hosts; /* "example.org", "example.org:8443", "*.example.org" */
    uint64_t n_hosts;
    struct mango_sv proxy_url; /* reserved, empty: the server's filtering proxy is had by host->egress_open */
};
MANGO_ASSERT(sizeof(struct mango_network) == 40);

/* What a sandbox shall be. Zero and empty mean: the plugin's default. */
struct mango_sandbox_spec {
    uint32_t struct_size;
    uint32_t flags;          /* reserved, 0 */
    struct mango_sv label;   /* 32 hex digits: the ownership of this session. The key of idempotent create */
    struct mango_sv owner;   /* 32 hex digits: this deployment. The key of list_owned */
    struct mango_sv image;   /* image, template or snapshot name */
    struct mango_sv workdir; /* absolute path of the workspace root in the sandbox */
    uint64_t memory_bytes, disk_bytes;
    uint32_t cpu_millis; /* 1000 is one core */
    uint32_t pids;
    const struct mango_network *network; /* NULL: the plugin's default, the closest to no network that it has */
    const struct mango_mount *mounts;
    uint64_t n_mounts;
    const struct mango_sv *env; /* "NAME=value" of every command */
    uint64_t n_env;
    struct mango_sv extra_json; /* what only this backend knows, or empty */
};
MANGO_AT(struct mango_sandbox_spec, label, 8);
MANGO_AT(struct mango_sandbox_spec, owner, 24);
MANGO_AT(struct mango_sandbox_spec, image, 40);
MANGO_AT(struct mango_sandbox_spec, workdir, 56);
MANGO_AT(struct mango_sandbox_spec, memory_bytes, 72);
MANGO_AT(struct mango_sandbox_spec, cpu_millis, 88);
MANGO_AT(struct mango_sandbox_spec, network, 96);
MANGO_AT(struct mango_sandbox_spec, mounts, 104);
MANGO_AT(struct mango_sandbox_spec, env, 120);
MANGO_AT(struct mango_sandbox_spec, extra_json, 136);
MANGO_ASSERT(sizeof(struct mango_sandbox_spec) == 152);

/* What create, attach and fork give back. The buffers are the host's (at most 1,024 bytes each), given empty. */
struct mango_sandbox_ref {
    uint32_t struct_size;
    uint32_t flags;         /* out: MANGO_REF_* */
    struct mango_buf *id;   /* names the sandbox; UTF-8, holds no secret, stored */
    struct mango_buf *root; /* absolute path of the workspace root as commands see it */
    struct mango_buf
        *identity;      /* changes when the disk is another one (pod UID, container id, boot marker); may stay empty */
    uint64_t expires_s; /* out: seconds until the service ends it; 0: never */
};
#define MANGO_REF_FOUND (UINT32_C(1) << 0) /* create found one that was there under this label */
MANGO_AT(struct mango_sandbox_ref, id, 8);
MANGO_AT(struct mango_sandbox_ref, expires_s, 32);
MANGO_ASSERT(sizeof(struct mango_sandbox_ref) == 40);

/* A command. argv[0] is looked up inside of the sandbox. */
struct mango_exec_req {
    uint32_t struct_size;
    uint32_t flags; /* MANGO_EXEC_*, MANGO_PROC_* */
    const struct mango_sv *argv;
    uint64_t n_argv;
    struct mango_sv cwd;        /* relative to the root or absolute inside of it; empty: the root */
    const struct mango_sv *env; /* "NAME=value", added to the documented environment of the backend */
    uint64_t n_env;
    struct mango_sv stdin_data;    /* whole input; empty: end of file at once */
    mango_source_fn *stdin_source; /* streamed input instead, or NULL */
    void *stdin_ctx;
    mango_sink_fn *sink; /* gets the output as it comes, in pieces of whole UTF-8 characters where it is UTF-8 */
    void *sink_ctx;
    uint64_t max_output;     /* bytes of each stream that the sink wants; the rest is drained. 0: no bound */
    uint64_t limit_ns;       /* time limit of the command as an absolute time; 0: only the call's deadline */
    struct mango_sv exec_id; /* names this start for good: the same id must never start twice. May be empty */
};
#define MANGO_PROC_PTY (UINT32_C(1) << 0) /* proc_open: a terminal instead of pipes */
MANGO_AT(struct mango_exec_req, argv, 8);
MANGO_AT(struct mango_exec_req, cwd, 24);
MANGO_AT(struct mango_exec_req, env, 40);
MANGO_AT(struct mango_exec_req, stdin_data, 56);
MANGO_AT(struct mango_exec_req, stdin_source, 72);
MANGO_AT(struct mango_exec_req, sink, 88);
MANGO_AT(struct mango_exec_req, max_output, 104);
MANGO_AT(struct mango_exec_req, limit_ns, 112);
MANGO_AT(struct mango_exec_req, exec_id, 120);
MANGO_ASSERT(sizeof(struct mango_exec_req) == 136);

/* How a command ended. Separate fields: 137 from the program itself is not a kill. The end of a stream is never
 * success: without an explicit status from the service, unknown is 1. Exactly one of exited, signal > 0, timed_out,
 * cancelled, unknown holds; oom may come on top. */
struct mango_exec_result {
    uint32_t struct_size;
    int32_t exit_code; /* valid when exited is 1 */
    int32_t signal;    /* > 0: died of it */
    uint8_t exited;
    uint8_t timed_out; /* limit_ns passed; everything of the command was killed */
    uint8_t cancelled;
    uint8_t oom;     /* killed for want of memory */
    uint8_t unknown; /* started, and nobody knows how it ended: never run it again by yourself */
    uint8_t reserved[7];
    uint64_t stdout_bytes, stderr_bytes; /* produced, whether or not the sink got them */
    uint64_t peak_memory;                /* bytes; 0: not known */
};
MANGO_AT(struct mango_exec_result, exit_code, 4);
MANGO_AT(struct mango_exec_result, signal, 8);
MANGO_AT(struct mango_exec_result, exited, 12);
MANGO_AT(struct mango_exec_result, unknown, 16);
MANGO_AT(struct mango_exec_result, stdout_bytes, 24);
MANGO_ASSERT(sizeof(struct mango_exec_result) == 48);

struct mango_read_req {
    uint32_t struct_size;
    uint32_t flags;       /* reserved, 0 */
    struct mango_sv path; /* relative to the root or absolute inside of it; any bytes but NUL */
    uint64_t offset, max; /* at most max bytes from offset */
    mango_sink_fn *sink;  /* stream 0 */
    void *sink_ctx;
};
MANGO_ASSERT(sizeof(struct mango_read_req) == 56);

struct mango_write_req {
    uint32_t struct_size;
    uint32_t mode; /* of a new file; an existing one keeps its own. 0: 0644 */
    struct mango_sv path;
    struct mango_sv content; /* never travels in argv or the environment */
    mango_source_fn *source; /* streamed instead, or NULL */
    void *source_ctx;
    int64_t source_len; /* -1: unknown */
};
MANGO_ASSERT(sizeof(struct mango_write_req) == 64);

#define MANGO_STAT_NOFOLLOW (UINT32_C(1) << 0)
struct mango_stat {
    uint32_t struct_size;
    uint32_t kind; /* 'f' file, 'd' folder, 'l' link, 'o' other */
    uint64_t size;
    int64_t mtime_us; /* since 1970 */
    uint32_t mode;    /* permission bits */
    uint32_t reserved;
};
MANGO_ASSERT(sizeof(struct mango_stat) == 32);

struct mango_owned {
    uint32_t struct_size;
    uint32_t flags;            /* reserved, 0 */
    struct mango_sv id, label; /* label may be empty when the service cannot tell */
    int64_t created_us;        /* 0: not known */
};
MANGO_ASSERT(sizeof(struct mango_owned) == 48);
/* Returns 0 to go on. */
typedef int32_t mango_owned_fn(void *ctx, const struct mango_owned *item);

/* A long-lived process of proc_open; a number that the plugin chooses, never 0. */
typedef uint64_t mango_proc;

struct mango_sandbox_ops {
    uint32_t struct_size;
    uint32_t reserved;

    /* ---- required ---- */

    /* Makes the sandbox of spec->label, or finds the one that is there: never a second one, also when two calls meet or
     * an earlier answer was lost. */
    mango_status (*create)(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           struct mango_sandbox_ref *ret);
    /* Binds to a sandbox that exists; never creates. MANGO_EGONE: it does not exist. MANGO_EDENIED: its label is not
     * spec->label. */
    mango_status (*attach)(void *ctx, const struct mango_call *call, struct mango_sv id,
                           const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
    /* Runs a command until it ends (not until its pipes close), limit_ns passes or the token fires; then nothing of it
     * is left running in the last two cases. MANGO_OK whenever *ret tells how it ended (a time limit included);
     * MANGO_ECANCELED for the token. */
    mango_status (*exec)(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_exec_req *req,
                         struct mango_exec_result *ret);
    /* *ret_eof is 1 when the file ended inside of the range. Special files are MANGO_EINVALID, at once. */
    mango_status (*read)(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_read_req *req,
                         int32_t *ret_eof);
    /* Old content or new content, never a part; parents are made; mode and extended attributes are kept. */
    mango_status (*write)(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_write_req *req);
    mango_status (*stat)(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                         uint32_t flags, struct mango_stat *ret);
    /* Ends the sandbox and everything in it. Ignores the token, is idempotent; MANGO_OK when it is gone already. With an
     * id only that one, also where others have its label; id may be empty after a create whose answer was lost: then all
     * of the label. Never touches one with another label (MANGO_EDENIED). */
    mango_status (*destroy)(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label);
    /* MANGO_OK when the service answers and the credentials are good; err_set says what is wrong. Cheap: called every
     * few seconds. */
    mango_status (*health)(void *ctx, const struct mango_call *call);

    /* ---- optional ---- */

    /* Forgets live state of id in this process; the sandbox stays. May be NULL. */
    mango_status (*detach)(void *ctx, const struct mango_call *call, struct mango_sv id);
    mango_status (*list_owned)(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                               void *fn_ctx);
    /* A process with piped stdin and output. req's stdin and sink are ignored. */
    mango_status (*proc_open)(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_exec_req *req, mango_proc *ret);
    mango_status (*proc_write)(void *ctx, const struct mango_call *call, mango_proc proc, struct mango_sv data);
    /* Waits for output (then MANGO_OK at once with what there is), for the end (*ret_closed 1 and *ret filled), or the
     * deadline (MANGO_ETIMEOUT). Background children that hold the pipes do not delay the end. */
    mango_status (*proc_read)(void *ctx, const struct mango_call *call, mango_proc proc, mango_sink_fn *sink,
                              void *sink_ctx, int32_t *ret_closed, struct mango_exec_result *ret);
    /* Kills what is left of it and its descendants. The number is dead afterwards. */
    mango_status (*proc_close)(void *ctx, const struct mango_call *call, mango_proc proc);
    mango_status (*proc_resize)(void *ctx, const struct mango_call *call, mango_proc proc, uint32_t rows,
                                uint32_t cols);
    mango_status (*pause)(void *ctx, const struct mango_call *call, struct mango_sv id);
    mango_status (*resume)(void *ctx, const struct mango_call *call, struct mango_sv id);
    /* *ret_snapshot names it for fork, and as spec.image of create. */
    mango_status (*snapshot)(void *ctx, const struct mango_call *call, struct mango_sv id,
                             struct mango_buf *ret_snapshot);
    mango_status (*snapshot_delete)(void *ctx, const struct mango_call *call, struct mango_sv snapshot);
    mango_status (*fork)(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
    mango_status (*set_network)(void *ctx, const struct mango_call *call, struct mango_sv id,
                                const struct mango_network *net);
    /* manager_json: {"apt":["jq"],"pip":[...]}; output goes to sink. */
    mango_status (*packages)(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv manager_json,
                             mango_sink_fn *sink, void *sink_ctx);
    /* ustar/pax archives of a folder under the root; names in them are relative to that folder. archive_in makes it. */
    mango_status (*archive_in)(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                               mango_source_fn *source, void *source_ctx);
    mango_status (*archive_out)(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                                mango_sink_fn *sink, void *sink_ctx);
    /* Moves the expiry timer to at least seconds from now. While a turn of the session runs, also between its calls, the
     * host asks for it after a third of what create or attach said in expires_s (90 s where they said 0), with the whole
     * of it; never for an idle session. */
    mango_status (*keep_alive)(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds);
};
MANGO_AT(struct mango_sandbox_ops, create, 8);
MANGO_AT(struct mango_sandbox_ops, attach, 16);
MANGO_AT(struct mango_sandbox_ops, exec, 24);
MANGO_AT(struct mango_sandbox_ops, read, 32);
MANGO_AT(struct mango_sandbox_ops, write, 40);
MANGO_AT(struct mango_sandbox_ops, stat, 48);
MANGO_AT(struct mango_sandbox_ops, destroy, 56);
MANGO_AT(struct mango_sandbox_ops, health, 64);
MANGO_AT(struct mango_sandbox_ops, detach, 72);
MANGO_AT(struct mango_sandbox_ops, list_owned, 80);
MANGO_AT(struct mango_sandbox_ops, proc_open, 88);
MANGO_AT(struct mango_sandbox_ops, proc_resize, 120);
MANGO_AT(struct mango_sandbox_ops, pause, 128);
MANGO_AT(struct mango_sandbox_ops, snapshot, 144);
MANGO_AT(struct mango_sandbox_ops, fork, 160);
MANGO_AT(struct mango_sandbox_ops, set_network, 168);
MANGO_AT(struct mango_sandbox_ops, packages, 176);
MANGO_AT(struct mango_sandbox_ops, archive_in, 184);
MANGO_AT(struct mango_sandbox_ops, archive_out, 192);
MANGO_AT(struct mango_sandbox_ops, keep_alive, 200);
MANGO_ASSERT(sizeof(struct mango_sandbox_ops) == 208);

#ifdef __cplusplus
}
#endif
#endif
