#include "service/work.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "domain/metadata.h"
#include "run/engine.h"
#include "run/work.h"
#include "service/work-internal.h"
#include "store/api-key.h"
#include "store/environment.h"

enum { TOKEN_RANDOM = 32 /* bytes: semantics WK9 */ };

static void count(atomic_llong *n)
{
    atomic_fetch_add(n, 1);
}

mg_rc mg_works_environment(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                           struct mg_sv environment, struct mg_err *err)
{
    struct mg_environment_row row;
    mg_rc rc = mg_environment_get(a, pg, mg_id_sv(&who->workspace), environment, &row, err);
    if (rc < 0 || !row.env.cloud)
        return rc;
    return mg_err_set(err, MG_EINVAL,
                      "environment '%.*s' has config.type cloud: the server runs its tools, and it has no work; use an "
                      "environment of type self_hosted",
                      MG_SV_ARG(environment));
}

/* A key of the environment and the token of an item were matched with the path by their authentication. */
static mg_rc own(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv environment,
                 struct mg_err *err)
{
    return who->kind == MG_BY_API_KEY ? mg_works_environment(pg, a, who, environment, err) : MG_OK;
}

static mg_rc no_such_token(struct mg_err *err)
{
    return mg_err_set(err, MG_EAUTH, "invalid token: no work item has it");
}

/* A token that is known from memory may have outlived its item. */
static mg_rc gone_with_item(const struct mg_principal *who, mg_rc rc, struct mg_err *err)
{
    return rc == MG_ENOTFOUND && who->kind == MG_BY_ITEM_TOKEN ? no_such_token(err) : rc;
}

/* The owner of an item's token; live is left to the caller. */
static mg_rc principal_of(const struct mg_work_row *w, struct mg_principal *ret, struct mg_err *err)
{
    *ret = (struct mg_principal){.kind = MG_BY_ITEM_TOKEN};
    if (!mg_id_from(w->workspace, &ret->workspace) || !mg_id_from(w->id, &ret->key) || !mg_id_from(w->id, &ret->work) ||
        !mg_id_from(w->environment, &ret->environment) || !mg_id_from(w->session, &ret->session))
        return mg_err_set(err, MG_EINTERNAL, "the row of the work item is damaged");
    return MG_OK;
}

/* The key that must not be revoked in the transaction of a claim. */
static struct mg_sv key_of(const struct mg_principal *who)
{
    return who->kind == MG_BY_ENVIRONMENT_KEY ? mg_id_sv(&who->key) : MG_SV("");
}

/* ---- poll, ack ---- */

/* Its secret part, which is what the digest is of; the item's id follows when it is known (name_item). */
static void make_token(char token[MG_WORK_TOKEN_TEXT], char digest[MG_SHA256_HEX])
{
    uint8_t random[TOKEN_RANDOM];
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_WORK_TOKEN_TEXT);
    mg_rng_bytes(random, sizeof(random));
    (void)mg_buf_str(&b, MG_WORK_TOKEN_PREFIX);
    (void)mg_base64url_encode(&b, mg_sv_n((const char *)random, sizeof(random)));
    memcpy(token, b.ptr, b.len);
    token[b.len] = '\0';
    mg_sha256_hex(mg_sv_of(token), digest);
    mg_wipe(b.ptr, b.len);
    mg_wipe(random, sizeof(random));
}

static void name_item(char token[MG_WORK_TOKEN_TEXT], struct mg_sv id)
{
    size_t n = strlen(token);
    (void)snprintf(token + n, MG_WORK_TOKEN_TEXT - n, ".%.*s", MG_SV_ARG(id));
}

