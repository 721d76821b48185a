#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/runner/relay.h"
#include "srt/srt.h"

/* Settings beside those of common/hostbox/base.c: mode (direct, srt), bwrap, rootfs, settings_file, those of runtime.c
 * (program, node), and the limits of limits.c. */

enum {
    USER_BITS = 24, /* of the label in the number of a sandbox's user */
};
#define USER_FIRST UINT32_C(1879048192) /* 0x70000000: above what distributions and systemd give away */

/* ---- a sandbox ---- */

static mango_status srt_check(const struct boxes *all, const struct mango_call *call,
                              const struct mango_sandbox_spec *spec)
{
    if (spec->n_mounts > 0)
        return fail(all->host, call, MANGO_EUNSUPPORTED, "the srt backend has no mounts");
    if (spec->image.len > 0)
        return fail(all->host, call, MANGO_EUNSUPPORTED,
                    "the srt backend has no images; its root is this host's, or the folder MANGO_SRT_ROOTFS");
    mango_status s = limits_check(all->own, call, spec);
    return s == MANGO_OK && spec->network ? network_check(all->own, call, spec->network) : s;
}

/* Of its own for each sandbox, so that neither files nor limits are shared; two that meet share no namespace still. */
static uid_t srt_user(const struct boxes *all, struct mango_sv label)
{
    const struct srt *s = all->own;
    char head[USER_BITS / 4 + 1];
    if (!s->root)
        return NO_USER;
    snprintf(head, sizeof(head), "%.*s", (int)sizeof(head) - 1, label.ptr);
    return USER_FIRST + (uid_t)strtoul(head, NULL, 16);
}

static char *below(const struct box *b, const char *name)
{
    const char *base = b->all->base;
    size_t n = strlen(base) + ID_LEN + strlen(name) + 3;
    char *z = malloc(n);
    if (z)
        snprintf(z, n, "%s/%s/%s", base, b->live.id, name);
    return z;
}

static void own_free(struct srt_box *own)
{
    if (!own)
        return;
    free(own->workspace);
    free(own->scratch);
    free(own->door);
    free(own->settings);
    for (int i = 0; i < CGROUP_KINDS; i++)
        free(own->join[i]);
    free(own);
}

static struct srt_box *own_new(const struct box *b, const struct mango_sandbox_spec *spec)
{
    struct srt_box *own = calloc(1, sizeof(*own));
    if (!own)
        return NULL;
    own->workspace = below(b, "workspace");
    own->scratch = below(b, "scratch");
    own->settings = below(b, RUNTIME_SETTINGS);
    own->network = spec->network && spec->network->mode != MANGO_NET_NONE;
    if (b->user == NO_USER)
        snprintf(own->user, sizeof(own->user), "-");
    else
        snprintf(own->user, sizeof(own->user), "%u", b->user);
    if (own->workspace && own->scratch && own->settings && limits_of(own, b, spec))
        return own;
    own_free(own);
    return NULL;
}

static size_t env_count(char **env)
{
    size_t n = 0;
    while (env && env[n])
        n++;
    return n;
}

/* The proxy's variables behind the others; those of the environment win since they come later in the list of a call. */
static bool add_proxy_env(struct box *b)
{
    size_t n = env_count(b->env), more = env_count((char **)egress_env);
    char **env = realloc(b->env, (n + more + 1) * sizeof(*env));
    if (!env)
        return false;
    b->env = env;
    for (size_t i = 0; i < more; i++) {
        env[n + i] = strdup(egress_env[i]);
        env[n + i + 1] = NULL;
        if (!env[n + i])
            return false;
    }
    return true;
}

static mango_status srt_attached(struct box *b, const struct mango_call *call, const struct mango_sandbox_spec *spec)
{
    const struct srt *s = b->all->own;
    bool network = spec->network && spec->network->mode != MANGO_NET_NONE, ok = true;
    pthread_mutex_lock(&b->live.lock);
    if (!b->own) {
        b->own = own_new(b, spec);
        ok = b->own && (!network || s->runtime || add_proxy_env(b));
    }
    pthread_mutex_unlock(&b->live.lock);
    if (!ok)
        return fail(b->all->host, call, MANGO_ERETRY, "out of memory");
    if (s->runtime)
        return runtime_network(b, call, spec->network);
    return network ? door_open(b, call, spec->network) : MANGO_OK;
}

static void srt_free_box(struct box *b)
{
    own_free(b->own);
}

static void srt_destroyed(const struct boxes *all, struct mango_sv label)
{
    door_close(all, label);
    limits_end(all, label);
}

static const struct box_kind kind = {
    .name = "srt",
    .env_name = "SRT",
    .runner = "mango-srt-runner",
    .root = SRT_ROOT,
    .scratch = "/tmp",
    .cwd_by_name = true,
    .check = srt_check,
    .user = srt_user,
    .attached = srt_attached,
    .destroyed = srt_destroyed,
    .free = srt_free_box,
    .oom_kills = limits_oom_kills,
    .command = srt_command,
};

