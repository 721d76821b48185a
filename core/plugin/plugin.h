/* Plugins: loading with every refusal, the host services that they get, and guarded calls.
 *
 * Concurrency: load and unload on one thread at startup and at the end. A loaded plugin is read by any thread; its
 * counters are atomic. */
#ifndef MG_PLUGIN_PLUGIN_H
#define MG_PLUGIN_PLUGIN_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"
#include "mango/plugin.h"

enum {
    MG_PLUGIN_NAME_MAX = 33,   /* bytes with the NUL: [a-z0-9][a-z0-9-]{0,31} */
    MG_PLUGIN_INIT_MS = 30000, /* for init: it may ask a service whether it is there */
    MG_PLUGIN_LIST_MAX = 256,  /* .so files looked at in the plugin folder */
};

/* What the server gives to its plugins. Borrowed; outlives them. Members may be NULL. */
struct mg_plugin_services {
    const char *state_dir; /* the server's own folder; plugins get it as setting "state_dir" */
    /* Appends the value of a setting and returns true, or false when it is not set. Default: mg_plugin_setting_env. */
    bool (*setting)(void *ctx, const char *plugin, const char *name, struct mg_buf *out);
    /* The same for secrets. Default: the environment variable of that name, those of the server itself excepted. */
    bool (*secret)(void *ctx, const char *plugin, const char *name, struct mg_buf *out);
    struct mg_plugin_net *net; /* core/plugin/net.h; NULL: no HTTP, and plugins that need it are refused */
    /* The filtering proxy, which stands above this folder. NULL: none, and plugins that need it are refused. */
    mango_status (*egress_open)(void *ctx, const struct mango_call *call, const struct mango_egress_req *req,
                                struct mango_egress *ret);
    void (*egress_close)(void *ctx, struct mango_sv label);
    void *ctx;
};

/* The default of services.setting: MANGO_<PLUGIN>_<NAME> of the environment, upper case, '-' as '_'. Empty is unset. */
bool mg_plugin_setting_env(void *ctx, const char *plugin, const char *name, struct mg_buf *out);

/* Operations that are counted; one name each in mg_plugin_op_name. */
enum mg_plugin_op {
    MG_OP_CREATE,
    MG_OP_ATTACH,
    MG_OP_EXEC,
    MG_OP_READ,
    MG_OP_WRITE,
    MG_OP_STAT,
    MG_OP_DESTROY,
    MG_OP_HEALTH,
    MG_OP_LIST,
    MG_OP_PROC,
    MG_OP_PAUSE,
    MG_OP_SNAPSHOT,
    MG_OP_NETWORK,
    MG_OP_PACKAGES,
    MG_OP_ARCHIVE,
    MG_OP_KEEP_ALIVE,
    MG_OP_LAUNCH,
    MG_OP_WATCH,
    MG_OP_STOP,
    MG_OP_COUNT,
};
const char *mg_plugin_op_name(enum mg_plugin_op op);

struct mg_plugin_stat {
    _Atomic uint64_t calls, errors, ns, max_ns;
    _Atomic uint32_t busy; /* calls that are inside of the plugin now */
};

struct mg_plugin {
    const struct mango_plugin *desc; /* static memory of the plugin: never unmapped */
    uint64_t caps;                   /* of desc, without those that init took back */
    void *ctx;
    const struct mango_sandbox_ops *sandbox;   /* or NULL */
    const struct mango_launcher_ops *launcher; /* or NULL */
    struct mango_host *host;
    char name[MG_PLUGIN_NAME_MAX];
    char *path;
    struct mg_plugin_stat stats[MG_OP_COUNT];
};

struct mg_plugin_load {
    const char *dir; /* absolute path of the plugin folder */
    const char *name;
    const char *variable; /* what named it, for messages: "MANGO_SANDBOX" */
    uint32_t kind;        /* MANGO_KIND_* that it must have */
    struct mg_sv config;  /* JSON object for init; empty: {} */
    const struct mg_plugin_services *services;
};

/* Opens, checks and initialises. Every failure is MG_ECONFIG (startup ends with status 78) and one line: the setting,
 * the file, what was found, what was expected, what to do. */
mg_rc mg_plugin_open(const struct mg_plugin_load *load, struct mg_plugin **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_plugin_close(struct mg_plugin *p); /* fini; the code stays mapped. NULL is fine */

static inline bool mg_plugin_can(const struct mg_plugin *p, uint64_t caps)
{
    return (p->caps & caps) == caps;
}
/* False: commands are not held back from the host; a network model needs MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX=1. */
static inline bool mg_plugin_isolated(const struct mg_plugin *p)
{
    return mg_plugin_can(p, MANGO_CAP_ISOLATED);
}

/* [a-z0-9][a-z0-9-]{0,31}: the name becomes a path. */
bool mg_plugin_name_ok(struct mg_sv name);
/* Names that have a file in dir, sorted, separated by blanks; "none" when there is none. Arena memory. */
struct mg_sv mg_plugin_names(struct mg_arena *a, const char *dir);
/* All checks but init, on a file anywhere (its name is taken from the file's). For `plugin info`. */
mg_rc mg_plugin_inspect(const char *path, const struct mango_plugin **ret, struct mg_err *err) MG_MUSTCHECK;

/* One capability bit and its name, for listings; ends with name NULL. */
struct mg_plugin_cap {
    uint64_t bit;
    const char *name;
};
extern const struct mg_plugin_cap mg_plugin_caps[];

/* ---- calls ---- */

/* A mango_call for the plugin, with err emptied (it must not be NULL). deadline_ns 0: none. */
static inline struct mango_call mg_plugin_call(uint64_t deadline_ns, struct mg_cancel *cancel, struct mg_err *err)
{
    err->rc = MG_OK;
    err->code[0] = err->text[0] = '\0';
    err->retry_after_s = 0;
    return (struct mango_call){.struct_size = sizeof(struct mango_call),
                               .deadline_ns = deadline_ns,
                               .token = (struct mango_token *)cancel,
                               .err = (struct mango_err *)err};
}
/* Measures and counts a call: mg_guard g = mg_guard_enter(p, op); ...; status = mg_guard_leave(&g, status). */
struct mg_guard {
    struct mg_plugin *p;
    enum mg_plugin_op op;
    uint64_t since_ns;
};
struct mg_guard mg_guard_enter(struct mg_plugin *p, enum mg_plugin_op op);
mango_status mg_guard_leave(const struct mg_guard *g, mango_status status);

/* The core's code for a plugin's status; fills err's code, and a text when the plugin gave none. */
mg_rc mg_plugin_rc(const struct mg_plugin *p, enum mg_plugin_op op, mango_status status, struct mg_err *err);

#endif