mg_rc mg_works_poll(struct mg_engine *e, struct mg_pollers *pollers, struct mg_pg *pg, struct mg_arena *a,
                    const struct mg_principal *who, const struct mg_work_poll *q, struct mg_work_row *ret,
                    char token[MG_WORK_TOKEN_TEXT], struct mg_err *err)
{
    char digest[MG_SHA256_HEX];
    struct mg_id old;
    make_token(token, digest);
    const struct mg_work_claim c = {
        .workspace = mg_id_sv(&who->workspace),
        .environment = q->environment,
        .key = key_of(who),
        .worker_id = q->worker_id,
        .token_sha256 = mg_sv_of(digest),
        .reclaim_ms = q->reclaim_ms,
        .from_us = mg_pollers_from(pollers, q->environment),
    };
    *ret = (struct mg_work_row){.id = MG_SV("")};
    bool noted = q->worker_id.len && mg_pollers_note(pollers, q->environment, q->worker_id);
    if (!noted && who->kind == MG_BY_ENVIRONMENT_KEY && mg_pollers_is_empty(pollers, q->environment))
        return MG_OK;
    uint64_t generation = mg_pollers_generation(pollers, q->environment);
    bool empty = false;
    mg_rc rc = mg_work_claim_fresh(a, pg, &c, ret, err);
    bool fresh = rc >= 0;
    if (rc == MG_ENOTFOUND)
        rc = mg_work_claim_stale(a, pg, &c, ret, &old, &empty, err);
    if (rc < 0)
        return rc;
    if (empty)
        mg_pollers_found_empty(pollers, q->environment, generation);
    if (noted)
        rc = mg_work_poller_seen(pg, q->environment, q->worker_id, err);
    if (rc < 0 && ret->id.len == 0)
        return rc;
    if (ret->id.len == 0)
        return MG_OK;
    name_item(token, ret->id);
    struct mg_principal owner;
    if (principal_of(ret, &owner, NULL) == MG_OK)
        mg_key_cache_put(mg_pollers_tokens(pollers), mg_sv_of(token), &owner);
    count(&mg_engine_work(e)->claims);
    if (!fresh) {
        count(&mg_engine_work(e)->reclaims);
        mg_log(MG_INFO, "a claim without an ack went to another poller", MG_F_STR("work", old.s),
               MG_F_SV("now", ret->id), MG_F_SV("session", ret->session));
        mg_work_revoke(e, mg_id_sv(&old));
    }
    return MG_OK;
}

mg_rc mg_works_ack(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                   struct mg_sv environment, struct mg_sv id, int64_t ttl_s, struct mg_work_row *ret,
                   struct mg_err *err)
{
    bool done = false;
    mg_rc rc = own(pg, a, who, environment, err);
    if (rc >= 0)
        rc = gone_with_item(who, mg_work_ack(a, pg, environment, id, key_of(who), ttl_s, &done, ret, err), err);
    if (rc < 0)
        return rc;
    if (done) {
        count(&mg_engine_work(e)->acks);
        atomic_fetch_add(&mg_engine_work(e)->claim_wait_us, ret->acknowledged_us - ret->waiting_us);
        return MG_OK;
    }
    if (ret->state == MG_WORK_STARTING && !ret->lapsed)
        return MG_OK; /* the answer to the first ack was lost */
    const char *why = "it is over: poll again";
    if (ret->state == MG_WORK_QUEUED)
        why = "it was not handed out: poll first";
    else if (ret->state == MG_WORK_ACTIVE)
        why = "its worker has sent heartbeats already";
    return mg_err_set(err, MG_ECONFLICT, "work '%.*s' is %s and cannot be acknowledged; %s", MG_SV_ARG(ret->id),
                      mg_work_state_name(ret->state), why);
}

/* ---- heartbeat ---- */

static void beat_text(int64_t us, char out[MG_TIME_LEN])
{
    if (us == INT64_MIN)
        out[0] = '\0';
    else
        mg_time_format(us, out);
}

/* The 412 of a heartbeat: what was expected, what is, and the state for clients that log it. */
static mg_rc beat_refused(const struct mg_work_row *w, struct mg_sv expected, struct mg_err *err)
{
    char last[MG_TIME_LEN];
    beat_text(w->heartbeat_us, last);
    const char *why = "";
    if (w->state == MG_WORK_QUEUED)
        why = "; acknowledge it first";
    else if (w->state == MG_WORK_STOPPED || w->lapsed)
        why = "; its lease is over and the session may have another worker: stop its tools and send nothing more";
    mg_rc rc = mg_err_code(
        err, MG_EPRECOND, "heartbeat_precondition_failed",
        "expected_last_heartbeat: expected %.*s, but the last heartbeat of work '%.*s' is %s and its "
        "state %s%s",
        expected.ptr ? (int)(expected.len < 64 ? expected.len : 64) : 7, expected.ptr ? expected.ptr : "nothing",
        MG_SV_ARG(w->id), last[0] ? last : "NO_HEARTBEAT", mg_work_state_name(w->state), why);
    if (err)
        (void)snprintf(err->details, sizeof(err->details),
                       "\"current_state\":{\"state\":\"%s\",\"ttl_seconds\":%lld,\"last_heartbeat\":%s%s%s,"
                       "\"lease_extended\":false}",
                       mg_work_state_name(w->state), (long long)w->ttl_s, last[0] ? "\"" : "", last[0] ? last : "null",
                       last[0] ? "\"" : "");
    return rc;
}

