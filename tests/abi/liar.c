/* The backend `local` with capabilities that it does not have: LIE_CAPS (a number) is added to its bits, and the operations that these ask for do
 * nothing and say that all is well. LIE_TAKES_BACK: its start takes these bits back. LIE_TWICE: each create makes another sandbox. LIE_FORGETS: it loses its workspaces at every start. Built by tests/unit/test-conformance.c. */
#include "local-copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static const struct mango_host *liar_host;

static uint64_t bits_of(const char *variable)
{
    const char *z = getenv(variable);
    return z ? strtoull(z, NULL, 0) : 0;
}

static uint64_t lies(void)
{
    return bits_of("LIE_CAPS");
}

/* ---- what local refuses, it swallows ---- */

static struct mango_sandbox_spec plain(const struct mango_sandbox_spec *spec, struct mango_network *net)
{
    struct mango_sandbox_spec s = *spec;
    *net = (struct mango_network){.struct_size = sizeof(*net), .mode = MANGO_NET_OPEN};
    s.network = net;
    s.mounts = NULL;
    s.n_mounts = 0;
    return s;
}

/* A label of its own for each create: its last digits are random, and the id tells them. */
static mango_status create_another(void *ctx, const struct mango_call *call, struct mango_sandbox_spec *s,
                                   struct mango_sandbox_ref *ret)
{
    char label[LABEL_LEN + 1];
    memcpy(label, s->label.ptr, LABEL_LEN);
    random_hex(label + LABEL_LEN - 8, 8);
    s->label.ptr = label;
    return hostbox_create(ctx, call, s, ret);
}

/* The label under which the id was made. */
static struct mango_sv label_in(struct mango_sv id, struct mango_sv label)
{
    return getenv("LIE_TWICE") && id.len == ID_LEN ? (struct mango_sv){id.ptr + 8, LABEL_LEN} : label;
}

static mango_status lie_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    return hostbox_destroy(ctx, call, id, label_in(id, label));
}

static mango_status lie_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                               struct mango_sandbox_ref *ret)
{
    struct mango_network net;
    struct mango_sandbox_spec s = plain(spec, &net);
    return getenv("LIE_TWICE") ? create_another(ctx, call, &s, ret) : hostbox_create(ctx, call, &s, ret);
}

static mango_status lie_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                               const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct mango_network net;
    struct mango_sandbox_spec s = plain(spec, &net);
    s.label = label_in(id, s.label);
    mango_status st = hostbox_attach(ctx, call, id, &s, ret);
    if (lies() & MANGO_CAP_KEEP_ALIVE)
        ret->expires_s = 60; /* whatever was moved */
    return st;
}

static mango_status lie_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    if (!(lies() & MANGO_CAP_CONCURRENT_EXEC))
        return hostbox_exec(ctx, call, id, req, ret);
    pthread_mutex_lock(&one_at_a_time);
    mango_status s = hostbox_exec(ctx, call, id, req, ret);
    pthread_mutex_unlock(&one_at_a_time);
    return s;
}

static mango_status lie_proc_open(void *ctx, const struct mango_call *call, struct mango_sv id,
                                  const struct mango_exec_req *req, mango_proc *ret)
{
    struct mango_exec_req r = *req;
    r.flags = 0; /* pipes for a terminal */
    return hostbox_proc_open(ctx, call, id, &r, ret);
}

/* ---- what local does not have ---- */

static mango_status lie_list(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                             void *fn_ctx)
{
    (void)owner, (void)ctx, (void)call, (void)fn, (void)fn_ctx;
    return MANGO_OK;
}
static mango_status lie_id(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    (void)ctx, (void)call, (void)id;
    return MANGO_OK;
}
static mango_status lie_proc_close(void *ctx, const struct mango_call *call, mango_proc proc)
{
    (void)ctx, (void)call, (void)proc;
#ifdef __SANITIZE_ADDRESS__
    __lsan_ignore_object((const void *)(uintptr_t)proc); /* what it leaves behind is the lie */
#endif
    return MANGO_OK;
}
static mango_status lie_resize(void *ctx, const struct mango_call *call, mango_proc proc, uint32_t rows, uint32_t cols)
{
    (void)ctx, (void)call, (void)proc, (void)rows, (void)cols;
    return MANGO_OK;
}
static mango_status lie_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_buf *ret)
{
    (void)ctx, (void)call, (void)id;
    return liar_host->buf_append(liar_host, ret, "snapshot", 8);
}
static mango_status lie_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                             const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    (void)snapshot;
    return lie_create(ctx, call, spec, ret);
}
static mango_status lie_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                                const struct mango_network *net)
{
    (void)ctx, (void)call, (void)id, (void)net;
    return MANGO_OK;
}
static mango_status lie_packages(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv json,
                                 mango_sink_fn *sink, void *sink_ctx)
{
    (void)ctx, (void)call, (void)id, (void)json, (void)sink, (void)sink_ctx;
    return MANGO_OK;
}
static mango_status lie_archive_in(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                                   mango_source_fn *source, void *source_ctx)
{
    (void)ctx, (void)call, (void)id, (void)path, (void)source, (void)source_ctx;
    return MANGO_OK;
}
static mango_status lie_archive_out(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                                    mango_sink_fn *sink, void *sink_ctx)
{
    (void)ctx, (void)call, (void)id, (void)path, (void)sink, (void)sink_ctx;
    return MANGO_OK;
}
static mango_status lie_keep_alive(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds)
{
    (void)ctx, (void)call, (void)id, (void)seconds;
    return MANGO_OK;
}

static void forget_all(struct boxes *all)
{
    DIR *d = fdopendir(openat(all->base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "session-", 8) == 0)
            (void)remove_tree(all->base_fd, e->d_name);
    }
    if (d)
        closedir(d);
}

static mango_status lie_init(const struct mango_host *h, const struct mango_call *call, struct mango_sv config,
                             void **ret_ctx)
{
    liar_host = h;
    h->caps_without(h, bits_of("LIE_TAKES_BACK"));
    mango_status s = local_init(h, call, config, ret_ctx);
    if (s == MANGO_OK && getenv("LIE_FORGETS"))
        forget_all(*ret_ctx);
    return s;
}

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    uint64_t bits = lies();
    copy_local("liar");
    mine.caps |= bits;
    mine.init = lie_init;
    mine_ops.create = lie_create;
    mine_ops.attach = lie_attach;
    mine_ops.destroy = lie_destroy;
    mine_ops.exec = lie_exec;
    mine_ops.proc_open = lie_proc_open;
    mine_ops.proc_resize = lie_resize;
    mine_ops.pause = mine_ops.resume = mine_ops.snapshot_delete = lie_id;
    mine_ops.snapshot = lie_snapshot;
    mine_ops.fork = lie_fork;
    mine_ops.set_network = lie_network;
    mine_ops.packages = lie_packages;
    mine_ops.archive_in = lie_archive_in;
    mine_ops.archive_out = lie_archive_out;
    mine_ops.keep_alive = lie_keep_alive;
    if (bits & MANGO_CAP_LIST_OWNED)
        mine_ops.list_owned = lie_list;
    if (bits & MANGO_CAP_PROC)
        mine_ops.proc_close = lie_proc_close;
    return &mine;
}
