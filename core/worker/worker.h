/* libmango-worker: a self-hosted worker inside of a C program. It serves sessions of a `self_hosted` environment, of Mango or of the hosted
 * service alike: it polls the environment's queue, keeps the lease of what it claims, runs the tools that the session asks for, and sends
 * their results.
 *
 *   static int32_t weather(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
 *   {
 *       return mango_reply_text(reply, "sunny", 5);
 *   }
 *   ...
 *   struct mango_tool tools[] = {{.struct_size = sizeof(tools[0]), .name = "weather", .run = weather}};
 *   struct mango_worker_options o = {
 *       .struct_size = sizeof(o), .environment_id = "env_...", .environment_key = key, .workdir = "/workspace",
 *       .tools = tools, .n_tools = 1,
 *   };
 *   struct mango_worker *w;
 *   char err[512];
 *   if (mango_worker_open(&o, &w, err, sizeof(err)) != 0 || mango_worker_run(w, err, sizeof(err)) != 0)
 *       die(err);
 *   mango_worker_close(w);
 *
 * Three layers, each usable alone: a poller (mango_poller_*) claims items; mango_worker_serve keeps one item's lease and serves its
 * session; mango_worker_attach runs the tools of a session without any lease. mango_worker_run is all of them in a loop.
 *
 * The library starts threads of its own, installs no signal handler, does not exit, and writes nothing but what the log function gets. A
 * program that uses it ignores SIGPIPE. Functions return 0 or a negative code, with one clear line in err (cut at err_size, always
 * NUL-terminated; err may be NULL). Strings that go in are copied; strings that come out are borrowed as their comment says. */
#ifndef MANGO_WORKER_H
#define MANGO_WORKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How things end. Any other negative code is a failure that err describes. */
enum {
    MANGO_WORKER_OK = 0,
    MANGO_WORKER_STOPPED = -12,    /* mango_worker_stop or mango_poller_cancel */
    MANGO_WORKER_LEASE_LOST = -13, /* the item is another's now: nothing more was sent */
    MANGO_WORKER_EMPTY = -14,      /* a draining poller found the queue empty */
};

/* ---- tools ---- */

/* All of it is borrowed for the call. */
struct mango_tool_call {
    uint32_t struct_size;
    int32_t cancel_fd; /* readable once the call shall end: poll it, never read it */
    const char *session_id;
    const char *id; /* of the event that asks; the result answers it */
    const char *name;
    const char *input; /* the JSON object as the model wrote it */
    size_t input_len;
};

struct mango_tool_reply;

/* Appends a text block; bytes that are no UTF-8 are shown as U+FFFD. Negative when the reply is over its limit of 8 MiB. */
int32_t mango_reply_text(struct mango_tool_reply *reply, const char *text, size_t len);
/* Appends one content block as the API takes it: {"type":"image",...}. Negative when it is no JSON object. */
int32_t mango_reply_block(struct mango_tool_reply *reply, const char *json, size_t len);
void mango_reply_error(struct mango_tool_reply *reply); /* the result is an error */

/* Returns 0; negative: the tool failed, the session gets an error result with what the reply holds. It must return soon after cancel_fd is
 * readable. On a thread of the library. */
typedef int32_t mango_tool_fn(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply);

/* A custom tool of the agent, answered by user.custom_tool_result; or one of the six names, which then replaces the built-in. */
struct mango_tool {
    uint32_t struct_size;
    uint32_t timeout_ms; /* 0: 120,000 */
    const char *name;
    mango_tool_fn *run;
    void *ctx;
};

/* What runs the built-in tools, in place of the six on workdir: a container, another machine. */
struct mango_executor {
    uint32_t struct_size;
    uint32_t timeout_ms; /* of one call; 0: an hour and five minutes, as bash has a limit of its own */
    void *ctx;
    /* Before the first call of a session that is served; *ret is given to the others. */
    int32_t (*open)(void *ctx, const char *session_id, void **ret, char *err, size_t err_size);
    int32_t (*has)(void *session, const char *name); /* 1: this tool is mine */
    int32_t (*call)(void *session, const struct mango_tool_call *call, struct mango_tool_reply *reply);
    void (*close)(void *session); /* after the last call has returned */
};

/* ---- a worker ---- */

/* level: 0 error, 1 warning, 2 information, 3 debug. line has no newline and is not NUL-terminated; borrowed for the call. Any thread. */
typedef void mango_worker_log_fn(void *ctx, int32_t level, const char *line, size_t len);

#define MANGO_WORKER_FOREVER UINT32_MAX