struct expectation {
    enum mg_work_expect kind;
    int64_t us;
    bool never; /* a text that no heartbeat ever was */
};

/* Heartbeats are compared byte for byte: a time that we would have written otherwise was never one of ours. */
static struct expectation expectation_of(struct mg_sv text)
{
    char again[MG_TIME_LEN];
    struct expectation x = {.kind = MG_EXPECT_ANY};
    if (!text.ptr)
        return x;
    if (mg_sv_eqz(text, "NO_HEARTBEAT"))
        return (struct expectation){.kind = MG_EXPECT_NONE};
    x = (struct expectation){.kind = MG_EXPECT_TIME, .us = -1};
    if (!mg_time_parse(text, &x.us)) {
        x.never = true;
        return x;
    }
    mg_time_format(x.us, again);
    x.never = !mg_sv_eqz(text, again);
    return x;
}

/* The same request again, whose answer was lost: it names the heartbeat before. */
static bool is_replay(const struct mg_work_row *w, const struct expectation *x)
{
    if (w->state != MG_WORK_ACTIVE || w->lapsed || !w->replay || x->never || x->kind == MG_EXPECT_ANY)
        return false;
    return x->kind == MG_EXPECT_NONE ? w->heartbeat_before_us == INT64_MIN : w->heartbeat_before_us == x->us;
}

mg_rc mg_works_beat(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                    struct mg_sv environment, struct mg_sv id, struct mg_sv expected, int64_t ttl_s,
                    struct mg_work_row *ret, bool *ret_extended, struct mg_err *err)
{
    const struct expectation x = expectation_of(expected);
    mg_rc rc = own(pg, a, who, environment, err);
    if (rc >= 0)
        rc = mg_work_beat(a, pg, environment, id, x.kind, x.never ? -1 : x.us, ttl_s, ret_extended, ret, err);
    rc = gone_with_item(who, rc, err);
    if (rc < 0)
        return rc;
    if (*ret_extended) {
        count(&mg_engine_work(e)->heartbeats);
        return MG_OK;
    }
    *ret_extended = is_replay(ret, &x);
    bool asked_to_stop = ret->state == MG_WORK_STOPPING || (ret->state == MG_WORK_STOPPED && !ret->reclaimed);
    if (*ret_extended || asked_to_stop)
        return MG_OK;
    return beat_refused(ret, expected, err);
}

/* ---- stop ---- */

mg_rc mg_works_stop(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                    struct mg_sv environment, struct mg_sv id, bool force, struct mg_work_row *ret, struct mg_err *err)
{
    bool done = false;
    mg_rc rc = own(pg, a, who, environment, err);
    if (rc >= 0)
        rc = gone_with_item(who, mg_work_stop(a, pg, environment, id, force, &done, ret, err), err);
    if (rc < 0)
        return rc;
    if (done)
        count(&mg_engine_work(e)->stops);
    if (done && ret->state == MG_WORK_STOPPED)
        mg_work_ended_here(e, ret);
    return MG_OK;
}

/* ---- metadata ---- */

