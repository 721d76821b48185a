/* The launcher's cases. Boxes run the worker that the launcher brings: `poll` at an address where nobody listens goes on until it is told to
 * end, and a command that does not exist ends at once with status 2. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sandbox/conformance-internal.h"

enum {
    LAUNCH_MS = 300000, /* an image may have to be pulled */
    LOOK_MS = 1000,
    END_MS = 60000,
    GRACE_MS = 20000,
    WORDS_MAX = 8,
    WORK_LEN = 40,
    EXIT_USAGE = 2, /* mango-worker: no such command */
};

struct lc {
    struct cf c; /* first */
    char work[WORK_LEN];
};

static const char *const LIVES[] = {"mango-worker", "poll", "--base-url", "http://127.0.0.1:9", NULL};
static const char *const ENDS[] = {"mango-worker", "no-such-command", NULL};

static void new_work(struct lc *l)
{
    snprintf(l->work, sizeof(l->work), "work_%016llx", (unsigned long long)mg_rng_u64());
}

static struct mango_sv sv(const char *z)
{
    return (struct mango_sv){z, strlen(z)};
}

static mango_status launch(struct lc *l, const char *const *argv, struct mg_buf *id)
{
    struct cf *c = &l->c;
    struct mg_err err = {0};
    struct mango_sv words[WORDS_MAX];
    const struct mango_sv env[] = {sv("ANTHROPIC_ENVIRONMENT_ID=env_conformance"),
                                   sv("ANTHROPIC_ENVIRONMENT_KEY=conformance"),
                                   sv("ANTHROPIC_WORK_SECRET=conformance")};
    uint64_t n = 0;
    for (; argv[n]; n++)
        words[n] = sv(argv[n]);
    const struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_OPEN};
    const struct mango_sandbox_spec box = {
        .struct_size = sizeof(box), .label = sv(c->label), .owner = sv(c->owner), .network = &net};
    const struct mango_launch_spec spec = {.struct_size = sizeof(spec),
                                           .work_id = sv(l->work),
                                           .session_id = sv("sesn_conformance"),
                                           .label = box.label,
                                           .owner = box.owner,
                                           .argv = words,
                                           .n_argv = n,
                                           .env = env,
                                           .n_env = sizeof(env) / sizeof(env[0]),
                                           .box = &box};
    struct mango_call call = mg_plugin_call(cf_in_ms(LAUNCH_MS), NULL, &err);
    mango_status s = c->p->launcher->launch(c->p->ctx, &call, &spec, (struct mango_buf *)id);
    (void)cf_check(c, s >= 0, "launch gave %d: %s", s, err.text);
    (void)cf_check(c, s < 0 || (id->len > 0 && mg_buf_ok(id)), "launch gave no id");
    return s;
}

/* One look from `was` on; the state that came back. */
static uint32_t look(struct lc *l, const struct mg_buf *id, uint32_t was, uint32_t ms, struct mango_launch_state *ret)
{
    struct cf *c = &l->c;
    struct mg_err err = {0};
    *ret = (struct mango_launch_state){.struct_size = sizeof(*ret), .state = was};
    struct mango_call call = mg_plugin_call(cf_in_ms(ms), NULL, &err);
    mango_status s = c->p->launcher->watch(c->p->ctx, &call, cf_abi(mg_buf_view(id)), ret);
    (void)cf_check(c, s == MANGO_OK, "watch gave %d: %s", s, err.text);
    return ret->state;
}

/* Looks until the state is this one. */
static bool reaches(struct lc *l, const struct mg_buf *id, uint32_t want, struct mango_launch_state *ret)
{
    uint64_t until = cf_in_ms(END_MS);
    uint32_t state = MANGO_LAUNCH_PENDING;
    while ((state = look(l, id, state, LOOK_MS, ret)) != want && mg_now_ns() < until && !l->c.failed) {
    }
    return cf_check(&l->c, state == want, "the state is %u, expected %u", state, want);
}

static void stop(struct lc *l, const struct mg_buf *id, uint64_t grace_ms)
{
    struct cf *c = &l->c;
    struct mg_err err = {0};
    struct mango_call call = mg_plugin_call(cf_in_ms(END_MS + grace_ms), NULL, &err);
    mango_status s = c->p->launcher->stop(c->p->ctx, &call, cf_abi(mg_buf_view(id)), grace_ms);
    (void)cf_check(c, s == MANGO_OK, "stop gave %d: %s", s, err.text);
}

