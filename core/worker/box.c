#include "worker/box.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "worker/retry.h"

enum {
    ENV_MAX = MG_BOX_PASS_MAX + 8,
    LINE_MAX = 8192,       /* bytes of one variable: a secret has a few hundred */
    ID_MAX = 1024,         /* bytes of a launcher's id */
    STOP_SLACK_MS = 60000, /* a launcher may take so long on top of the grace */
    HUNG_GRACE_MS = 5000,  /* for a worker whose claim is over */
    EARLY_MS = 10000,      /* a box that fails within it may do so again: the next claim waits a moment */
    EXIT_LEASE = 3,        /* mango-worker run: the item was over, or went to another worker */
};

/* ---- launching ---- */

struct variables {
    char *text[ENV_MAX];
    struct mango_sv v[ENV_MAX];
    uint64_t n;
};

static void add(struct variables *e, const char *name, const char *value)
{
    size_t len = strlen(name) + strlen(value) + 2;

    if (e->n == ENV_MAX)
        return;
    char *z = mg_xmalloc(len);
    (void)snprintf(z, len, "%s%s%s", name, *name ? "=" : "", value);
    e->text[e->n] = z;
    e->v[e->n++] = (struct mango_sv){z, strlen(z)};
}

static void variables_done(struct variables *e)
{
    for (uint64_t i = 0; i < e->n; i++) {
        mg_wipe(e->text[i], e->v[i].len);
        free(e->text[i]);
    }
}

/* The names that the public worker CLI and the workers of the SDKs read. No environment key. */
static void fill(const struct mg_box_kind *k, const struct mg_work_item *item, struct variables *e)
{
    add(e, "ANTHROPIC_WORK_ID", item->id);
    add(e, "ANTHROPIC_SESSION_ID", item->session_id);
    add(e, "ANTHROPIC_ENVIRONMENT_ID", k->environment_id);
    add(e, "ANTHROPIC_WORK_SECRET", item->secret);
    add(e, "ANTHROPIC_BASE_URL", k->box_base_url);
    for (size_t i = 0; i < k->n_pass; i++)
        add(e, "", k->pass[i]);
}

static struct mango_sv sv(const char *z)
{
    return (struct mango_sv){z ? z : "", z ? strlen(z) : 0};
}

static mg_rc launch(const struct mg_box_kind *k, const struct mg_work_item *item, struct mg_buf *ret_id,
                    struct mg_err *err)
{
    struct mango_sv argv[MG_BOX_ARGS_MAX + 2] = {sv("mango-worker"), sv("run")};
    const struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_OPEN};
    char label[MG_SUPERVISE_KEY];
    struct variables env = {.n = 0};
    struct mg_plugin *p = k->launcher;

    mg_supervisor_label(k->base_url, item->session_id, label);
    fill(k, item, &env);
    for (size_t i = 0; i < k->n_args; i++)
        argv[i + 2] = sv(k->args[i]);
    const struct mango_sandbox_spec box = {.struct_size = sizeof(box),
                                           .label = sv(label),
                                           .owner = sv(k->owner),
                                           .image = sv(k->image),
                                           .memory_bytes = k->memory_bytes,
                                           .disk_bytes = k->disk_bytes,
                                           .cpu_millis = k->cpu_millis,
                                           .pids = k->pids,
                                           .network = &net};
    const struct mango_launch_spec spec = {.struct_size = sizeof(spec),
                                           .work_id = sv(item->id),
                                           .session_id = sv(item->session_id),
                                           .label = box.label,
                                           .owner = box.owner,
                                           .argv = argv,
                                           .n_argv = k->n_args + 2,
                                           .env = env.v,
                                           .n_env = env.n,
                                           .box = &box};
    struct mango_call call = mg_plugin_call(mg_now_ns() + MG_SUPERVISE_LAUNCH_MS * UINT64_C(1000000), k->stop, err);
    struct mg_guard g = mg_guard_enter(p, MG_OP_LAUNCH);
    mango_status s = mg_guard_leave(&g, p->launcher->launch(p->ctx, &call, &spec, (struct mango_buf *)ret_id));
    variables_done(&env);
    if (s >= 0 && (!mg_buf_ok(ret_id) || ret_id->len == 0))
        return mg_err_set(err, MG_EINTERNAL, "the launcher %s gave no id of the box", p->name);
    return s < 0 ? mg_plugin_rc(p, MG_OP_LAUNCH, s, err) : MG_OK;
}

/* Speaks as the item does: the key may poll and acknowledge only. NULL: no token is known. */
static struct mg_remote *remote_of(const struct mg_box_kind *k, const struct mg_work_item *item)
{
    char *token = mg_work_item_token(item);
    struct mg_remote *r = token ? mg_remote_new(k->net, k->base_url, token, "environments-worker") : NULL;
    if (token)
        mg_wipe(token, strlen(token));
    free(token);
    return r;
}

