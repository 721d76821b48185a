#include "service/deploy.h"

#include "base/clock.h"
#include "base/log.h"
#include "json/write.h"
#include "run/engine.h"
#include "service/session.h"
#include "service/vault.h"
#include "store/deploy-token.h"
#include "store/session.h"
#include "store/vault.h"
#include "store/zone.h"

enum { UPCOMING = 5, MESSAGE_MAX = 500 /* bytes of a run's error message */ };

/* ---- times ---- */

/* The next times after after_us. Without a schedule, or archived: none. */
static mg_rc plan(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row, int64_t after_us, struct mg_err *err)
{
    struct mg_cron c;
    struct mg_zone *z = mg_arena_new_of(a, struct mg_zone);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024);
    struct mg_jw w = mg_jw_to(&b);
    row->next_us = INT64_MIN;
    row->upcoming = MG_SV("[]");
    if (!row->deploy.expression.ptr)
        return MG_OK;
    mg_rc rc = mg_cron_parse(row->deploy.expression, "schedule.expression", &c, err);
    if (rc >= 0)
        rc = mg_zone_load(a, t, row->deploy.timezone, after_us, z, err);
    if (rc < 0)
        return rc;
    row->next_us = mg_cron_next(&c, z, after_us);
    if (row->next_us == INT64_MIN)
        return mg_err_set(err, MG_EINVAL, "schedule.expression: names no time within five years");
    mg_jw_arr(&w);
    int64_t at = row->next_us;
    for (int i = 0; i < UPCOMING && at != INT64_MIN; i++, at = mg_cron_next(&c, z, at))
        mg_jw_time(&w, at);
    mg_jw_arr_end(&w);
    row->upcoming = mg_arena_sv(a, mg_buf_view(&b));
    return MG_OK;
}

static mg_rc plan_from_now(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row, struct mg_err *err)
{
    int64_t now = 0;
    mg_rc rc = row->deploy.timezone.ptr ? mg_zone_check(t, row->deploy.timezone, err) : MG_OK;
    if (rc >= 0)
        rc = mg_deploy_now(t, &now, err);
    return rc < 0 ? rc : plan(a, t, row, now, err);
}

/* ---- create, update ---- */

/* What it names must be there, and the agent's version is pinned. */
static mg_rc resolve(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row, struct mg_err *err)
{
    struct mg_session_base base;
    struct mg_session_create c = {.n_vaults = 0};
    struct mg_json *body;
    struct mg_deploy *d = &row->deploy;
    mg_rc rc = mg_session_base_lock(a, t, row->workspace, d->agent_id, d->agent_version, d->environment_id, &base, err);
    if (rc >= 0)
        rc = mg_json_parse(a, mg_deploy_session(a, d), &mg_json_api_limits, &body, err);
    if (rc >= 0)
        rc = mg_session_parse_deployed(a, body, &c, err);
    if (rc >= 0)
        rc = mg_vaults_check(a, t, row->workspace, c.vaults, c.n_vaults, err);
    if (rc >= 0)
        d->agent_version = base.agent_version;
    return rc;
}

static mg_rc seal_tokens(struct mg_engine *e, struct mg_arena *a, struct mg_deploy_row *row, struct mg_err *err)
{
    mg_rc rc = row->deploy.tokens.ptr ? mg_needs_keyring(mg_engine_keyring(e), err) : MG_OK;
    return rc < 0 ? rc : mg_deploy_seal(a, mg_engine_keyring(e), row, err);
}