/* ---- settings ---- */

static mango_status read_mode(struct srt *s, const struct mango_call *call)
{
    char *mode = setting(s->boxes.host, "mode");
    bool direct = !mode || strcmp(mode, "direct") == 0;
    s->runtime = mode && strcmp(mode, "srt") == 0;
    free(mode);
    if (direct || s->runtime)
        return MANGO_OK;
    return fail(s->boxes.host, call, MANGO_EINVALID,
                "MANGO_SRT_MODE must be 'direct', or 'srt' for the sandbox runtime's own program");
}

static mango_status read_paths(struct srt *s, const struct mango_call *call)
{
    struct stat st;
    s->bwrap = setting(s->boxes.host, "bwrap");
    if (!s->bwrap)
        s->bwrap = strdup("/usr/bin/bwrap");
    s->rootfs = setting(s->boxes.host, "rootfs");
    if (!s->bwrap || s->bwrap[0] != '/' || access(s->bwrap, X_OK) < 0)
        return fail(s->boxes.host, call, MANGO_EUNSUPPORTED,
                    "%.200s cannot be run; install bubblewrap (Debian: apt-get install bubblewrap), or set "
                    "MANGO_SRT_BWRAP to its path",
                    s->bwrap ? s->bwrap : "bwrap");
    if (s->rootfs && (s->rootfs[0] != '/' || stat(s->rootfs, &st) < 0 || !S_ISDIR(st.st_mode)))
        return fail(s->boxes.host, call, MANGO_EINVALID, "MANGO_SRT_ROOTFS: %.200s is no folder", s->rootfs);
    return MANGO_OK;
}

/* ---- the plugin ---- */

static void srt_fini(void *ctx)
{
    struct srt *s = ctx;
    boxes_done(&s->boxes);
    cgroups_close(&s->groups);
    for (int i = 0; i < s->n_strings; i++)
        free(s->strings[i]);
    policy_free(&s->policy);
    free(s->bwrap);
    free(s->rootfs);
    free(s->node);
    free(s->modules);
    free(s->cli);
    free(s);
}

static mango_status srt_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                             void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    struct srt *s = calloc(1, sizeof(*s));
    if (!s)
        return host->err_set(host, call, MANGO_ERETRY, "out of memory", NULL, 0);
    s->boxes.host = host;
    s->boxes.kind = &kind;
    s->boxes.own = s;
    s->root = geteuid() == 0;
    mango_status st = boxes_open(&s->boxes, call);
    if (st == MANGO_OK)
        st = read_mode(s, call);
    if (st == MANGO_OK)
        st = read_paths(s, call);
    if (st == MANGO_OK && s->runtime)
        st = runtime_open(s, call);
    if (st == MANGO_OK)
        st = limits_read(s, call);
    if (st == MANGO_OK)
        st = policy_load(s, call);
    if (st == MANGO_OK && !root_words(s))
        st = fail(s->boxes.host, call, MANGO_EINVALID, "the root of sandboxes cannot be set up: %s", strerror(errno));
    if (st == MANGO_OK)
        st = check_host(s, call);
    if (st == MANGO_OK)
        limits_open(s);
    if (st < 0) {
        srt_fini(s);
        return st;
    }
    *ret_ctx = s;
    return MANGO_OK;
}

static mango_status srt_health(void *ctx, const struct mango_call *call)
{
    struct srt *s = ctx;
    if (access(s->bwrap, X_OK) < 0)
        return fail(s->boxes.host, call, MANGO_EINTERNAL, "%.200s is missing; install bubblewrap again", s->bwrap);
    if (s->runtime && (access(s->node, X_OK) < 0 || access(s->modules, R_OK | X_OK) < 0))
        return fail(s->boxes.host, call, MANGO_EINTERNAL,
                    "the sandbox runtime or Node.js is missing; install it again");
    return hostbox_health(&s->boxes, call);
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops),
    .create = hostbox_create,
    .attach = hostbox_attach,
    .exec = hostbox_exec,
    .read = hostbox_read,
    .write = hostbox_write,
    .stat = hostbox_stat,
    .destroy = hostbox_destroy,
    .health = srt_health,
    .detach = hostbox_detach,
    .list_owned = hostbox_list_owned,
    .proc_open = hostbox_proc_open,
    .proc_write = hostbox_proc_write,
    .proc_read = hostbox_proc_read,
    .proc_close = hostbox_proc_close,
    .set_network = srt_set_network,
};

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX,
    .name = "srt",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "commands on this host behind bubblewrap and a system call filter",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PROC | MANGO_CAP_DURABLE_WORKSPACE | MANGO_CAP_CONCURRENT_EXEC |
            MANGO_CAP_ISOLATED | MANGO_CAP_NO_NETWORK | MANGO_CAP_EGRESS_LIMITED | MANGO_CAP_LIMITS,
    .init = srt_init,
    .fini = srt_fini,
    .sandbox = &ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
