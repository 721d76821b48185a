#include "worker/ledger.h"

#include "base/map.h"
#include "base/mem.h"

struct mg_ledger {
    struct mg_map *seen, *answered, *verdicts, *dead; /* ids; a verdict is &allow or &deny; dead: threads */
    struct mg_list pending;                           /* calls of the history that is being read */
    struct mg_list ready, held;
    unsigned n_held, gated; /* gated: allowed ones that are ready or run */
    bool ended_turn;        /* of the history: its last event that counts ended a turn */
    bool settling;          /* the calls of a history are being run */
    bool left_open;         /* one of them stayed unanswered */
    /* the clock of idleness */
    uint32_t max_idle_ms;
    uint64_t idle_at_ns;
    bool wait_to_arm;  /* a held or gated call puts it off */
    bool may_be_stale; /* a history could not be read: the idle it runs from may be over */
};

static char allow_mark, deny_mark, mark;

struct mg_ledger *mg_ledger_new(uint32_t max_idle_ms)
{
    struct mg_ledger *l = mg_xcalloc(1, sizeof(*l));
    l->seen = mg_map_new();
    l->answered = mg_map_new();
    l->verdicts = mg_map_new();
    l->dead = mg_map_new();
    l->max_idle_ms = max_idle_ms;
    mg_list_init(&l->pending);
    mg_list_init(&l->ready);
    mg_list_init(&l->held);
    return l;
}

static void free_calls(struct mg_list *head)
{
    mg_list_each (it, head)
        mg_call_free(mg_container_of(it, struct mg_call, link));
}

void mg_ledger_free(struct mg_ledger *l)
{
    if (!l)
        return;
    free_calls(&l->pending);
    free_calls(&l->ready);
    free_calls(&l->held);
    mg_map_free(l->seen);
    mg_map_free(l->answered);
    mg_map_free(l->verdicts);
    mg_map_free(l->dead);
    free(l);
}

/* ---- idleness ---- */

static void disarm(struct mg_ledger *l)
{
    l->wait_to_arm = false;
    l->idle_at_ns = 0;
}

static void arm(struct mg_ledger *l, uint64_t now_ns)
{
    if (!l->max_idle_ms)
        return;
    l->wait_to_arm = l->n_held + l->gated > 0;
    l->idle_at_ns = l->wait_to_arm ? 0 : now_ns + (uint64_t)l->max_idle_ms * 1000000u;
}

static void unblock(struct mg_ledger *l, uint64_t now_ns)
{
    if (l->n_held + l->gated == 0 && l->wait_to_arm)
        arm(l, now_ns);
}

/* These leave the clock as it is: a confirmation acts on the call that it frees, and a thread may end behind the last idle. */
static bool is_neutral(const struct mg_event *e)
{
    return e->kind == MG_EVENT_CONFIRMATION || e->kind == MG_EVENT_THREAD_TERMINATED;
}

static void note(struct mg_ledger *l, const struct mg_event *e, uint64_t now_ns)
{
    if (l->may_be_stale && e->kind == MG_EVENT_THREAD_TERMINATED)
        disarm(l);
    if (is_neutral(e))
        return;
    l->may_be_stale = false;
    if (e->ends_turn)
        arm(l, now_ns);
    else
        disarm(l);
}

uint64_t mg_ledger_idle_at(const struct mg_ledger *l)
{
    return l->idle_at_ns;
}

/* ---- calls ---- */

static bool knows(const struct mg_map *m, struct mg_sv id)
{
    return mg_map_get(m, id) != NULL;
}

unsigned mg_ledger_held(const struct mg_ledger *l)
{
    return l->n_held;
}

static bool in_dead_thread(const struct mg_ledger *l, const struct mg_call *c)
{
    return c->thread[0] && knows(l->dead, mg_sv_of(c->thread));
}

