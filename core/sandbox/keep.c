#include "sandbox/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/internal.h"

static const uint64_t SECOND = UINT64_C(1000000000);

void mg_sandbox_keep_from(struct mg_sandbox *s, uint64_t timer_s)
{
    s->timer_s = timer_s ? timer_s : MG_KEEP_UNKNOWN_S;
    bool can = MANGO_HAS(s->plugin->sandbox, keep_alive) && mg_plugin_can(s->plugin, MANGO_CAP_KEEP_ALIVE);
    atomic_store(&s->keep_ns, can ? mg_now_ns() + s->timer_s * SECOND / 3 : UINT64_MAX);
}

bool mg_sandbox_keep_due(struct mg_sandbox *s, uint64_t now_ns)
{
    uint64_t due = atomic_load(&s->keep_ns);
    uint64_t third = s->timer_s * SECOND / 3;
    uint64_t pause = third < MG_KEEP_PAUSE_MAX_S * SECOND ? third : MG_KEEP_PAUSE_MAX_S * SECOND;
    return due <= now_ns && !atomic_load(&s->gone) && atomic_compare_exchange_strong(&s->keep_ns, &due, now_ns + pause);
}

void mg_sandbox_keep(struct mg_sandbox *s)
{
    struct mg_err own = {0};
    if (s->serial && pthread_mutex_trylock(&s->call_lock) != 0)
        return; /* a call is inside, and such a backend takes no second one; the next look tries again */
    struct mango_call call = mg_plugin_call(mg_now_ns() + MG_KEEP_CALL_MS * UINT64_C(1000000), NULL, &own);
    struct mg_guard g = mg_guard_enter(s->plugin, MG_OP_KEEP_ALIVE);
    mango_status status =
        mg_guard_leave(&g, s->plugin->sandbox->keep_alive(s->plugin->ctx, &call, mg_sandbox_id(s),
                                                          s->timer_s > MG_KEEP_LEAST_S ? s->timer_s : MG_KEEP_LEAST_S));
    if (s->serial)
        pthread_mutex_unlock(&s->call_lock);
    if (status < 0) /* what that means for the session, its next call says */
        mg_log(MG_WARN, "the timer of a session's sandbox could not be moved", MG_F_STR("session", s->entry->session.s),
               MG_F_STR("error", own.text));
}
