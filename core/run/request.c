#include "model/request.h"

#include "base/log.h"
#include "run/engine-internal.h"
#include "run/tool-config.h"
#include "run/turn.h"

/* The request of a turn's present step: built from the agent snapshot, the transcript and the inputs that this turn answers. */

enum { MG_REQUEST_MAX = 256 * 1024 * 1024 /* bytes of a request body: far above any model's window */ };

static char *sv_dup(struct mg_sv s)
{
    return mg_xstrndup(s.ptr, s.len);
}

/* What the commit of the answer needs again. */
static void remember(struct mg_run *r, const struct mg_turn_input *in, struct mg_sv user_content)
{
    free(r->agent);
    free(r->user_content);
    r->agent = sv_dup(in->agent);
    r->user_content = user_content.len ? sv_dup(user_content) : NULL;
    (void)mg_id_from(in->request_id, &r->request_id);
    r->n_inputs = in->n_triggers < MG_RUN_INPUTS_MAX ? in->n_triggers : MG_RUN_INPUTS_MAX;
    for (int i = 0; i < r->n_inputs; i++)
        r->inputs[i] = in->trigger_seqs[i];
    for (int i = 0; i < MG_RUN_BLOCKS_MAX; i++) {
        r->block_event[i].s[0] = 0;
        r->block_index[i] = -1;
    }
}

static mg_rc build(struct mg_engine *e, struct mg_arena *a, const struct mg_turn_input *in, struct mg_sv user_content,
                   struct mg_buf *out, struct mg_buf *ret_beta, struct mg_err *err)
{
    struct mg_json *agent;
    mg_rc rc = mg_json_parse(a, in->agent, &mg_json_raw_limits, &agent, err);
    if (rc < 0)
        return rc;
    const struct mg_json *model = mg_json_get(agent, "model");
    const struct mg_json *system = mg_json_get(agent, "system");
    mg_auto(buf) struct mg_buf tools = MG_BUF_INIT(MG_REQUEST_MAX);
    mg_tool_definitions(a, agent, &tools);
    struct mg_request_entry *entries = mg_arena_alloc(a, sizeof(*entries) * (size_t)(in->n_rows + 1));
    int n = 0;
    for (int i = 0; i < in->n_rows; i++)
        entries[n++] = (struct mg_request_entry){.assistant = in->rows[i].assistant, .content = in->rows[i].content};
    if (user_content.len)
        entries[n++] = (struct mg_request_entry){.content = user_content};
    const struct mg_request r = {
        .model = e->opts.model_id ? mg_sv_of(e->opts.model_id) : mg_json_get_str(a, model, "id"),
        .max_tokens = e->opts.max_tokens,
        .system = mg_json_is(system, MG_JSON_STRING) && system->raw.len > 2 ? system->raw : MG_SV(""),
        .tools = mg_buf_view(&tools),
        .effort = mg_json_get_str(a, mg_json_get(model, "effort"), "type"),
        .fast = mg_sv_eqz(mg_json_get_str(a, model, "speed"), "fast"),
        .entries = entries,
        .n_entries = n,
    };
    rc = mg_buf_sv(ret_beta, mg_request_beta(&r));
    if (rc == MG_OK)
        rc = mg_request_build(&r, out);
    return rc < 0 ? mg_err_set(err, rc, "the model request is over %d bytes", MG_REQUEST_MAX) : MG_OK;
}

static void on_done(void *ctx, struct mg_model_result *res)
{
    struct mg_run *r = ctx;
    struct mg_engine *e = r->engine;
    atomic_store(&r->model_call, 0);
    mg_model_result_free(r->result);
    r->result = res;
    mg_run_later(r, mg_run_response);
    mg_run_unref(r);
    atomic_fetch_sub(&e->calls, 1);
}

static mg_rc prepare(struct mg_run *r, struct mg_pg *pg, struct mg_buf *body, struct mg_buf *beta, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_turn_input in;
    mg_rc rc = mg_turn_input_load(a, pg, &r->session, r->epoch, &res, &in, err);
    if (rc < 0)
        return rc;
    struct mg_sv user = mg_turn_user_content(a, in.trigger_types, in.triggers, in.n_triggers);
    remember(r, &in, user);
    return build(r->engine, a, &in, user, body, beta, err);
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
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(MG_REQUEST_MAX), beta = MG_BUF_INIT(1024);
    if (atomic_load(&e->draining) || mg_cancel_fired(r->cancel)) {
        mg_run_drop(r);
        return;
    }
    mg_rc rc = prepare(r, pg, &body, &beta, &err);
    if (rc < 0) {
        mg_run_failed(r, rc, &err, mg_run_request);
        return;
    }
    atomic_fetch_add(&e->n_requests, 1);
    const struct mg_model_call_opts o = {
        .body = mg_buf_view(&body),
        .beta = mg_buf_view(&beta),
        .on_delta = mg_run_delta,
        .on_done = on_done,
        .ctx = mg_run_ref(r),
    };
    atomic_fetch_add(&e->calls, 1);
    uint64_t call = mg_model_start(e->opts.model, &o);
    remember_call(r, call);
    if (mg_cancel_fired(r->cancel) || atomic_load(&e->draining))
        mg_model_cancel(e->opts.model, call);
}
