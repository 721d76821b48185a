/* A workspace folder per session on this host, with a runner of its own for the commands: what the backends `local` and
 * `srt` have in common. Where the runner runs, and what holds it there, is the backend's (struct box_kind).
 *
 *   BASE/session-LABEL/workspace   the root that commands and file operations see
 *                     /scratch     for temporary files of the commands
 *                     /staging     files that are being written; swept at attach
 *                     /label, /owner, /identity
 *
 * Concurrency: as in common/live.h; a box's lock guards its runner too, and is held during the runner's start. */
#ifndef MANGO_COMMON_HOSTBOX_H
#define MANGO_COMMON_HOSTBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/fsuid.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/confine.h"
#include "common/hostbox/remove.h"
#include "common/host.h"
#include "common/parcel.h"
#include "common/live.h"
#include "mango/plugin.h"

enum {
    LABEL_LEN = 32,         /* hex digits */
    ID_LEN = 8 + LABEL_LEN, /* "session-" and the label */
    IDENTITY_LEN = 32,
    KILL_WAIT_MS = 2000,     /* for everything of a command to be dead after a kill */
    DESTROY_WAIT_MS = 10000, /* for the runner to have ended everything */
};

/* Arguments of a program, built once per start. Strings are borrowed. */
enum { WORDS_MAX = 768 };
struct words {
    char *v[WORDS_MAX + 1];
    int n;
};
static inline void word(struct words *w, const char *z)
{
    if (w->n < WORDS_MAX)
        w->v[w->n++] = (char *)z; /* posix_spawn takes char * and changes nothing */
}

#define NO_USER ((uid_t)-1)

struct box;
struct boxes;

/* What a backend does in its own way. */
struct box_kind {
    const char *name;     /* of the backend, in errors and in the names of its settings */
    const char *env_name; /* MANGO_`LOCAL`_BASE_DIR */
    const char *runner;   /* file name of its runner */
    /* Where commands see the two folders; NULL: where they are on the host. */
    const char *root, *scratch;
    bool cwd_by_name; /* a folder's descriptor would lead its commands out: they get the name */
    bool terminal;    /* a long-lived process has a controlling terminal; what is written there is output too */
    /* What of the spec it cannot do. */
    mango_status (*check)(const struct boxes *all, const struct mango_call *call,
                          const struct mango_sandbox_spec *spec);
    /* The host's user whose files a sandbox's are, who owns nothing else; NULL: the server's own. */
    uid_t (*user)(const struct boxes *all, struct mango_sv label);
    /* At each create and attach, before a command can run; NULL: nothing to do. */
    mango_status (*attached)(struct box *b, const struct mango_call *call, const struct mango_sandbox_spec *spec);
    void (*destroyed)(const struct boxes *all, struct mango_sv label); /* may be NULL */
    void (*free)(struct box *b);                                       /* of b->own; may be NULL */
    /* Processes of the box that were killed for want of memory; NULL: not known. */
    uint64_t (*oom_kills)(const struct box *b);
    /* The program that is started with sock as descriptor RUNNER_FD: appends argv, NULL at the end, to argv. */
    void (*command)(const struct box *b, struct words *argv);
};

struct box {
    struct live live; /* first; its lock guards ctl and runner */
    struct boxes *all;
    char identity[IDENTITY_LEN + 1];
    char *root; /* absolute path of the workspace, as commands see it */
    char *scratch;
    uid_t user; /* owns the files; NO_USER: the server's own */
    void *own;  /* of the backend */
    int home_fd, root_fd, staging_fd;
    char **env; /* NULL-terminated; documented environment and the spec's additions */

    int ctl; /* runner's socket, -1: not started */
    pid_t runner;
};

/* A folder beside the workspace in which file operations may work too. at.root is "" for the root of all. */
struct box_root {
    struct confine at;
    bool read_only;
};