static struct mg_call *find_held(const struct mg_ledger *l, struct mg_sv id)
{
    mg_list_each (it, &l->held) {
        struct mg_call *c = mg_container_of(it, struct mg_call, link);
        if (mg_sv_eqz(id, c->id))
            return c;
    }
    return NULL;
}

static void let_go(struct mg_ledger *l, struct mg_call *c)
{
    mg_list_del(&c->link);
    l->n_held--;
}

/* A denied call is the server's to answer. */
static void deny(struct mg_ledger *l, struct mg_call *c)
{
    (void)mg_map_put(l->answered, mg_sv_of(c->id), &mark);
    mg_call_free(c);
}

static void allow(struct mg_ledger *l, struct mg_call *c)
{
    c->gated = true;
    l->gated++;
    mg_list_add_tail(&l->ready, &c->link);
}

/* Takes c over. */
static void route(struct mg_ledger *l, struct mg_call *c)
{
    const char *verdict = c->permission == MG_PERMIT_DENY ? &deny_mark : mg_map_get(l->verdicts, mg_sv_of(c->id));
    if (in_dead_thread(l, c) || (!verdict && c->permission == MG_PERMIT_ASK && find_held(l, mg_sv_of(c->id)))) {
        mg_call_free(c); /* of no use any more, or held already */
        return;
    }
    struct mg_call *before = find_held(l, mg_sv_of(c->id));
    if (before) {
        let_go(l, before);
        mg_call_free(before);
    }
    if (verdict == &deny_mark) {
        deny(l, c);
    } else if (verdict) {
        allow(l, c);
    } else if (c->permission == MG_PERMIT_ALLOW) {
        mg_list_add_tail(&l->ready, &c->link);
    } else {
        mg_list_add_tail(&l->held, &c->link);
        l->n_held++;
        if (l->idle_at_ns) {
            l->wait_to_arm = true;
            l->idle_at_ns = 0;
        }
    }
}

static void apply_verdict(struct mg_ledger *l, struct mg_call *c, const char *verdict, uint64_t now_ns)
{
    let_go(l, c);
    if (verdict == &allow_mark) {
        allow(l, c);
    } else {
        deny(l, c);
        unblock(l, now_ns);
    }
}

static void drop_dead(struct mg_ledger *l, uint64_t now_ns)
{
    mg_list_each (it, &l->held) {
        struct mg_call *c = mg_container_of(it, struct mg_call, link);
        if (!in_dead_thread(l, c))
            continue;
        let_go(l, c);
        mg_call_free(c);
        if (l->may_be_stale)
            disarm(l);
        unblock(l, now_ns);
    }
}

/* ---- the history ---- */

void mg_ledger_history_begin(struct mg_ledger *l)
{
    l->ended_turn = false;
}

void mg_ledger_history(struct mg_ledger *l, const struct mg_event *e)
{
    if (!is_neutral(e))
        l->ended_turn = e->ends_turn;
    switch (e->kind) {
    case MG_EVENT_CALL:
        if (!knows(l->answered, e->id)) {
            struct mg_call *c = mg_call_new(e);
            mg_list_add_tail(&l->pending, &c->link);
        }
        break;
    case MG_EVENT_RESULT:
        (void)mg_map_put(l->answered, e->id, &mark);
        break;
    case MG_EVENT_CONFIRMATION:
        (void)mg_map_put(l->verdicts, e->id, e->allow ? &allow_mark : &deny_mark);
        break;
    case MG_EVENT_THREAD_TERMINATED:
        if (e->thread.len)
            (void)mg_map_put(l->dead, e->thread, &mark);
        break;
    case MG_EVENT_OTHER:
    case MG_EVENT_IDLE:
    case MG_EVENT_OVER:
        break;
    }
}

/* All calls of a history have been run, or there were none. */
static void settle(struct mg_ledger *l, uint64_t now_ns)
{
    l->settling = false;
    if (l->ended_turn && !l->left_open)
        arm(l, now_ns);
    else
        disarm(l);
}

