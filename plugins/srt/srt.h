/* Backend `srt`: a workspace folder per session on this host (common/hostbox), with the runner behind bubblewrap, in
 * namespaces of its own, on a root that is read-only, under a filter of system calls.
 *
 * The server as root: bubblewrap makes the namespaces with its rights, and the runner becomes a user of the host that
 * owns this one sandbox's files, then enters a user namespace. The server as another user: bubblewrap makes the user
 * namespace, and the sandbox's files are the server's. */
#ifndef MANGO_SRT_H
#define MANGO_SRT_H

#include "common/hostbox/cgroup.h"
#include "common/hostbox/hostbox.h"
#include "common/text.h"

#define SRT_ROOT "/workspace"
#define SRT_RUNNER "/.mango-runner" /* where the runner is in a sandbox */
#define RUNTIME_DIR "/.mango-srt"   /* mode srt: where the program is, what it needs, and where it runs */
#define RUNTIME_SETTINGS "settings.json"

enum {
    NUMBER_MAX = 24, /* digits of a limit */
    STRINGS_MAX = 512,
    HOSTS_MAX = 256, /* names in the runtime's settings file */
};

struct srt_limits {
    char processes[NUMBER_MAX], memory[NUMBER_MAX], file_size[NUMBER_MAX]; /* as arguments of the runner */
};

/* What the sandbox runtime's settings file says. */
struct policy {
    char **deny_read, **allow_read, **allow_write; /* absolute paths of this host, NULL at the end */
    char **allowed, **denied;                      /* domains; allowed NULL: no network in the file */
    char *file;
};

struct srt {
    struct boxes boxes; /* first: what the shared operations take */
    char *bwrap, *rootfs;
    bool runtime;               /* mode srt: the runtime's own program */
    char *node, *modules, *cli; /* of it: Node.js, the folder of its packages, its path in there */
    bool root;                  /* the server is root */
    char *strings[STRINGS_MAX]; /* of the words below, owned */
    int n_strings;
    const char *runtime_cli, *check_settings;
    struct words before, after;        /* the same for all sandboxes: before and after their own folders */
    struct srt_limits limits;          /* defaults */
    uint64_t processes, memory, bytes; /* the same as numbers */
    uint64_t cpu_millis;               /* 0: no limit */
    struct cgroups groups;             /* version 0: none can be made here */
    struct policy policy;
};

/* What hangs on a box. Set at its first attach, except for door; guarded by the box's lock. */
struct srt_box {
    char *workspace, *scratch; /* on the host */
    char *door;                /* mode direct: folder of the filtering proxy's socket; NULL: no network at all */
    char *settings;            /* mode srt: the program's settings file */
    bool network;              /* some was asked for */
    char user[NUMBER_MAX];     /* to become, or "-" */
    struct srt_limits limits;
    struct cgroup_limits group;
    char *join[CGROUP_KINDS]; /* files by which a process joins the sandbox's group; NULL: none */
};

/* ---- root.c ---- */
/* Fills before and after: what a sandbox sees of this host. False: out of memory, or too many. */
bool root_words(struct srt *s);
void srt_command(const struct box *b, struct words *argv);
void check_command(const struct srt *s, const char *user, struct words *argv);

/* ---- policy.c ---- */
mango_status policy_load(struct srt *s, const struct mango_call *call);
void policy_free(struct policy *p);
/* The network that is asked for within what the file allows. *ret_hosts: the caller frees it. */
mango_status policy_network(const struct srt *s, const struct mango_call *call, const struct mango_network *asked,
                            struct mango_network *ret, struct mango_sv **ret_hosts);

/* ---- network.c ---- */
/* What a sandbox cannot have is refused before anything of it is made. */
mango_status network_check(const struct srt *s, const struct mango_call *call, const struct mango_network *asked);
/* Opens the sandbox's door, or gives it another list. */
mango_status door_open(struct box *b, const struct mango_call *call, const struct mango_network *network);
void door_close(const struct boxes *all, struct mango_sv label);
mango_status srt_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_network *network);

/* ---- runtime.c ---- */
/* Finds the program of mode srt and what it needs. */
mango_status runtime_open(struct srt *s, const struct mango_call *call);
/* Writes the sandbox's settings file, which the program reads when it is started. asked may be NULL: no network. */
mango_status runtime_network(const struct box *b, const struct mango_call *call, const struct mango_network *asked);
/* What the program would not take in allowed, which policy_network has made. */
mango_status runtime_check_names(const struct srt *s, const struct mango_call *call,
                                 const struct mango_network *allowed);
bool runtime_check_settings(const struct srt *s); /* those of check_command */

/* ---- limits.c ---- */
mango_status limits_read(struct srt *s, const struct mango_call *call);
/* Finds out whether sandboxes can have control groups here; says so when not. */
void limits_open(struct srt *s);
mango_status limits_check(const struct srt *s, const struct mango_call *call, const struct mango_sandbox_spec *spec);
bool limits_of(struct srt_box *own, const struct box *b, const struct mango_sandbox_spec *spec); /* false: no memory */
/* Makes the group and puts what joins it before the command. False: it cannot be made. */
bool limits_words(const struct box *b, struct words *argv);
uint64_t limits_oom_kills(const struct box *b);
void limits_end(const struct boxes *all, struct mango_sv label);

/* ---- check.c ---- */
/* Makes one sandbox and lets it end: what is missing on this host is named in one line. */
mango_status check_host(const struct srt *s, const struct mango_call *call);

#endif