static bool over(uint32_t state)
{
    return state == MANGO_LAUNCH_ENDED || state == MANGO_LAUNCH_GONE;
}

#define ID(name) mg_auto(buf) struct mg_buf name = MG_BUF_INIT(CF_REF_MAX)

/* ---- the cases ---- */

static void an_item_is_launched_once(struct lc *l)
{
    struct mango_launch_state st;
    ID(first);
    ID(again);
    if (launch(l, LIVES, &first) < 0 || !reaches(l, &first, MANGO_LAUNCH_RUNNING, &st))
        return;
    if (launch(l, LIVES, &again) >= 0)
        (void)cf_check(&l->c, mg_sv_eq(mg_buf_view(&first), mg_buf_view(&again)),
                       "the same item has another box the second time");
    stop(l, &first, GRACE_MS);
}

static void watch_ends_at_its_deadline_and_at_a_change(struct lc *l)
{
    struct mango_launch_state st;
    ID(id);
    if (launch(l, LIVES, &id) < 0 || !reaches(l, &id, MANGO_LAUNCH_RUNNING, &st))
        return;
    uint64_t since = mg_now_ns();
    (void)look(l, &id, MANGO_LAUNCH_RUNNING, LOOK_MS, &st);
    uint64_t ms = (mg_now_ns() - since) / 1000000;
    (void)cf_check(&l->c, st.state == MANGO_LAUNCH_RUNNING, "a box that runs is told as %u", st.state);
    (void)cf_check(&l->c, ms + 100 >= LOOK_MS && ms < LOOK_MS + 3000, "a look of %d ms took %llu ms", LOOK_MS,
                   (unsigned long long)ms);
    stop(l, &id, GRACE_MS);
    (void)cf_check(&l->c, over(look(l, &id, MANGO_LAUNCH_RUNNING, LOOK_MS, &st)), "a stopped box is told as %u",
                   st.state);
}

static void how_a_worker_ended_is_told(struct lc *l)
{
    struct mango_launch_state st;
    ID(id);
    if (launch(l, ENDS, &id) < 0 || !reaches(l, &id, MANGO_LAUNCH_ENDED, &st))
        return;
    (void)cf_check(&l->c, st.result.exited && st.result.exit_code == EXIT_USAGE,
                   "exited %d with %d, expected 1 with %d", st.result.exited, st.result.exit_code, EXIT_USAGE);
    (void)cf_check(&l->c, !st.result.unknown, "an end that is known is told as unknown too");
    stop(l, &id, 0);
}

static void stop_is_idempotent_and_leaves_nothing(struct lc *l)
{
    struct mango_launch_state st;
    ID(id);
    if (launch(l, LIVES, &id) < 0 || !reaches(l, &id, MANGO_LAUNCH_RUNNING, &st))
        return;
    stop(l, &id, 0);
    stop(l, &id, 0);
    stop(l, &id, GRACE_MS);
    (void)cf_check(&l->c, over(look(l, &id, MANGO_LAUNCH_RUNNING, LOOK_MS, &st)), "it still runs (%u)", st.state);
}

static void two_boxes_of_a_session_never_live_at_once(struct lc *l)
{
    struct mango_launch_state st;
    ID(first);
    ID(second);
    if (launch(l, LIVES, &first) < 0 || !reaches(l, &first, MANGO_LAUNCH_RUNNING, &st))
        return;
    new_work(l);
    if (launch(l, LIVES, &second) < 0)
        return;
    (void)cf_check(&l->c, over(look(l, &first, MANGO_LAUNCH_RUNNING, LOOK_MS, &st)),
                   "the box of the item before lives beside the new one");
    (void)reaches(l, &second, MANGO_LAUNCH_RUNNING, &st);
    stop(l, &first, 0); /* of a late supervisor: it must not hit the new one */
    (void)cf_check(&l->c, look(l, &second, MANGO_LAUNCH_PENDING, LOOK_MS, &st) == MANGO_LAUNCH_RUNNING,
                   "stopping the old box ended the new one");
    stop(l, &second, 0);
}

