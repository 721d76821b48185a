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

static void settle_deletions(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_arena *a,
                             void (*gone)(void *ctx, struct mg_sv session_id), void *ctx)
{
    struct mg_sv *sessions;
    int n;
    struct mg_err err = {0};
    if (mg_deleting_list(pg, a, MG_SANDBOX_RECONCILE_BATCH, &sessions, &n, &err) < 0) {
        mg_log(MG_WARN, "cannot look for sessions to delete", MG_F_STR("error", err.text));
        return;
    }
    for (int i = 0; i < n; i++) {
        if (!due(m, sessions[i]))
            continue;
        mg_rc rc = mg_sandbox_destroy(m, pg, sessions[i], &err);
        note(m, sessions[i], rc == MG_OK);
        if (rc < 0)
            mg_log(MG_WARN, "a sandbox is not destroyed yet; it is tried again", MG_F_SV("session", sessions[i]),
                   MG_F_STR("error", err.text));
        else if (gone)
            gone(ctx, sessions[i]);
    }
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
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    settle_intents(m, pg, a);
    settle_deletions(m, pg, a, gone, ctx);
}
