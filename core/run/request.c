#include "base/log.h"
#include "run/assemble.h"
#include "run/attached.h"
#include "run/engine-internal.h"
#include "run/outcome.h"
#include "run/mcp.h"

/* The request of a turn's present step: built from the agent snapshot, the transcript and the inputs that this turn answers. */

enum { MG_REQUEST_MAX = 256 * 1024 * 1024 /* bytes of a request body: far above any model's window */ };

static char *sv_dup(struct mg_sv s)
{
    return mg_xstrndup(s.ptr, s.len);
}

/* What the commit of the answer needs again. */
static void remember(struct mg_run *r, const struct mg_assembly *x)
{
    const struct mg_turn_input *in = &x->in;
    r->price = mg_price_of(r->engine->opts.prices, x->model);
    free(r->agent);
    free(r->user_content);
    r->agent = sv_dup(in->agent);
    r->user_content = x->user.len ? sv_dup(x->user) : NULL;
    r->fixed = x->fixed;
    r->request_tokens = x->compact.before;
    r->result_max = mg_context_result_max(x->context.window);
    r->grading = x->in.grade;
    r->advising = x->advising;
    r->compacting = x->compact.how == MG_COMPACT_ASK;
    r->told = x->compact.upto;
    (void)mg_id_from(in->request_id, &r->request_id);
    r->n_inputs = in->n_triggers < MG_RUN_INPUTS_MAX ? in->n_triggers : MG_RUN_INPUTS_MAX;
    for (int i = 0; i < r->n_inputs; i++)
        r->inputs[i] = in->trigger_seqs[i];
    for (int i = 0; i < MG_RUN_BLOCKS_MAX; i++) {
        r->block_event[i].s[0] = 0;
        r->block_index[i] = -1;
    }
}

static void on_done(void *ctx, struct mg_model_result *res)
{
    struct mg_run *r = ctx;
    struct mg_engine *e = r->engine;
    atomic_store(&r->model_call, 0);
    mg_model_result_free(r->result);
    r->result = res;
    mg_pace_answer(e->pace, r, res->fail);
    bool summary = r->compacting && (res->fail == MG_MODEL_OK || res->fail == MG_MODEL_TOO_LARGE);
    mg_run_later(r, summary ? mg_run_compacted : mg_run_response);
    mg_run_unref(r);
    atomic_fetch_sub(&e->calls, 1);
}

/* Builds the request of the step into *body. *ret_st is set, and *body stays empty, when the context was made smaller instead. */
static mg_rc prepare(struct mg_run *r, struct mg_pg *pg, struct mg_buf *body, struct mg_buf *beta,
                     struct mg_session_state *ret_st, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(assembly) struct mg_assembly x = {0};
    mg_rc rc = mg_assemble(r, pg, a, &x, err);
    if (rc < 0 || mg_mcp_wanted(r))
        return rc;
    if (x.compact.how == MG_COMPACT_EXTRACT || x.compact.how == MG_COMPACT_EXCERPT)
        return mg_run_compact_local(r, pg, a, &x, ret_st, err);
    rc = mg_attached_fill(r, pg, a, &x, err);
    if (rc < 0 || x.n_lost)
        return rc < 0 ? rc : mg_run_attached_lost(r, pg, a, &x, ret_st, err);
    remember(r, &x);
    rc = mg_buf_sv(beta, mg_request_beta(&x.request));
    if (rc == MG_OK)
        rc = mg_request_build(&x.request, body);
    return rc < 0 ? mg_err_set(err, rc, "the model request is over %d bytes", MG_REQUEST_MAX) : MG_OK;
}

/* Numbers grow. The call may be over already, and its answer's commit may have sent the next one: that number stays. */
static void remember_call(struct mg_run *r, uint64_t call)
{
    unsigned long long now = atomic_load(&r->model_call);
    while (now < call && !atomic_compare_exchange_weak(&r->model_call, &now, call))
        ;
}

void mg_run_request(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_engine *e = r->engine;
    struct mg_err err = {0};
    struct mg_session_state st;
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(MG_REQUEST_MAX), beta = MG_BUF_INIT(1024);
    if (atomic_load(&e->draining) || mg_cancel_fired(r->cancel)) {
        mg_run_drop(r);
        return;
    }
    if (!mg_pace_enter(e->pace, r))
        return;
    mg_rc rc = prepare(r, pg, &body, &beta, &st, &err);
    if (rc < 0) {
        mg_run_failed(r, rc, &err, mg_run_request);
        return;
    }
    if (mg_mcp_wanted(r)) {
        mg_run_mcp_list(r);
        return;
    }
    if (body.len == 0) {
        mg_run_continue(r, pg, &st);
        return;
    }
    atomic_fetch_add(&e->n_requests, 1);
    if (r->grading)
        mg_run_ongoing(r);
    const struct mg_model_call_opts o = {
        .body = mg_buf_view(&body),
        .beta = mg_buf_view(&beta),
        .on_delta = r->compacting || r->grading ? NULL : mg_run_delta,
        .on_done = on_done,
        .ctx = mg_run_ref(r),
    };
    atomic_fetch_add(&e->calls, 1);
    uint64_t call = mg_model_start(e->opts.model, &o);
    remember_call(r, call);
    if (mg_cancel_fired(r->cancel) || atomic_load(&e->draining))
        mg_model_cancel(e->opts.model, call);
}