static void a_cancel_ends_a_watch(struct lc *l)
{
    struct mango_launch_state st;
    struct mg_err err = {0};
    ID(id);
    if (launch(l, LIVES, &id) < 0 || !reaches(l, &id, MANGO_LAUNCH_RUNNING, &st))
        return;
    struct mg_cancel *cancel = mg_cancel_new();
    mg_cancel_fire(cancel);
    uint64_t since = mg_now_ns();
    struct mango_call call = mg_plugin_call(cf_in_ms(END_MS), cancel, &err);
    mango_status s = l->c.p->launcher->watch(l->c.p->ctx, &call, cf_abi(mg_buf_view(&id)), &st);
    (void)cf_check(&l->c, s == MANGO_ECANCELED, "watch gave %d", s);
    (void)cf_check(&l->c, (mg_now_ns() - since) / 1000000 < 2000, "it took more than 2 s");
    mg_cancel_unref(cancel);
    stop(l, &id, 0);
}

struct listing {
    struct mg_sv id;
    int n;
};

static int32_t on_owned(void *ctx, const struct mango_owned *item)
{
    struct listing *list = ctx;
    list->n += mg_sv_eq(list->id, mg_sv_n(item->id.ptr, item->id.len));
    return 0;
}

static int listed(struct lc *l, const char *owner, const struct mg_buf *id)
{
    struct listing list = {.id = mg_buf_view(id)};
    struct mg_err err = {0};
    struct mango_call call = mg_plugin_call(cf_in_ms(END_MS), NULL, &err);
    mango_status s = l->c.p->launcher->list_owned(l->c.p->ctx, &call, sv(owner), on_owned, &list);
    (void)cf_check(&l->c, s == MANGO_OK, "list_owned gave %d: %s", s, err.text);
    return list.n;
}

static void a_successor_finds_the_box(struct lc *l)
{
    struct mango_launch_state st;
    struct cf *c = &l->c;
    struct mg_err err = {0};
    ID(id);
    if (launch(l, LIVES, &id) < 0 || !reaches(l, &id, MANGO_LAUNCH_RUNNING, &st))
        return;
    mg_plugin_close(c->p);
    c->p = NULL;
    if (!cf_check(c, cf_open_plugin(c, &err) == MG_OK, "the plugin does not start again: %s", err.text))
        return;
    (void)cf_check(c, listed(l, c->owner, &id) == 1, "list_owned does not show it");
    (void)cf_check(c, listed(l, c->other_label, &id) == 0, "list_owned shows it to another owner");
    (void)cf_check(c, look(l, &id, MANGO_LAUNCH_PENDING, LOOK_MS, &st) == MANGO_LAUNCH_RUNNING, "it is told as %u",
                   st.state);
    stop(l, &id, 0);
    (void)cf_check(c, listed(l, c->owner, &id) == 0, "list_owned still shows it behind the stop");
}

static int32_t on_log(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    return mg_buf_append(ctx, p, n) == MG_OK ? 0 : 1;
}

static void the_workers_words_can_be_read(struct lc *l)
{
    struct mango_launch_state st;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf words = MG_BUF_INIT(CF_OUTPUT_MAX);
    ID(id);
    if (launch(l, ENDS, &id) < 0 || !reaches(l, &id, MANGO_LAUNCH_ENDED, &st))
        return;
    struct mango_call call = mg_plugin_call(cf_in_ms(END_MS), NULL, &err);
    mango_status s = l->c.p->launcher->logs(l->c.p->ctx, &call, cf_abi(mg_buf_view(&id)), on_log, &words);
    (void)cf_check(&l->c, s == MANGO_OK, "logs gave %d: %s", s, err.text);
    (void)cf_check(&l->c, mg_buf_char(&words, '\0') == MG_OK && strstr(mg_buf_view(&words).ptr, "no-such-command"),
                   "they do not name the command that does not exist");
    stop(l, &id, 0);
}

static void what_persists_has_a_name(struct lc *l)
{
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf names = MG_BUF_INIT(CF_TEXT_MAX);
    const struct mango_launch_spec spec = {
        .struct_size = sizeof(spec), .work_id = sv(l->work), .label = sv(l->c.label), .owner = sv(l->c.owner)};
    struct mango_persists p = {.struct_size = sizeof(p), .names = (struct mango_buf *)&names};
    struct mango_call call = mg_plugin_call(cf_in_ms(END_MS), NULL, &err);
    mango_status s = l->c.p->launcher->persists(l->c.p->ctx, &call, &spec, &p);
    (void)cf_check(&l->c, s == MANGO_OK, "persists gave %d: %s", s, err.text);
    (void)cf_check(&l->c, (p.what == 0) == (names.len == 0), "what persists and its names do not fit");
    cf_note(&l->c, "persists: %.*s", (int)names.len, names.len ? mg_buf_view(&names).ptr : "nothing");
}