mg_rc mg_deploys_create(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                        const struct mg_json *body, struct mg_deploy_row *ret, struct mg_err *err)
{
    struct mg_id *id = mg_arena_new_of(a, struct mg_id);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    *id = mg_id_new("depl");
    *ret = (struct mg_deploy_row){.id = mg_id_sv(id), .workspace = mg_id_sv(&who->workspace)};
    mg_rc rc = mg_deploy_parse_create(a, body, &ret->deploy, err);
    if (rc >= 0)
        rc = resolve(a, &t, ret, err);
    if (rc >= 0)
        rc = plan_from_now(a, &t, ret, err);
    if (rc >= 0)
        rc = seal_tokens(e, a, ret, err);
    if (rc >= 0)
        rc = mg_deploy_insert(a, &t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

static mg_rc lock_active(struct mg_arena *a, struct mg_txn *t, const struct mg_principal *who, struct mg_sv id,
                         struct mg_deploy_row *ret, struct mg_err *err)
{
    mg_rc rc = mg_deploy_lock(a, t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc < 0 || ret->archived_us == INT64_MIN)
        return rc;
    return mg_err_code(err, MG_EINVAL, "deployment_archived", "deployment '%.*s' is archived", MG_SV_ARG(ret->id));
}

mg_rc mg_deploys_update(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                        struct mg_sv id, const struct mg_json *body, struct mg_deploy_row *ret, struct mg_err *err)
{
    struct mg_deploy changed;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = lock_active(a, &t, who, id, ret, err);
    if (rc >= 0)
        rc = mg_deploy_parse_update(a, body, &ret->deploy, &changed, err);
    if (rc < 0)
        return rc;
    ret->deploy = changed;
    rc = resolve(a, &t, ret, err);
    if (rc >= 0)
        rc = plan_from_now(a, &t, ret, err);
    if (rc >= 0)
        rc = seal_tokens(e, a, ret, err);
    if (rc >= 0)
        rc = mg_deploy_save(a, &t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_deploys_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                         struct mg_deploy_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_deploy_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc < 0 || ret->archived_us != INT64_MIN)
        return rc;
    rc = mg_deploy_set_archived(a, &t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_deploys_pause(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       bool paused, struct mg_deploy_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = lock_active(a, &t, who, id, ret, err);
    if (rc < 0)
        return rc;
    ret->paused_reason = paused ? MG_SV("{\"type\":\"manual\"}") : mg_p_null(); /* semantics DE4: a manual one wins */
    rc = plan_from_now(a, &t, ret, err);
    if (rc >= 0)
        rc = mg_deploy_save(a, &t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

/* ---- runs ---- */

struct running {
    struct mg_arena *a;
    struct mg_deploy_row *row;
    struct mg_deploy_run_row run;
    struct mg_sv claim; /* ptr NULL: by hand */
    bool taken;
};

/* The run, and what follows for its deployment, in the transaction of the session. */
static mg_rc write_run(void *ctx, struct mg_txn *t, struct mg_sv session_id, struct mg_err *err)
{
    struct running *x = ctx;
    x->run.session_id = session_id;
    mg_rc rc = mg_deploy_run_insert(x->a, t, x->row->workspace, &x->run, &x->taken, err);
    if (rc >= 0 && x->taken && session_id.ptr)
        return mg_err_set(err, MG_ECONFLICT, "the slot has been run");
    if (rc >= 0 && x->claim.ptr)
        rc = mg_deploy_slot_done(x->a, t, x->row, x->claim, err);
    return rc;
}

static struct running running_of(struct mg_arena *a, struct mg_deploy_row *row, int64_t scheduled_us,
                                 struct mg_sv claim)
{
    struct mg_id *id = mg_arena_new_of(a, struct mg_id);
    *id = mg_id_new("drun");
    return (struct running){
        .a = a,
        .row = row,
        .claim = claim,
        .run = {.id = mg_id_sv(id),
                .deployment_id = row->id,
                .agent_id = row->deploy.agent_id,
                .agent_version = row->deploy.agent_version,
                .scheduled_us = scheduled_us},
    };
}

/* No session: the run says why, and a scheduled one pauses its deployment where that will not pass by itself. */
static mg_rc write_failure(struct mg_pg *pg, struct running *x, const struct mg_err *why, struct mg_err *err)
{
    bool lasting = false;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    x->run.error_type = mg_sv_of(mg_deploy_error_type(why, &lasting));
    x->run.error_message = mg_arena_printf(x->a, "%.*s", MESSAGE_MAX, why->text);
    if (lasting && x->claim.ptr)
        x->row->paused_reason =
            mg_arena_printf(x->a, "{\"type\":\"error\",\"error\":{\"type\":\"%.*s\"}}", MG_SV_ARG(x->run.error_type));
    mg_rc rc = write_run(x, &t, mg_p_null(), err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

/* Failures of ours say nothing about the deployment. */
static bool is_ours(mg_rc rc)
{
    return rc == MG_EUNAVAIL || rc == MG_ETIMEOUT || rc == MG_EFENCED || rc == MG_EINTERNAL;
}

static mg_rc make_session(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct running *x,
                          struct mg_err *err)
{
    struct mg_json *body;
    struct mg_session_row session;
    const struct mg_session_deployed d = {.deployment_id = x->row->id, .also = write_run, .ctx = x};
    struct mg_principal who = {.kind = MG_BY_API_KEY};
    (void)mg_id_from(x->row->workspace, &who.workspace);
    mg_rc rc = mg_deploy_unseal(x->a, mg_engine_keyring(e), x->row, err);
    if (rc >= 0)
        rc = mg_json_parse(x->a, mg_deploy_session(x->a, &x->row->deploy), &mg_json_api_limits, &body, err);
    if (rc >= 0)
        rc = mg_sessions_create_deployed(e, boxes, pg, x->a, &who, body, &d, &session, err);
    return rc;
}

mg_rc mg_deploys_run(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                     const struct mg_principal *who, struct mg_sv id, struct mg_deploy_run_row *ret, struct mg_err *err)
{
    struct mg_deploy_row row;
    struct mg_err why = {0};
    mg_rc rc = mg_deploy_get(a, pg, mg_id_sv(&who->workspace), id, &row, err);
    if (rc < 0)
        return rc;
    if (row.archived_us != INT64_MIN)
        return mg_err_code(err, MG_EINVAL, "deployment_archived", "deployment '%.*s' is archived", MG_SV_ARG(row.id));
    struct running x = running_of(a, &row, INT64_MIN, mg_p_null());
    rc = make_session(e, boxes, pg, &x, &why);
    if (rc < 0 && is_ours(rc)) {
        *err = why;
        return rc;
    }
    if (rc < 0) {
        why.rc = rc;
        rc = write_failure(pg, &x, &why, err);
    }
    *ret = x.run;
    return rc;
}

/* ---- the scan ---- */

/* The times behind the slot that is run now. A slot that is late by hours is run once. */
static mg_rc plan_on(struct mg_arena *a, struct mg_pg *pg, struct mg_deploy_row *row, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    int64_t now = 0, slot = row->next_us;
    mg_rc rc = mg_deploy_now(&t, &now, err);
    if (rc < 0)
        return rc;
    row->last_us = now;
    return plan(a, &t, row, now > slot ? now : slot, err);
}

static mg_rc run_slot(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                      struct mg_deploy_row *row, struct mg_sv claim, struct mg_err *err)
{
    struct mg_err why = {0};
    struct running x = running_of(a, row, row->next_us, claim);
    mg_rc rc = plan_on(a, pg, row, err);
    if (rc == MG_EINVAL) { /* the zone is gone, or there is no next time: this slot is the last */
        row->next_us = INT64_MIN;
        row->upcoming = MG_SV("[]");
    } else if (rc < 0) {
        return rc;
    }
    rc = make_session(e, boxes, pg, &x, &why);
    if (rc >= 0)
        return MG_OK;
    if (is_ours(rc)) {
        *err = why;
        return rc; /* the claim runs out, and the slot is tried again */
    }
    why.rc = rc;
    return write_failure(pg, &x, &why, err);
}

void mg_deploys_scan(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const struct mg_id claim = mg_id_new("claim");
    struct mg_deploy_row *rows = NULL;
    struct mg_err err = {0};
    int n = 0;
    if (mg_deploy_claim(a, pg, mg_id_sv(&claim), &rows, &n, &err) < 0)
        return; /* the database: told elsewhere, and tried again in a second */
    for (int i = 0; i < n; i++) {
        mg_auto(arena) struct mg_arena *own = mg_arena_new();
        if (run_slot(e, boxes, pg, own, &rows[i], mg_id_sv(&claim), &err) < 0)
            mg_log(MG_WARN, "a scheduled run was not made", MG_F_SV("deployment", rows[i].id),
                   MG_F_STR("error", err.text));
    }
}
