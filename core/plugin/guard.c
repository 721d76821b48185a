#include "base/clock.h"
#include "plugin/plugin.h"

/* Every call of the core into a plugin passes here: time and counts for /metrics, the status in the core's terms. */

static const char *const op_names[MG_OP_COUNT] = {
    [MG_OP_CREATE] = "create",   [MG_OP_ATTACH] = "attach",         [MG_OP_EXEC] = "exec",
    [MG_OP_READ] = "read",       [MG_OP_WRITE] = "write",           [MG_OP_STAT] = "stat",
    [MG_OP_DESTROY] = "destroy", [MG_OP_HEALTH] = "health",         [MG_OP_LIST] = "list_owned",
    [MG_OP_PROC] = "proc",       [MG_OP_PAUSE] = "pause",           [MG_OP_SNAPSHOT] = "snapshot",
    [MG_OP_NETWORK] = "network", [MG_OP_PACKAGES] = "packages",     [MG_OP_ARCHIVE] = "archive",
    [MG_OP_LAUNCH] = "launch",   [MG_OP_KEEP_ALIVE] = "keep_alive", [MG_OP_WATCH] = "watch",
    [MG_OP_STOP] = "stop",
};

const char *mg_plugin_op_name(enum mg_plugin_op op)
{
    return op_names[op];
}

struct mg_guard mg_guard_enter(struct mg_plugin *p, enum mg_plugin_op op)
{
    atomic_fetch_add_explicit(&p->stats[op].busy, 1, memory_order_relaxed);
    return (struct mg_guard){.p = p, .op = op, .since_ns = mg_now_ns()};
}

mango_status mg_guard_leave(const struct mg_guard *g, mango_status status)
{
    struct mg_plugin_stat *s = &g->p->stats[g->op];
    uint64_t ns = mg_now_ns() - g->since_ns;
    atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->ns, ns, memory_order_relaxed);
    if (status < 0)
        atomic_fetch_add_explicit(&s->errors, 1, memory_order_relaxed);
    uint64_t max = atomic_load_explicit(&s->max_ns, memory_order_relaxed);
    while (ns > max &&
           !atomic_compare_exchange_weak_explicit(&s->max_ns, &max, ns, memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_fetch_sub_explicit(&s->busy, 1, memory_order_relaxed);
    return status;
}

static const struct {
    mango_status status;
    mg_rc rc;
    const char *text; /* when the plugin gave none */
} statuses[] = {
    {MANGO_ERETRY, MG_EUNAVAIL, "the sandbox service did not answer; the call may be tried again"},
    {MANGO_EGONE, MG_EGONE, "the sandbox does not exist any more"},
    {MANGO_EDENIED, MG_EDENIED, "the sandbox refused the call"},
    {MANGO_EQUOTA, MG_ERATE, "a limit of the sandbox service is reached"},
    {MANGO_EINVALID, MG_EINVAL, "the sandbox cannot do what was asked"},
    {MANGO_ECANCELED, MG_ECANCELED, "cancelled"},
    {MANGO_ETIMEOUT, MG_ETIMEOUT, "the sandbox did not answer in time"},
    {MANGO_EINTERNAL, MG_EINTERNAL, "the sandbox adapter failed"},
    {MANGO_ENOENT, MG_ENOTFOUND, "no such file"},
    {MANGO_EUNSUPPORTED, MG_EINVAL, "the sandbox adapter cannot do that"},
    {MANGO_ETOOBIG, MG_ETOOBIG, "past a limit of the sandbox"},
};

mg_rc mg_plugin_rc(const struct mg_plugin *p, enum mg_plugin_op op, mango_status status, struct mg_err *err)
{
    if (status >= 0)
        return MG_OK;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        if (statuses[i].status != status)
            continue;
        if (err && err->text[0] == '\0')
            return mg_err_set(err, statuses[i].rc, "%s", statuses[i].text);
        if (err)
            err->rc = statuses[i].rc;
        return statuses[i].rc;
    }
    return mg_err_set(err, MG_EINTERNAL, "adapter %s answered %s with status %d, which ABI %d does not know", p->name,
                      op_names[op], (int)status, MANGO_ABI_MAJOR);
}
