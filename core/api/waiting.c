/* What sessions wait for: the metrics of all, /v1/sessions/{}/waiting of one, /v1/sessions/{}/unwedge to end it. */
#include "store/waiting.h"

#include <limits.h>

#include "api/api.h"
#include "api/routes.h"
#include "run/engine.h"
#include "service/unwedge.h"

void mg_waiting_metrics(struct mg_pg *pg, struct mg_buf *out)
{
    struct mg_waiting_sum sums[MG_WAITING_COUNT];
    struct mg_err err = {0};
    if (mg_waiting_sums(pg, sums, &err) < 0)
        return; /* the rest of the page is of use without the database */
    (void)mg_buf_str(out, "# HELP mango_waiting Turns and calls of the whole deployment that wait, by reason.\n"
                          "# TYPE mango_waiting gauge\n");
    for (int i = 0; i < MG_WAITING_COUNT; i++)
        (void)mg_buf_printf(out, "mango_waiting{reason=\"%s\"} %lld\n", mg_waiting_name(i), (long long)sums[i].n);
    (void)mg_buf_str(out, "# HELP mango_waiting_oldest_seconds How long the oldest of them has waited.\n"
                          "# TYPE mango_waiting_oldest_seconds gauge\n");
    for (int i = 0; i < MG_WAITING_COUNT; i++)
        (void)mg_buf_printf(out, "mango_waiting_oldest_seconds{reason=\"%s\"} %.3f\n", mg_waiting_name(i),
                            (double)sums[i].oldest_ms / 1000);
}

void mg_transaction_metrics(struct mg_pg *pg, struct mg_buf *out)
{
    int64_t pid, ms;
    struct mg_err err = {0};
    if (mg_oldest_transaction(pg, &pid, &ms, &err) < 0)
        return;
    (void)mg_buf_printf(
        out,
        "# HELP mango_database_oldest_transaction_seconds How long the oldest open transaction has been.\n"
        "# TYPE mango_database_oldest_transaction_seconds gauge\n"
        "mango_database_oldest_transaction_seconds %.3f\n"
        "# HELP mango_database_oldest_transaction_pid Its process in the database; 0: there is none.\n"
        "# TYPE mango_database_oldest_transaction_pid gauge\n"
        "mango_database_oldest_transaction_pid %lld\n",
        (double)ms / 1000, (long long)pid);
}

/* A call that runs has a deadline; one that waits for a client has none in the contract. */
static void call_write(struct mg_jw *w, const struct mg_engine *e, const struct mg_waiting_call *c)
{
    bool runs = mg_sv_eqz(c->state, "started");
    const char *reason = mg_sv_eqz(c->waits_for, "none") ? runs ? "tool" : "its turn" : NULL;
    mg_jw_obj(w);
    mg_jw_kstr(w, "event_id", c->event_id);
    mg_jw_kstr(w, "name", c->name);
    if (reason)
        mg_jw_kstrz(w, "waits_for", reason);
    else
        mg_jw_kstrz(w, "waits_for", mg_sv_eqz(c->waits_for, "result") ? "client_result" : "confirmation");
    mg_jw_ktime(w, "since", c->since_us);
    if (runs && c->since_us != INT64_MIN)
        mg_jw_ktime(w, "deadline", c->since_us + (int64_t)mg_call_limit_ms(e, c->input) * 1000);
    else
        mg_jw_knull(w, "deadline");
    mg_jw_obj_end(w);
}

mg_rc mg_get_session_waiting(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_session_waiting s;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_session_waiting(req->arena, req->pg, mg_req_workspace(req), req->param[0], &r, &s, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "session_waiting");
    mg_jw_kstr(&w, "session_id", req->param[0]);
    mg_jw_kstr(&w, "status", s.status);
    mg_jw_kstr(&w, "step", s.step);
    if (mg_sv_eqz(s.step, "none"))
        mg_jw_knull(&w, "since");
    else
        mg_jw_ktime(&w, "since", s.since_us);
    mg_jw_ktime(&w, "retry_at", s.due_us);
    mg_jw_kint(&w, "queued_messages", s.queued);
    mg_jw_kint(&w, "unprocessed_messages", s.unread);
    mg_jw_key(&w, "calls");
    mg_jw_arr(&w);
    for (int i = 0; i < s.n_calls; i++)
        call_write(&w, mg_req_app(req)->engine, &s.calls[i]);
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_post_session_unwedge(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    int calls;
    bool changed;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_sessions_unwedge(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], &calls,
                                 &changed, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "session_unwedged");
    mg_jw_kstr(&w, "session_id", req->param[0]);
    mg_jw_kbool(&w, "changed", changed);
    mg_jw_kint(&w, "settled_calls", calls);
    mg_jw_obj_end(&w);
    return MG_OK;
}