void mg_ledger_history_end(struct mg_ledger *l, bool whole, uint64_t now_ns)
{
    l->may_be_stale = !whole;
    drop_dead(l, now_ns);
    if (!whole) { /* the next history, or the stream, brings them again */
        free_calls(&l->pending);
        return;
    }
    disarm(l);
    l->settling = true;
    l->left_open = false;
    mg_list_each (it, &l->pending) {
        struct mg_call *c = mg_container_of(it, struct mg_call, link);
        mg_list_del(&c->link);
        (void)mg_map_put(l->seen, mg_sv_of(c->id), &mark);
        if (knows(l->answered, mg_sv_of(c->id)))
            mg_call_free(c);
        else
            route(l, c);
    }
    mg_list_each (it, &l->held) { /* its call may stand outside of what was listed */
        struct mg_call *c = mg_container_of(it, struct mg_call, link);
        const char *verdict = mg_map_get(l->verdicts, mg_sv_of(c->id));
        if (knows(l->answered, mg_sv_of(c->id))) {
            let_go(l, c);
            mg_call_free(c);
        } else if (verdict) {
            apply_verdict(l, c, verdict, now_ns);
        }
    }
    if (mg_list_empty(&l->ready))
        settle(l, now_ns);
}

/* ---- the stream ---- */

static void new_call(struct mg_ledger *l, const struct mg_event *e)
{
    if (mg_map_put(l->seen, e->id, &mark) || knows(l->answered, e->id))
        return;
    route(l, mg_call_new(e));
}

bool mg_ledger_stream(struct mg_ledger *l, const struct mg_event *e, uint64_t now_ns)
{
    struct mg_call *held;
    note(l, e, now_ns);
    switch (e->kind) {
    case MG_EVENT_CALL:
        new_call(l, e);
        break;
    case MG_EVENT_RESULT:
        (void)mg_map_put(l->answered, e->id, &mark);
        held = find_held(l, e->id);
        if (held) { /* an interrupt answers what waits for a confirmation, too */
            let_go(l, held);
            mg_call_free(held);
            unblock(l, now_ns);
        }
        break;
    case MG_EVENT_CONFIRMATION:
        (void)mg_map_put(l->verdicts, e->id, e->allow ? &allow_mark : &deny_mark);
        held = find_held(l, e->id);
        if (held)
            apply_verdict(l, held, e->allow ? &allow_mark : &deny_mark, now_ns);
        break;
    case MG_EVENT_THREAD_TERMINATED:
        if (e->thread.len)
            (void)mg_map_put(l->dead, e->thread, &mark);
        drop_dead(l, now_ns);
        break;
    case MG_EVENT_OVER:
        return true;
    case MG_EVENT_OTHER:
    case MG_EVENT_IDLE:
        break;
    }
    return false;
}

/* ---- running ---- */

struct mg_call *mg_ledger_take(struct mg_ledger *l, uint64_t now_ns)
{
    while (!mg_list_empty(&l->ready)) {
        struct mg_call *c = mg_container_of(l->ready.next, struct mg_call, link);
        mg_list_del(&c->link);
        if (!knows(l->answered, mg_sv_of(c->id)) && !in_dead_thread(l, c))
            return c;
        mg_ledger_end(l, c, MG_CALL_ANSWERED, now_ns);
    }
    return NULL;
}

void mg_ledger_end(struct mg_ledger *l, struct mg_call *c, enum mg_call_end how, uint64_t now_ns)
{
    if (how == MG_CALL_ANSWERED)
        (void)mg_map_put(l->answered, mg_sv_of(c->id), &mark);
    else
        l->left_open = true;
    if (c->gated) {
        l->gated--;
        if (how == MG_CALL_NOT_OURS)
            disarm(l); /* its owner still has to answer */
        unblock(l, now_ns);
    }
    mg_call_free(c);
    if (l->settling && mg_list_empty(&l->ready))
        settle(l, now_ns);
}
