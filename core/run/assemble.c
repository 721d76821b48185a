#include "run/assemble.h"
#include "run/memory.h"
#include "run/skills.h"

#include "base/siphash.h"
#include "run/advisor.h"
#include "run/attached.h"
#include "run/server-tools.h"
#include "run/mcp.h"
#include "run/delegate.h"
#include "run/outcome.h"
#include "run/tool-config.h"
#include "run/turn.h"

enum { TOOLS_MAX = 32 * 1024 * 1024 /* bytes of all definitions: an agent's body has that limit */ };

/* The same in every process. */
static int64_t fingerprint(struct mg_arena *a, const struct mg_request *r)
{
    struct mg_sv all =
        mg_arena_printf(a, "%.*s\n%.*s\n%.*s", MG_SV_ARG(r->model), MG_SV_ARG(r->system), MG_SV_ARG(r->tools));
    return (int64_t)(mg_siphash_keyed(all, 1, 2, 1, 3) >> 1) | 1;
}

static mg_rc fixed_part(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                        struct mg_err *err)
{
    const struct mg_engine_opts *o = &r->engine->opts;
    struct mg_json *agent;
    mg_rc rc = mg_json_parse(a, x->in.agent, &mg_json_raw_limits, &agent, err);
    if (rc < 0)
        return rc;
    const struct mg_json *model = mg_json_get(agent, "model"), *text = mg_json_get(agent, "system");
    struct mg_sv system = mg_json_is(text, MG_JSON_STRING) && text->raw.len > 2 ? text->raw : MG_SV("");
    mg_auto(buf) struct mg_buf tools = MG_BUF_INIT(TOOLS_MAX);
    mg_tool_definitions(a, agent, &tools);
    x->model = mg_json_get_str(a, model, "id");
    x->request = (struct mg_request){
        .model = o->model_id ? mg_sv_of(o->model_id) : x->model,
        .max_tokens = o->max_tokens,
        .system = mg_delegate_system(a, agent, system),
        .effort = mg_json_get_str(a, mg_json_get(model, "effort"), "type"),
        .fast = mg_sv_eqz(mg_json_get_str(a, model, "speed"), "fast"),
        .cache = true,
    };
    x->request.tools = mg_web_definitions(a, agent, o->web_tools, mg_buf_view(&tools), &x->request.web_fetch);
    rc = mg_skills_system(a, pg, &r->session, agent, &x->request.system, err);
    if (rc == MG_OK)
        rc = mg_memory_system(a, x->in.stores, &x->request.system, err);
    x->fixed = fingerprint(a, &x->request);
    return rc;
}

static void set_entries(struct mg_arena *a, struct mg_assembly *x)
{
    const struct mg_context *c = &x->context;
    bool ask = x->compact.how == MG_COMPACT_ASK;
    int n = ask ? x->compact.n : c->n;
    struct mg_request_entry *entries = mg_arena_alloc(a, sizeof(*entries) * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        entries[i] = (struct mg_request_entry){.assistant = c->entries[i].assistant, .content = c->entries[i].content};
    if (ask) {
        entries[n++] = (struct mg_request_entry){.content = mg_compact_question()};
        x->request.max_tokens = x->compact.summary_max;
    }
    x->request.entries = entries;
    x->request.n_entries = n;
}

static mg_rc grader_request(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                            struct mg_err *err)
{
    struct mg_outcome o;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_outcome_open(a, &t, &r->session, &o, err);
    if (rc == MG_OK)
        mg_outcome_request(a, &o, &x->request);
    return rc;
}

mg_rc mg_assemble(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *ret, struct mg_err *err)
{
    const struct mg_engine_opts *o = &r->engine->opts;
    *ret = (struct mg_assembly){0};
    mg_rc rc = mg_turn_input_load(a, pg, &r->session, &r->thread, r->epoch, &ret->res, &ret->in, err);
    if (rc == MG_OK && mg_advisor_agent(ret->in.agent))
        return mg_advisor_assemble(r, pg, a, ret, err);
    if (rc == MG_OK)
        rc = mg_mcp_attach(r, pg, a, &ret->in.agent, err);
    if (rc == MG_OK)
        rc = fixed_part(r, pg, a, ret, err);
    if (rc < 0)
        return rc;
    int64_t window = o->model_window ? o->model_window : mg_model_window(ret->request.model);
    ret->user = mg_turn_user_content(a, ret->in.trigger_types, ret->in.triggers, ret->in.n_triggers);
    mg_context_build(&ret->context, a, &ret->in, ret->user, ret->fixed,
                     ret->request.system.len + ret->request.tools.len, mg_window_of(window, o->max_tokens));
    rc = mg_attached_weigh(pg, a, &r->session, ret, err);
    if (rc < 0)
        return rc;
    if (!ret->in.grade)
        ret->compact = mg_compact_plan(&ret->context);
    set_entries(a, ret);
    return ret->in.grade ? grader_request(r, pg, a, ret, err) : MG_OK;
}