struct boxes {
    const struct mango_host *host;
    const struct box_kind *kind;
    void *own;          /* of the backend */
    const char *folder; /* canonical path of the one workspace, which was there before and stays; NULL: under base */
    bool read_only;     /* nothing is written to the workspace by file operations */
    const struct box_root *roots;
    int n_roots;
    char *base; /* canonical path */
    int base_fd;
    char *runner; /* path of the runner */
    struct live_table live;
};

/* ---- base.c ---- */
/* A setting as malloc memory, or NULL. */
char *setting(const struct mango_host *h, const char *name);
/* Opens the base folder and finds the runner. all is zero but for host and kind; boxes_done also after a failure. */
mango_status boxes_open(struct boxes *all, const struct mango_call *call);
void boxes_done(struct boxes *all);
mango_status hostbox_health(void *ctx, const struct mango_call *call);

/* ---- box.c ---- */
mango_status hostbox_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            struct mango_sandbox_ref *ret);
mango_status hostbox_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                            const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);
mango_status hostbox_detach(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status hostbox_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label);
mango_status hostbox_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                                void *fn_ctx);
/* Finds an attached box for one call; MANGO_EGONE when it is dying or was never attached. */
mango_status box_enter(struct boxes *all, const struct mango_call *call, struct mango_sv id, struct box **ret);
void boxes_drop_all(struct boxes *all);
/* Puts the calls of all boxes to an end and removes what earlier processes left behind. */
void sweep(struct boxes *all);

/* File operations are made with the rights of the box's user, so that a path never reaches further than a command. Of
 * this thread alone. */
static inline void user_enter(const struct box *b)
{
    if (b->user == NO_USER)
        return;
    (void)setfsgid(b->user);
    (void)setfsuid(b->user);
}
static inline void user_leave(const struct box *b)
{
    if (b->user == NO_USER)
        return;
    (void)setfsuid(geteuid());
    (void)setfsgid(getegid());
}

/* ---- path.c ---- */
/* Both return a descriptor or -errno; nothing outside of the workspace and the roots beside it is ever opened. */
int path_open(const struct box *b, struct mango_sv path, uint64_t flags);
int path_parent(const struct box *b, struct mango_sv path, char name[256]);

/* ---- file.c ---- */
/* Removes what processes that are gone left in the middle of a write. Another process may write here at this moment. */
void staging_sweep(const struct box *b);
mango_status hostbox_read(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_read_req *req, int32_t *ret_eof);
mango_status hostbox_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                           const struct mango_write_req *req);
mango_status hostbox_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                          uint32_t flags, struct mango_stat *ret);

/* ---- runner-client.c ---- */
/* A command that has been handed to the runner. */
struct running {
    struct ends ends; /* out and err are -1 after their end */
    int in;           /* write end, -1: none */
    int tty;          /* the terminal's other side, not blocking; -1: none, or its session has ended */
    int tty_hold;     /* its own side: without a holder it would hang up before the command has begun */
};
enum { NO_STDIN, DATA_STDIN, PIPE_STDIN };
/* Starts the command; the runner too when there is none. On success *ret is the caller's. */
mango_status run_start(struct box *b, const struct mango_call *call, const struct mango_exec_req *req, int stdin_kind,
                       struct running *ret);
void run_close(struct running *r);   /* without a release before it: kills what is left */
void run_release(struct running *r); /* what lives on may go on, its output is drained */
void runner_stop(struct box *b, int ms);

/* ---- exec.c, proc.c ---- */
mango_status hostbox_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_exec_req *req, struct mango_exec_result *ret);
mango_status hostbox_proc_open(void *ctx, const struct mango_call *call, struct mango_sv id,
                               const struct mango_exec_req *req, mango_proc *ret);
mango_status hostbox_proc_write(void *ctx, const struct mango_call *call, mango_proc proc, struct mango_sv data);
mango_status hostbox_proc_read(void *ctx, const struct mango_call *call, mango_proc proc, mango_sink_fn *sink,
                               void *sink_ctx, int32_t *ret_closed, struct mango_exec_result *ret);
mango_status hostbox_proc_close(void *ctx, const struct mango_call *call, mango_proc proc);

#endif
