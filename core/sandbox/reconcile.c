#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sandbox/internal.h"

/* What crashes and unreachable services left behind. The rows say what is to be done; the times of the next tries are
 * in memory only, so a restart tries at once. */

struct mg_sandbox_retry {
    uint64_t next_ns, delay_ms;
};

static bool due(struct mg_sandboxes *m, struct mg_sv session)
{
    pthread_mutex_lock(&m->lock);
    const struct mg_sandbox_retry *r = mg_map_get(m->retries, session);
    bool yes = !r || mg_now_ns() >= r->next_ns;
    pthread_mutex_unlock(&m->lock);
    return yes;
}

static void note(struct mg_sandboxes *m, struct mg_sv session, bool ok)
{
    pthread_mutex_lock(&m->lock);
    struct mg_sandbox_retry *r = ok ? mg_map_del(m->retries, session) : mg_map_get(m->retries, session);
    if (ok) {
        free(r);
    } else {
        if (!r) {
            r = mg_xcalloc(1, sizeof(*r));
            (void)mg_map_put(m->retries, session, r);
        }
        r->delay_ms = r->delay_ms ? r->delay_ms * 2 : MG_SANDBOX_RETRY_MIN_MS;
        if (r->delay_ms > MG_SANDBOX_RETRY_MAX_MS)
            r->delay_ms = MG_SANDBOX_RETRY_MAX_MS;
        r->next_ns = mg_now_ns() + (r->delay_ms / 2 + mg_rng_below(r->delay_ms)) * UINT64_C(1000000);
    }
    pthread_mutex_unlock(&m->lock);
}

static void settle_deletion(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session,
                            void (*gone)(void *ctx, struct mg_sv session_id), void *ctx)
{
    struct mg_err err = {0};
    if (!due(m, session))
        return;
    mg_rc rc = mg_sandbox_destroy(m, pg, session, &err);
    note(m, session, rc == MG_OK);
    if (rc < 0) {
        mg_log(MG_WARN, "a sandbox is not destroyed yet; it is tried again", MG_F_SV("session", session),
               MG_F_STR("error", err.text));
        return;
    }
    atomic_fetch_add(&m->n_destroyed, 1);
    if (gone)
        gone(ctx, session);
}

/* All of them, whatever their number: those that fail again and again hold back no other. */
static void settle_deletions(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_arena *a,
                             void (*gone)(void *ctx, struct mg_sv session_id), void *ctx)
{
    struct mg_sv *sessions, after = MG_SV("");
    struct mg_err err = {0};
    unsigned all = 0;
    for (int n = MG_SANDBOX_RECONCILE_BATCH; n == MG_SANDBOX_RECONCILE_BATCH;) {
        if (mg_deleting_list(pg, a, after, MG_SANDBOX_RECONCILE_BATCH, &sessions, &n, &err) < 0) {
            mg_log(MG_WARN, "cannot look for sessions to delete", MG_F_STR("error", err.text));
            return;
        }
        for (int i = 0; i < n; i++)
            settle_deletion(m, pg, sessions[i], gone, ctx);
        all += (unsigned)n;
        if (n > 0)
            after = sessions[n - 1];
    }
    atomic_store(&m->n_deleting, all);
}

/* Another process, an operator's, may have ended them: handles that are out here must not look alive. */
static void cut_lost(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_arena *a)
{
    struct mg_sv *sessions;
    struct mg_err err = {0};
    int n = 0;
    if (mg_lost_list(pg, a, MG_SANDBOX_RECONCILE_BATCH, &sessions, &n, &err) < 0)
        return;
    for (int i = 0; i < n; i++)
        mg_sandbox_cut_off(m, sessions[i]);
}

/* A create that nobody has heard of since: finished as it was stored, so that the resource has an owner again. */
static void settle_intents(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_arena *a)
{
    struct mg_intent *in;
    int n;
    struct mg_err err = {0};
    if (mg_intent_claim(pg, a, MG_SANDBOX_INTENT_GRACE_S, MG_SANDBOX_RECONCILE_BATCH, &in, &n, &err) < 0) {
        mg_log(MG_WARN, "cannot look for unfinished sandboxes", MG_F_STR("error", err.text));
        return;
    }
    for (int i = 0; i < n; i++) {
        if (in[i].deleting)
            continue; /* settle_deletions does it */
        struct mg_sandbox *s = NULL;
        mg_rc rc = mg_sandbox_settle(m, pg, &in[i], &s, &err);
        if (rc < 0)
            mg_log(MG_WARN, "an unfinished sandbox is not settled yet", MG_F_SV("session", in[i].session_id),
                   MG_F_STR("error", err.text));
        mg_sandbox_release(s);
    }
}

void mg_sandboxes_reconcile(struct mg_sandboxes *m, struct mg_pg *pg, void (*gone)(void *ctx, struct mg_sv session_id),
                            void *ctx)
{
    if (atomic_exchange(&m->reconciling, true))
        return; /* the one before waits for a service */
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    settle_intents(m, pg, a);
    settle_deletions(m, pg, a, gone, ctx);
    cut_lost(m, pg, a);
    mg_orphans_sweep(m, pg);
    atomic_store(&m->reconciling, false);
}

void mg_sandboxes_metrics(struct mg_sandboxes *m, struct mg_buf *out)
{
    const struct {
        const char *name, *type, *help;
        unsigned value;
    } all[] = {
        {"mango_sessions_deleting", "gauge", "Deleted sessions of which something is still to be destroyed",
         atomic_load(&m->n_deleting)},
        {"mango_sandbox_orphans", "gauge", "Resources of this deployment that no session owns",
         atomic_load(&m->n_orphans)},
        {"mango_sandboxes_destroyed_total", "counter", "Sandboxes of deleted sessions that the reconciler destroyed",
         atomic_load(&m->n_destroyed)},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        (void)mg_buf_printf(out, "# HELP %s %s.\n# TYPE %s %s\n%s %u\n", all[i].name, all[i].help, all[i].name,
                            all[i].type, all[i].name, all[i].value);
}
