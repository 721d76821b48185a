/* The supervisor: claims items and has a launcher plugin run each in a box of its own. It alone holds the environment key; a box gets its
 * item's secret and nothing else.
 *
 * Nothing of it is kept in memory only: a supervisor that was killed is followed by one that lists its boxes (list_owned), watches them to
 * their end, and removes them. Two boxes of one session never live at once: the launcher sees to that.
 *
 * Concurrency: mg_supervisor_run on one thread, mg_supervisor_stop on any; one thread for each box. */
#ifndef MG_WORKER_SUPERVISE_H
#define MG_WORKER_SUPERVISE_H

#include "net/loop.h"
#include "plugin/plugin.h"

enum {
    MG_SUPERVISE_BOXES = 8,          /* at a time where nothing else is asked for */
    MG_SUPERVISE_BOXES_MAX = 512,    /* a thread each */
    MG_SUPERVISE_GRACE_MS = 150000,  /* for a box to end by itself: its worker takes 120 s at most */
    MG_SUPERVISE_LAUNCH_MS = 300000, /* an image may have to be pulled */
    MG_SUPERVISE_WATCH_MS = 60000,   /* one look; then it is looked again */
    MG_SUPERVISE_RETRY_MS = 1000,    /* behind a launch or a look that failed, doubling */
    MG_SUPERVISE_RETRY_MAX_MS = 15000,
    MG_SUPERVISE_LOG_MAX = 2048, /* bytes of a worker's last words that are logged when it failed */
};

struct mg_supervisor_opts {
    struct mg_net *net; /* borrowed, as the launcher is */
    struct mg_plugin *launcher;
    const char *base_url, *environment_id, *environment_key;
    const char *worker_id;    /* NULL: made by the poller */
    const char *box_base_url; /* the API's address as a box sees it; NULL: base_url */
    const char *name;         /* tells supervisors apart that share a launcher's host and an environment; NULL: "" */
    const char *image;        /* NULL: the launcher's own */
    uint64_t memory_bytes, disk_bytes; /* 0: the launcher's own */
    uint32_t cpu_millis, pids;
    const char *const *worker_args; /* behind `mango-worker run`, NULL-terminated; or NULL */
    const char *const *pass;        /* further variables for the workers, "NAME=value", NULL-terminated; or NULL */
    unsigned max_boxes;             /* 0: MG_SUPERVISE_BOXES */
    uint32_t grace_ms;              /* 0: MG_SUPERVISE_GRACE_MS */
    uint32_t gap_ms;                /* pause behind an empty poll; 0: the poller's own */
    bool drain;                     /* ends once the queue is empty and the boxes have ended */
};

struct mg_supervisor;

/* The strings are copied. MG_EINVAL names what is wrong. */
mg_rc mg_supervisor_new(const struct mg_supervisor_opts *o, struct mg_supervisor **ret,
                        struct mg_err *err) MG_MUSTCHECK;
void mg_supervisor_free(struct mg_supervisor *s); /* run has returned; NULL is fine */
/* Until mg_supervisor_stop, or the queue is empty and drain was asked for: MG_OK, and no box is left. Anything else: polling can never succeed
 * (the key, the environment); the boxes have gone on to their own end. */
mg_rc mg_supervisor_run(struct mg_supervisor *s, struct mg_err *err) MG_MUSTCHECK;
/* No further item is claimed; the boxes are asked to end. Any thread, again is fine. */
void mg_supervisor_stop(struct mg_supervisor *s);
unsigned mg_supervisor_boxes(struct mg_supervisor *s); /* that live now */

/* What names a session's box and what persists of it: 32 hex digits. */
enum { MG_SUPERVISE_KEY = 33 };
void mg_supervisor_label(const char *base_url, const char *session_id, char out[MG_SUPERVISE_KEY]);

#endif
