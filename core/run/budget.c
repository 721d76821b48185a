#include "run/budget.h"

#include "model/model.h"
#include "run/advisor.h"
#include "run/engine-internal.h"
#include "run/threads.h"
#include "run/turn.h"
#include "store/session.h"

const char MG_BUDGET_STOP[] = "{\"type\":\"budget_reached\"}";

void mg_budget_charge(struct mg_step *s, const struct mg_price *price, const struct mg_model_usage *u)
{
    int64_t told = u->cache_5m + u->cache_1h;
    const struct mg_used used = {
        .input = u->input_tokens,
        .output = u->output_tokens,
        .cache_read = u->cache_read_input_tokens,
        /* without a breakdown it was the default, which lives five minutes */
        .cache_5m = u->cache_5m + (u->cache_creation_input_tokens > told ? u->cache_creation_input_tokens - told : 0),
        .cache_1h = u->cache_1h,
        .web_searches = u->web_search_requests,
    };
    if (used.input + used.output + used.cache_read + used.cache_5m + used.cache_1h + used.web_searches == 0)
        return;
    int64_t cost = price ? mg_price_cost(s->engine->opts.prices, price, &used) : INT64_MAX;
    s->st.own_unknown |= cost == INT64_MAX;
    s->st.own_cost += cost == INT64_MAX ? 0 : cost;
    if (cost == INT64_MAX || __builtin_add_overflow(s->st.add_cost, cost, &s->st.add_cost) ||
        s->st.add_cost > INT64_MAX - s->st.cost_nano)
        s->st.add_unknown = true;
    if (s->st.add_unknown)
        s->st.add_cost = 0;
}

bool mg_budget_reached(const struct mg_session_state *st)
{
    return st->has_budget && (st->cost_unknown || st->add_unknown || st->cost_nano + st->add_cost >= st->budget_nano);
}

mg_rc mg_budget_event(struct mg_step *s, struct mg_err *err)
{
    struct mg_usage u = {0};
    mg_rc rc = mg_session_usage(s->t, mg_id_sv(&s->st.session), &u, err);
    if (rc < 0)
        return rc;
    const struct mg_session_state added = mg_threads_added(s);
    u.input_tokens += added.add_input;
    u.output_tokens += added.add_output;
    u.cache_read += added.add_cache_read;
    u.cache_5m += added.add_cache_5m;
    u.cache_1h += added.add_cache_1h;
    u.web_searches += added.add_web_search;
    u.web_fetches += added.add_web_fetch;
    u.cost_nano += s->st.add_cost;
    u.cost_unknown = u.cost_unknown || s->st.add_unknown;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    struct mg_jw w = mg_jw_to(&b);
    mg_usage_write(&w, s->arena, &u);
    struct mg_sv budget = mg_budget_format(s->arena, s->st.has_budget ? s->st.budget_nano : MG_BUDGET_NONE);
    mg_step_post(
        s, NULL, MG_EV_SESSION_USAGE,
        mg_arena_printf(s->arena, "\"usage\":%.*s,\"budget\":%.*s", MG_SV_ARG(mg_buf_view(&b)), MG_SV_ARG(budget)),
        true);
    return MG_OK;
}

mg_rc mg_budget_pause(struct mg_step *s, struct mg_err *err)
{
    if (mg_advisor_turn(s)) /* the coordinator's turn goes on, and is paused at its next request */
        return mg_turn_abandon(s, "the session's budget is used up", err);
    mg_rc rc = mg_budget_event(s, err);
    if (rc < 0)
        return rc;
    rc = mg_turn_idle(s, mg_sv_of(MG_BUDGET_STOP), MG_SV(""), err);
    s->st.turn_step = MG_TURN_PAUSED;
    return rc;
}