/* ---- giving the item back ---- */

/* The session gets another item at once, instead of after the lease. */
static void give_back(const struct mg_box_kind *k, const struct mg_work_item *item)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(4096);
    mg_auto(remote_answer) struct mg_remote_answer answer = {0};
    mg_auto(remote) struct mg_remote *r = remote_of(k, item);
    struct mg_err err = {0};

    mg_buf_str(&path, "/v1/environments/");
    (void)mg_buf_percent(&path, mg_sv_of(k->environment_id));
    mg_buf_str(&path, "/work/");
    (void)mg_buf_percent(&path, mg_sv_of(item->id));
    mg_buf_str(&path, "/stop");
    mg_autofree char *z = mg_buf_steal(&path, NULL);
    struct mg_remote_req q = {.method = "POST", .path = z, .body = MG_SV("{\"force\":true}")};
    mg_rc rc = r && z ? mg_remote_call(r, &q, &answer, &err) : MG_EINVAL;
    if (rc < 0 && !mg_retry_fatal(answer.status))
        mg_log(MG_WARN, "the item could not be given back: it is queued again when its lease ends",
               MG_F_STR("work", item->id), MG_F_STR("error", err.text));
}

/* ---- watching ---- */

static bool stop_box(const struct mg_box_kind *k, const char *id, uint32_t grace_ms, struct mg_err *err)
{
    struct mg_plugin *p = k->launcher;
    uint64_t limit = ((uint64_t)grace_ms + STOP_SLACK_MS) * 1000000;
    struct mango_call call = mg_plugin_call(mg_now_ns() + limit, NULL, err);
    struct mg_guard g = mg_guard_enter(p, MG_OP_STOP);
    mango_status s = mg_guard_leave(&g, p->launcher->stop(p->ctx, &call, sv(id), grace_ms));

    if (s < 0)
        (void)mg_plugin_rc(p, MG_OP_STOP, s, err);
    return s >= 0;
}

/* Until it is gone. A box that cannot be removed may still write: nothing else would help. */
static void remove_box(const struct mg_box_kind *k, const char *id)
{
    struct mg_err err = {0};

    for (unsigned n = 0; !stop_box(k, id, 0, &err); n++) {
        mg_log(MG_WARN, "a box cannot be removed", MG_F_STR("box", id), MG_F_STR("error", err.text));
        if (mg_cancel_fired(k->stop))
            return; /* the next supervisor finds it */
        (void)mg_retry_sleep(mg_retry_delay_ms(n, MG_SUPERVISE_RETRY_MS, MG_SUPERVISE_RETRY_MAX_MS), k->stop);
    }
}

static bool over(uint32_t state)
{
    return state == MANGO_LAUNCH_ENDED || state == MANGO_LAUNCH_GONE;
}

/* The claim is another's or nobody's: the worker would have ended by itself, unless it hangs or is stopped. */
static bool claim_over(const struct mg_box_kind *k, const struct mg_work_item *item)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(4096);
    mg_auto(remote_answer) struct mg_remote_answer answer = {0};
    mg_auto(remote) struct mg_remote *r = remote_of(k, item);
    struct mg_err err = {0};

    mg_buf_str(&path, "/v1/sessions/");
    (void)mg_buf_percent(&path, mg_sv_of(item->session_id));
    mg_autofree char *z = mg_buf_steal(&path, NULL);
    struct mg_remote_req q = {.method = "GET", .path = z, .cancel = k->stop, .retries = -1};
    mg_rc rc = r && z ? mg_remote_call(r, &q, &answer, &err) : MG_OK;
    return rc < 0 && (answer.status == 401 || answer.status == 403 || answer.status == 404 || answer.status == 410 ||
                      answer.status == 412);
}

/* Waits for the end. What a launcher says beside the states that there are is no end. */
static void watch(const struct mg_box_kind *k, const char *id, const struct mg_work_item *item,
                  struct mango_launch_state *st)
{
    struct mg_plugin *p = k->launcher;
    struct mg_err err = {0};