static const struct {
    const char *name;
    uint64_t caps;
    void (*run)(struct lc *l);
} CASES[] = {
    {"an_item_is_launched_once", 0, an_item_is_launched_once},
    {"watch_ends_at_its_deadline_and_at_a_change", 0, watch_ends_at_its_deadline_and_at_a_change},
    {"how_a_worker_ended_is_told", 0, how_a_worker_ended_is_told},
    {"stop_is_idempotent_and_leaves_nothing", 0, stop_is_idempotent_and_leaves_nothing},
    {"two_boxes_of_a_session_never_live_at_once", 0, two_boxes_of_a_session_never_live_at_once},
    {"a_cancel_ends_a_watch", 0, a_cancel_ends_a_watch},
    {"what_persists_has_a_name", 0, what_persists_has_a_name},
    {"a_successor_finds_the_box", MANGO_CAP_LAUNCH_LIST, a_successor_finds_the_box},
    {"the_workers_words_can_be_read", MANGO_CAP_LAUNCH_LOGS, the_workers_words_can_be_read},
};

/* Everything that a case has made is gone afterwards, where the launcher can forget. */
static void forget(struct lc *l)
{
    struct mg_err err = {0};
    if (!l->c.p || !MANGO_HAS(l->c.p->launcher, forget))
        return;
    struct mango_call call = mg_plugin_call(cf_in_ms(END_MS), NULL, &err);
    mango_status s = l->c.p->launcher->forget(l->c.p->ctx, &call, sv(l->c.label));
    (void)cf_check(&l->c, s == MANGO_OK, "forget gave %d: %s", s, err.text);
}

static void run_case(struct lc *l, struct cf_report *r, size_t i)
{
    struct cf *c = &l->c;
    r->n++;
    if (!mg_plugin_can(c->p, CASES[i].caps)) {
        cf_say(r, "ok %d - launcher/%s # SKIP the capability is not claimed", r->n, CASES[i].name);
        r->skipped++;
        return;
    }
    c->failed = false;
    mg_buf_reset(&c->why);
    mg_buf_reset(&c->notes);
    cf_random_label(c->label);
    cf_random_label(c->other_label);
    new_work(l);
    CASES[i].run(l);
    forget(l);
    cf_say(r, "%sok %d - launcher/%s", c->failed ? "not " : "", r->n, CASES[i].name);
    if (c->failed)
        cf_say_lines(r, &c->why);
    cf_say_lines(r, &c->notes);
    r->failed += c->failed;
}

int mg_conformance_launcher(const struct mg_conformance_opts *opts, void (*line)(void *ctx, const char *text),
                            void *ctx)
{
    struct lc l = {.c = {.opts = opts,
                         .kind = MANGO_KIND_LAUNCHER,
                         .why = MG_BUF_INIT(CF_TEXT_MAX),
                         .notes = MG_BUF_INIT(CF_TEXT_MAX)}};
    struct cf_report r = {.line = line, .ctx = ctx};
    struct mg_err err = {0};
    cf_say(&r, "TAP version 13");
    if (cf_open_plugin(&l.c, &err) < 0) {
        cf_say(&r, "Bail out! %s", err.text);
        return -1;
    }
    cf_random_label(l.c.owner);
    cf_say(&r, "# %s %s, %s: %s", l.c.p->name, l.c.p->desc->version, l.c.p->desc->license, l.c.p->desc->summary);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]) && l.c.p; i++) {
        if (!opts->only || strstr(CASES[i].name, opts->only))
            run_case(&l, &r, i);
    }
    cf_say(&r, "1..%d", r.n);
    cf_say(&r, "# %d run, %d failed, %d skipped", r.n - r.skipped, r.failed, r.skipped);
    r.failed += !l.c.p;
    mg_plugin_close(l.c.p);
    mg_buf_done(&l.c.why);
    mg_buf_done(&l.c.notes);
    return r.failed;
}