mg_rc mg_works_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv environment,
                      struct mg_sv id, const struct mg_json *metadata, struct mg_work_row *ret, struct mg_err *err)
{
    static const struct mg_meta_rules RULES = {.empty_deletes = true, .code = "invalid_metadata"};
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = own(pg, a, who, environment, err);
    if (rc >= 0)
        rc = mg_work_lock(a, &t, environment, id, ret, err);
    if (rc >= 0)
        rc = mg_metadata_patch(a, ret->metadata, metadata, &RULES, &ret->metadata, err);
    if (rc >= 0)
        rc = mg_work_set_metadata(&t, ret->id, ret->metadata, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

/* ---- fail ---- */

static mg_rc takes_fail(const struct mg_work_row *w, struct mg_err *err)
{
    bool held = (w->state == MG_WORK_QUEUED && w->polled) || w->state == MG_WORK_STARTING || w->state == MG_WORK_ACTIVE;
    if (held && !w->lapsed)
        return MG_OK;
    return mg_err_set(err, MG_ECONFLICT, "work '%.*s' is %s: only an item that a poller or worker has can fail",
                      MG_SV_ARG(w->id), w->lapsed ? "past its lease" : mg_work_state_name(w->state));
}

/* Locks the session, then the item. */
static mg_rc lock_both(struct mg_pg *pg, struct mg_arena *a, struct mg_txn *t, struct mg_sv environment,
                       struct mg_sv id, struct mg_id *ret_session, struct mg_work_row *ret, struct mg_err *err)
{
    struct mg_session_state st;
    mg_rc rc = mg_work_session(a, pg, environment, id, ret_session, err);
    if (rc >= 0)
        rc = mg_session_lock(t, mg_id_sv(ret_session), MG_SV(""), &st, err);
    return rc < 0 ? rc : mg_work_lock(a, t, environment, id, ret, err);
}

static mg_rc give_back(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, struct mg_sv environment,
                       struct mg_sv id, struct mg_work_row *ret, struct mg_err *err)
{
    struct mg_id session;
    bool queued;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = lock_both(pg, a, &t, environment, id, &session, ret, err);
    if (rc >= 0)
        rc = takes_fail(ret, err);
    if (rc >= 0)
        rc = mg_work_set_stopped(&t, ret->id, "nack", err);
    if (rc >= 0)
        rc = mg_work_succeed(&t, &session, ret->metadata, true, &queued, err);
    if (rc >= 0)
        rc = mg_work_lock(a, &t, environment, id, ret, err);
    if (rc >= 0)
        rc = mg_txn_commit(&t, err);
    if (rc >= 0)
        mg_work_ended_here(e, ret);
    return rc;
}

mg_rc mg_works_fail(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                    struct mg_sv environment, struct mg_sv id, struct mg_sv message, bool requeue,
                    struct mg_work_row *ret, struct mg_err *err)
{
    struct mg_id session;
    mg_rc rc = own(pg, a, who, environment, err);
    if (rc < 0)
        return rc;
    if (requeue)
        return gone_with_item(who, give_back(e, pg, a, environment, id, ret, err), err);
    rc = gone_with_item(who, mg_work_session(a, pg, environment, id, &session, err), err);
    if (rc >= 0)
        rc = mg_work_fail_session(e, pg, a, &session, environment, id, message, takes_fail, ret, err);
    if (rc < 0)
        return rc;
    count(&mg_engine_work(e)->failures);
    mg_work_ended_here(e, ret);
    return MG_OK;
}

/* ---- tokens ---- */

mg_rc mg_works_principal(struct mg_pollers *p, struct mg_pg *pg, struct mg_arena *a, struct mg_sv token,
                         struct mg_principal *ret, struct mg_err *err)
{
    char digest[MG_SHA256_HEX];
    struct mg_work_row w;
    struct mg_sv id = token;
    mg_sha256_hex(mg_sv_split(&id, '.'), digest);
    mg_rc rc = mg_work_by_token(a, pg, id, mg_sv_of(digest), &w, err);
    if (rc == MG_ENOTFOUND)
        return no_such_token(err);
    if (rc >= 0)
        rc = principal_of(&w, ret, err);
    if (rc < 0)
        return rc;
    mg_key_cache_put(mg_pollers_tokens(p), token, ret);
    ret->live = !w.lapsed && (w.state == MG_WORK_STARTING || w.state == MG_WORK_ACTIVE || w.state == MG_WORK_STOPPING);
    return MG_OK;
}

bool mg_works_known(struct mg_pollers *p, struct mg_sv token, struct mg_principal *ret)
{
    return mg_key_cache_get(mg_pollers_tokens(p), token, ret);
}

mg_rc mg_works_may_send(struct mg_step *s, const struct mg_principal *who, const struct mg_draft *drafts, int n,
                        struct mg_err *err)
{
    if (who->kind == MG_BY_API_KEY)
        return MG_OK;
    for (int i = 0; i < n; i++)
        if (drafts[i].type != MG_EV_USER_TOOL_RESULT && drafts[i].type != MG_EV_USER_CUSTOM_TOOL_RESULT)
            return mg_err_set(
                err, MG_EDENIED,
                "events[%d].type: a worker may send user.tool_result and user.custom_tool_result only; %s "
                "needs an API key of the workspace",
                i, mg_event_type_name(drafts[i].type));
    if (who->kind == MG_BY_ITEM_TOKEN)
        return mg_work_fence(s->t, mg_id_sv(&who->work), &s->st.session, err);
    return mg_work_fence_any(s->t, mg_id_sv(&who->environment), &s->st.session, err);
}