    for (unsigned n = 0; !over(st->state);) {
        if (mg_cancel_fired(k->stop)) {
            if (!stop_box(k, id, k->grace_ms, &err))
                mg_log(MG_WARN, "a box does not end", MG_F_STR("box", id), MG_F_STR("error", err.text));
            return;
        }
        uint32_t was = st->state;
        uint64_t since = mg_now_ns();
        struct mango_call call = mg_plugin_call(since + MG_SUPERVISE_WATCH_MS * UINT64_C(1000000), k->stop, &err);
        struct mg_guard g = mg_guard_enter(p, MG_OP_WATCH);
        mango_status s = mg_guard_leave(&g, p->launcher->watch(p->ctx, &call, sv(id), st));
        bool idle = s < 0 || (st->state == was && mg_now_ns() - since < MG_SUPERVISE_RETRY_MS * UINT64_C(1000000));
        n = idle ? n + 1 : 0;
        if (s < 0 && s != MANGO_ECANCELED) {
            (void)mg_plugin_rc(p, MG_OP_WATCH, s, &err);
            mg_log(MG_WARN, "a box cannot be watched", MG_F_STR("box", id), MG_F_STR("error", err.text));
        }
        if (s >= 0 && !idle && st->state == was && item && claim_over(k, item)) {
            mg_log(MG_WARN, "a box outlives its claim and is ended", MG_F_STR("box", id), MG_F_STR("work", item->id));
            (void)stop_box(k, id, HUNG_GRACE_MS, &err);
        }
        if (idle)
            (void)mg_retry_sleep(mg_retry_delay_ms(n - 1, MG_SUPERVISE_RETRY_MS, MG_SUPERVISE_RETRY_MAX_MS), k->stop);
    }
}

/* ---- how it ended ---- */

struct tail {
    char text[MG_SUPERVISE_LOG_MAX];
    size_t len;
};

static int32_t on_log(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct tail *t = ctx;
    size_t room = sizeof(t->text);

    (void)stream;
    if (n >= room) {
        memcpy(t->text, p + n - room, room);
        t->len = room;
        return 0;
    }
    if (t->len + n > room) {
        size_t drop = t->len + (size_t)n - room;
        memmove(t->text, t->text + drop, t->len - drop);
        t->len -= drop;
    }
    memcpy(t->text + t->len, p, n);
    t->len += n;
    return 0;
}

static void log_words(const struct mg_box_kind *k, const char *id)
{
    struct mg_plugin *p = k->launcher;
    struct mg_err err = {0};
    struct tail t = {.len = 0};

    if (!mg_plugin_can(p, MANGO_CAP_LAUNCH_LOGS))
        return;
    struct mango_call call = mg_plugin_call(mg_now_ns() + STOP_SLACK_MS * UINT64_C(1000000), NULL, &err);
    (void)p->launcher->logs(p->ctx, &call, sv(id), on_log, &t);
    for (size_t i = 0; i < t.len; i++)
        if ((unsigned char)t.text[i] < 0x20)
            t.text[i] = ' ';
    mg_log(MG_WARN, "its last words", MG_F_STR("box", id), MG_F_SV("log", (struct mg_sv){t.text, t.len}));
}

/* True when the worker has seen to its item itself: it ended in order, or the lease was another's. */
static bool in_order(const struct mango_launch_state *st)
{
    return st->state == MANGO_LAUNCH_ENDED && st->result.exited &&
           (st->result.exit_code == 0 || st->result.exit_code == EXIT_LEASE);
}

/* item may be NULL: its token is not known any more, the lease's end queues the session again. */
static mg_rc see_out(const struct mg_box_kind *k, const char *id, const struct mg_work_item *item)
{
    uint64_t since = mg_now_ns();
    mg_auto(buf) struct mg_buf reason = MG_BUF_INIT(1024);
    struct mango_launch_state st = {
        .struct_size = sizeof(st), .state = MANGO_LAUNCH_PENDING, .reason = (struct mango_buf *)&reason};

    watch(k, id, item, &st);
    bool asked = !over(st.state);
    mg_log(in_order(&st) || asked ? MG_INFO : MG_WARN, "a box has ended", MG_F_STR("box", id),
           MG_F_STR("work", item ? item->id : ""), MG_F_INT("exit", st.result.exited ? st.result.exit_code : -1),
           MG_F_INT("signal", st.result.signal), MG_F_SV("reason", mg_buf_view(&reason)));
    if (!in_order(&st) && !asked)
        log_words(k, id);
    remove_box(k, id);
    bool early = !in_order(&st) && !asked && mg_now_ns() - since < EARLY_MS * UINT64_C(1000000);
    if (!in_order(&st) && item)
        give_back(k, item);
    return early ? MG_EIO : MG_OK;
}

mg_rc mg_box_serve(const struct mg_box_kind *k, const struct mg_work_item *item)
{
    mg_auto(buf) struct mg_buf id = MG_BUF_INIT(ID_MAX);
    struct mg_err err = {0};
    mg_rc rc = launch(k, item, &id, &err);

    if (rc < 0) {
        mg_log(MG_ERROR, "a box cannot be launched", MG_F_STR("work", item->id), MG_F_STR("session", item->session_id),
               MG_F_STR("error", err.text));
        give_back(k, item);
        return rc;
    }
    mg_autofree char *name = mg_buf_steal(&id, NULL);
    mg_log(MG_INFO, "a box is launched", MG_F_STR("box", name), MG_F_STR("work", item->id),
           MG_F_STR("session", item->session_id));
    return see_out(k, name, item);
}

mg_rc mg_box_adopt(const struct mg_box_kind *k, const char *id)
{
    return see_out(k, id, NULL);
}