struct mango_worker_options {
    uint32_t struct_size; /* sizeof(struct mango_worker_options) */
    uint32_t max_idle_ms; /* a session whose turn has ended is left after so long; 0: 60,000; MANGO_WORKER_FOREVER */
    const char *base_url; /* NULL: the hosted service's */
    const char *environment_id;       /* to poll; NULL where nothing polls */
    const char *environment_key;      /* to poll; NULL where nothing polls and each item carries a secret */
    const char *worker_id;            /* NULL: the host's name and a random part */
    const char *workdir;              /* of the built-in tools; NULL: the current folder */
    const char *const *allowed_roots; /* further folders for the file tools, NULL-terminated; NULL: none */
    const char *ca_file;              /* authorities for TLS; NULL: the system's */
    const char *proxy;                /* http://, https://, socks4://, socks5://; NULL: none */
    const struct mango_tool *tools;
    uint32_t n_tools;
    uint32_t unrestricted_paths;           /* not 0: the file tools go everywhere */
    const struct mango_executor *executor; /* NULL: the six built-in tools on workdir */
    uint32_t drain;                        /* not 0: mango_worker_run returns when the queue is empty */
    uint32_t poll_gap_ms;                  /* pause behind an empty poll; 0: random, 1 to 3 s */
    int64_t reclaim_older_than_ms; /* claims that nobody acknowledged are taken after so long; 0: the server's own */
    mango_worker_log_fn *log;      /* NULL: nothing is logged */
    void *log_ctx;
    uint32_t memory_sync_ms; /* between passes over the session's memory stores, after tool calls; 0: 15,000;
                              * MANGO_WORKER_FOREVER: the stores are not prepared */
};

struct mango_worker;

int32_t mango_worker_open(const struct mango_worker_options *options, struct mango_worker **ret, char *err,
                          size_t err_size);
void mango_worker_close(struct mango_worker *w); /* nothing of w may run any more; NULL is fine */
/* Polls and serves, one session after the other. 0: mango_worker_stop, or the queue was empty and drain is set. An item that fails ends that
 * item only; negative: polling can never succeed. */
int32_t mango_worker_run(struct mango_worker *w, char *err, size_t err_size);
/* Graceful, any thread, not from a signal handler: polls end at once; a session that is served has its tool cancelled, the error result
 * sent and its item stopped, all within 120 s, and run, serve and attach return. */
void mango_worker_stop(struct mango_worker *w);

/* ---- one item ---- */

struct mango_work; /* a claimed item; its strings live until mango_work_free */

/* An item that something else claimed: as the environment of `mango-worker run` names it. secret may be NULL; the environment key is used
 * then. NULL when an id is missing. */
struct mango_work *mango_work_new(const char *id, const char *environment_id, const char *session_id,
                                  const char *secret);
/* Another process has sent the item's first heartbeat: its lease goes on from the last_heartbeat that it was answered. Fails where that is empty or
 * has more than 127 bytes. */
int32_t mango_work_continue(struct mango_work *work, const char *last_heartbeat);
void mango_work_free(struct mango_work *work);
const char *mango_work_id(const struct mango_work *work);
const char *mango_work_environment_id(const struct mango_work *work);
const char *mango_work_session_id(const struct mango_work *work);
const char *mango_work_type(const struct mango_work *work);   /* "session" */
const char *mango_work_secret(const struct mango_work *work); /* a credential; "" when there is none */
const char *mango_work_json(
    const struct mango_work *work); /* the poll's answer, secret included; "" when made by ids */

/* Serves the session of an acknowledged item until it ends, is idle for max_idle_ms, or is taken away; stops the item unless its lease is
 * lost. MANGO_WORKER_LEASE_LOST, MANGO_WORKER_STOPPED. */
int32_t mango_worker_serve(struct mango_worker *w, const struct mango_work *work, char *err, size_t err_size);
/* Runs the tools of a session as a client with this credential, without any item or lease. */
int32_t mango_worker_attach(struct mango_worker *w, const char *session_id, const char *credential, char *err,
                            size_t err_size);

/* ---- claiming alone ---- */

struct mango_poller;

/* Polls the environment of w's options; w must outlive it. */
int32_t mango_poller_open(struct mango_worker *w, struct mango_poller **ret, char *err, size_t err_size);
void mango_poller_close(struct mango_poller *p); /* NULL is fine */
/* Blocks until an item is claimed and acknowledged; it is then the caller's to serve or to leave: its lease runs, and no poller stops it.
 * MANGO_WORKER_STOPPED, MANGO_WORKER_EMPTY. */
int32_t mango_poller_next(struct mango_poller *p, struct mango_work **ret, char *err, size_t err_size);
void mango_poller_cancel(struct mango_poller *p); /* any thread, not from a signal handler */

const char *mango_worker_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif

#endif
