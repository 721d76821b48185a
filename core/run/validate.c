/* Concurrency: the lock guards the list and what its entries hold, but for what belongs to the thread of one that runs. */
#include "run/validate.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/list.h"
#include "run/mcp.h"

struct mg_validations {
    pthread_mutex_t lock;
    struct mg_list all;
    int n;
};

struct validation {
    struct mg_list link;
    struct mg_engine *engine;
    struct mg_id credential;
    uint64_t ticket;
    struct mg_cancel *cancel;
    void (*done)(void *ctx, struct mg_sv credential);
    void *ctx;
    bool ready;
    uint64_t ready_ns;
    struct mg_validation result; /* of its thread until it is ready */
    struct mg_token *token;      /* of its thread */
    char url[MG_MCP_URL_MAX + 1];
};

struct mg_validations *mg_validations_new(void)
{
    struct mg_validations *v = mg_xcalloc(1, sizeof(*v));
    pthread_mutex_init(&v->lock, NULL);
    mg_list_init(&v->all);
    return v;
}

/* Under the lock, or when there is nobody else. */
static void drop(struct mg_validations *v, struct validation *x)
{
    mg_list_del(&x->link);
    v->n--;
    mg_token_free(x->token);
    mg_cancel_unref(x->cancel);
    free(x);
}

void mg_validations_cancel(struct mg_validations *v)
{
    pthread_mutex_lock(&v->lock);
    mg_list_each (it, &v->all)
        mg_cancel_fire(mg_container_of(it, struct validation, link)->cancel);
    pthread_mutex_unlock(&v->lock);
}

void mg_validations_free(struct mg_validations *v)
{
    mg_list_each (it, &v->all)
        drop(v, mg_container_of(it, struct validation, link));
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* ---- the work ---- */

/* Asks the server for its tools, over a link of its own. */
static mg_rc probe(struct validation *x)
{
    struct mg_mcp *m = mg_mcp_new(mg_mcp_links_host(x->engine->mcp), mg_sv_of(x->url));
    struct mg_mcp_tool_list list = {0};
    struct mg_validation *r = &x->result;
    struct mg_err err = {0};
    mg_mcp_authorize(m, mg_token_bearer(x->token));
    mg_rc rc = mg_mcp_list(m, x->cancel, &list, &err);
    mg_mcp_tool_list_done(&list);
    r->verdict = rc == MG_EAUTH ? MG_CREDENTIAL_INVALID : rc < 0 ? MG_CREDENTIAL_UNKNOWN : MG_CREDENTIAL_VALID;
    r->probe = *mg_mcp_refused(m);
    mg_token_scrub(x->token, r->probe.text);
    mg_mcp_free(m);
    return rc;
}

/* True when the server is to be asked once more. */
static bool refresh(struct validation *x)
{
    struct mg_validation *r = &x->result;
    struct mg_err err = {0};
    if (!r->can_refresh) {
        r->refresh = "no_refresh_token";
        return false;
    }
    mg_rc rc = mg_wallet_refresh(x->engine->opts.wallet, x->token, x->cancel, &r->answer, &err);
    if (rc >= 0) {
        r->refresh = "succeeded";
        return true;
    }
    r->refresh = r->answer.status ? "failed" : "connect_error";
    if (rc != MG_EAUTH)
        r->verdict = MG_CREDENTIAL_UNKNOWN; /* the endpoint did not refuse: another time it may work */
    return false;
}

static void work(void *arg, void *thread)
{
    struct validation *x = arg;
    struct mg_validations *v = x->engine->validations;
    const struct mg_id credential = x->credential;
    void (*done)(void *ctx, struct mg_sv credential) = x->done;
    void *ctx = x->ctx;
    (void)thread;
    if (probe(x) == MG_EAUTH && refresh(x))
        (void)probe(x);
    mg_token_free(x->token);
    pthread_mutex_lock(&v->lock);
    x->token = NULL;
    x->result.at_us = mg_wall_us();
    x->ready_ns = mg_now_ns();
    x->ready = true;
    pthread_mutex_unlock(&v->lock);
    done(ctx, mg_id_sv(&credential)); /* somebody may have fetched it by now */
}

/* ---- requests ---- */

enum mg_validation_state mg_validation_look(struct mg_engine *e, struct mg_sv credential, uint64_t ticket,
                                            struct mg_validation *ret)
{
    struct mg_validations *v = e->validations;
    enum mg_validation_state state = MG_VALIDATION_NEW;
    pthread_mutex_lock(&v->lock);
    mg_list_each (it, &v->all) {
        struct validation *x = mg_container_of(it, struct validation, link);
        if (x->ticket != ticket || !mg_sv_eq(mg_id_sv(&x->credential), credential))
            continue;
        state = x->ready ? MG_VALIDATION_DONE : MG_VALIDATION_RUNS;
        if (x->ready) {
            *ret = x->result;
            drop(v, x);
        }
    }
    pthread_mutex_unlock(&v->lock);
    return state;
}

/* Under the lock: what nobody has fetched in time goes. */
static bool has_room(struct mg_validations *v)
{
    uint64_t now = mg_now_ns();
    mg_list_each (it, &v->all) {
        struct validation *x = mg_container_of(it, struct validation, link);
        if (x->ready && now - x->ready_ns > (uint64_t)MG_VALIDATION_KEEP_S * 1000000000)
            drop(v, x);
    }
    return v->n < MG_VALIDATIONS_MAX;
}

static mg_rc submit(struct mg_engine *e, struct validation *x, struct mg_err *err)
{
    struct mg_validations *v = e->validations;
    pthread_mutex_lock(&v->lock);
    bool room = has_room(v);
    mg_list_add_tail(&v->all, &x->link);
    v->n++;
    pthread_mutex_unlock(&v->lock);
    if (room && mg_pool_submit(e->mcp_threads, work, x) == MG_OK)
        return MG_OK;
    pthread_mutex_lock(&v->lock);
    drop(v, x);
    pthread_mutex_unlock(&v->lock);
    err->retry_after_s = 5;
    return mg_err_set(err, MG_EUNAVAIL, "at most %d credentials are validated at once; try again", MG_VALIDATIONS_MAX);
}

mg_rc mg_validation_start(struct mg_engine *e, const struct mg_credential_row *row, uint64_t ticket,
                          void (*done)(void *ctx, struct mg_sv credential), void *ctx, struct mg_err *err)
{
    struct mg_token *token = NULL;
    if (!mg_mcp_links_host(e->mcp))
        return mg_err_set(err, MG_ECONFIG, "this server makes no requests to hosts that agents name");
    mg_rc rc = mg_wallet_open(e->opts.wallet, row, &token, err);
    if (rc < 0)
        return rc;
    struct validation *x = mg_xcalloc(1, sizeof(*x));
    *x = (struct validation){
        .engine = e,
        .ticket = ticket,
        .cancel = mg_cancel_new(),
        .done = done,
        .ctx = ctx,
        .token = token,
        .result = {.can_refresh = mg_token_can_refresh(token)},
    };
    (void)mg_id_from(row->id, &x->credential);
    (void)snprintf(x->url, sizeof(x->url), "%.*s", MG_SV_ARG(row->cred.server));
    return submit(e, x, err);
}
