#include "worker/runner.h"

#include "base/clock.h"
#include "base/log.h"
#include "tools/result.h"
#include "worker/history.h"
#include "worker/job.h"
#include "worker/ledger.h"
#include "worker/result.h"
#include "worker/retry.h"
#include "worker/stream.h"

static const char HELPER[] = "environments-worker, session-tool-runner";

struct runner {
    const struct mg_runner_opts *o;
    struct mg_remote remote; /* the caller's, as the runner of sessions */
    struct mg_ledger *ledger;
    struct mg_kept *kept;
    struct mg_stream *stream; /* NULL while there is none */
    uint64_t list_at_ns;      /* the history could not be read: it is tried again then; 0: it was read */
    unsigned list_failures;   /* in a row */
    bool over, abandoned;
};

static bool alive(const struct runner *r)
{
    return !r->over && !r->abandoned && mg_tether_ended(r->o->tether) == MG_TETHER_RUNS;
}

static bool runs(const struct runner *r)
{
    uint64_t idle_at = mg_ledger_idle_at(r->ledger);
    return alive(r) && (!idle_at || mg_now_ns() < idle_at);
}

/* ---- one call ---- */

/* Whether somebody else answered the call that runs: an interrupt does, and its session's end. */
struct looker {
    const struct mg_call *call;
    bool answered;
};

static void look(void *ctx, struct mg_sv text)
{
    struct looker *l = ctx;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    struct mg_event e;
    if (mg_json_parse(a, text, &mg_json_raw_limits, &v, NULL) < 0 || !mg_event_read(a, v, &e))
        return;
    if ((e.kind == MG_EVENT_RESULT && mg_sv_eqz(e.id, l->call->id)) || e.kind == MG_EVENT_OVER)
        l->answered = true;
}

enum cut { CUT_NONE, CUT_TIMEOUT, CUT_SHUTDOWN, CUT_ANSWERED, CUT_FENCE };

/* Watches over a job until it is done, or given up. */
static enum cut watch(const struct runner *r, struct mg_job *j, const struct mg_call *c, bool *ret_done)
{
    struct mg_tether *t = r->o->tether;
    uint32_t timeout_ms = mg_toolbox_timeout_ms(r->o->toolbox, c->name);
    uint64_t until = mg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct looker l = {.call = c};
    enum cut cut = CUT_NONE;
    pthread_mutex_lock(&t->lock);
    while (!mg_job_done(j)) {
        enum cut why = cut;
        if (r->stream && cut == CUT_NONE)
            mg_stream_look(r->stream, look, &l);
        if (t->end >= MG_TETHER_OVER)
            why = CUT_FENCE;
        else if (cut == CUT_NONE)
            why = l.answered                 ? CUT_ANSWERED
                  : t->end != MG_TETHER_RUNS ? CUT_SHUTDOWN
                  : mg_now_ns() >= until     ? CUT_TIMEOUT
                                             : CUT_NONE;
        if (why != CUT_NONE && cut == CUT_NONE) {
            mg_job_cancel(j);
            until = mg_now_ns() + MG_RUNNER_YIELD_MS * 1000000ull;
        } else if (cut != CUT_NONE && mg_now_ns() >= until) {
            break;
        }
        cut = why;
        (void)mg_tether_wait(t, until);
    }
    if (t->end >= MG_TETHER_OVER)
        cut = CUT_FENCE;
    *ret_done = mg_job_done(j);
    pthread_mutex_unlock(&t->lock);
    return cut;
}

static void cut_text(const struct runner *r, const struct mg_call *c, enum cut cut, struct mg_tool_result *res)
{
    mg_tool_result_done(res);
    if (cut == CUT_TIMEOUT)
        (void)!mg_tool_textf(res, true, "%s did not end within %u s and was stopped", c->name,
                             mg_toolbox_timeout_ms(r->o->toolbox, c->name) / 1000);
    else
        (void)!mg_tool_textf(
            res, true,
            "the worker was shut down while %s ran. What it did until then is not known; look before it is "
            "done again",
            c->name);
}

/* Runs a call. False: there is nothing to send. */
static bool run_job(struct runner *r, const struct mg_call *c, struct mg_tool_result *res, enum mg_call_end *ret_end)
{
    struct mg_err err = {0};
    bool done;
    struct mg_job *j = mg_job_start(r->o->toolbox, c, r->o->tether);
    *ret_end = MG_CALL_UNPOSTED;
    if (!j) {
        (void)!mg_tool_textf(res, true, "the worker could not start a thread for %s; try again later", c->name);
        return true;
    }
    enum cut cut = watch(r, j, c, &done);
    if (!done) {
        mg_log(MG_ERROR, "a tool does not obey its cancel and is abandoned", MG_F_STR("tool", c->name),
               MG_F_STR("call", c->id));
        mg_job_abandon(j);
        r->abandoned = true;
        cut_text(r, c, cut, res);
        return cut == CUT_TIMEOUT || cut == CUT_SHUTDOWN;
    }
    mg_rc rc = mg_job_collect(j, res, &err);
    if (cut == CUT_FENCE)
        return false;
    if (cut == CUT_ANSWERED) {
        *ret_end = MG_CALL_ANSWERED;
        return false;
    }
    if (rc == MG_ECANCELED) {
        cut_text(r, c, cut, res);
    } else if (rc < 0) {
        mg_log(MG_ERROR, "a tool could not be run", MG_F_STR("tool", c->name), MG_F_STR("error", err.text));
        mg_tool_result_done(res);
        (void)!mg_tool_textf(res, true, "the tool %s could not be run: %s", c->name, err.text);
    }
    return true;
}

/* The server does not take what the tool said (an image it refuses, a size): the model learns that instead of nothing. */
static enum mg_send_end send_refusal(struct runner *r, const struct mg_call *c, const struct mg_err *why)
{
    struct mg_tool_result res = {0};
    mg_auto(buf) struct mg_buf body = {0};
    struct mg_err err = {0};
    int status;
    enum mg_send_end end = MG_SEND_REFUSED;
    (void)!mg_tool_textf(&res, true, "%s ran, but the server refused its result: %s", c->name, why->text);
    if (mg_result_body(&body, c, &res) == MG_OK)
        end = mg_result_send(&r->remote, r->o->session_id, c, mg_buf_view(&body), r->o->tether, &status, &err);
    mg_tool_result_done(&res);
    return end;
}

static enum mg_call_end send_body(struct runner *r, const struct mg_call *c, struct mg_buf *body)
{
    struct mg_err err = {0};
    int status = 0;
    enum mg_send_end end =
        mg_result_send(&r->remote, r->o->session_id, c, mg_buf_view(body), r->o->tether, &status, &err);
    if (end == MG_SEND_REFUSED && (status == 400 || status == 413)) {
        mg_log(MG_WARN, "the server refused a result", MG_F_STR("call", c->id), MG_F_STR("error", err.text));
        end = send_refusal(r, c, &err);
    }
    switch (end) {
    case MG_SEND_TAKEN:
        return MG_CALL_ANSWERED;
    case MG_SEND_REFUSED: /* somebody else answered it, or may not answer: running it again would not help */
        mg_log(MG_ERROR, "the result was refused", MG_F_STR("call", c->id), MG_F_STR("error", err.text));
        return MG_CALL_ANSWERED;
    case MG_SEND_LATER:
        mg_log(MG_ERROR, "the result could not be sent; it is kept", MG_F_STR("call", c->id),
               MG_F_STR("error", err.text));
        mg_kept_put(r->kept, c->id, body);
        return MG_CALL_UNPOSTED;
    case MG_SEND_FENCED:
        break;
    }
    return MG_CALL_UNPOSTED;
}

static enum mg_call_end serve_call(struct runner *r, const struct mg_call *c)
{
    struct mg_tool_result res = {0};
    mg_auto(buf) struct mg_buf body = {0};
    enum mg_call_end end = MG_CALL_UNPOSTED;
    if (!mg_toolbox_has(r->o->toolbox, c->name)) {
        mg_log(MG_INFO, "the tool is another client's", MG_F_STR("tool", c->name), MG_F_STR("call", c->id));
        return MG_CALL_NOT_OURS;
    }
    if (!mg_tether_may_send(r->o->tether))
        return end;
    if (mg_kept_take(r->kept, c->id, &body))
        return send_body(r, c, &body);
    mg_log(MG_INFO, "runs", MG_F_STR("tool", c->name), MG_F_STR("call", c->id));
    if (run_job(r, c, &res, &end) && mg_result_body(&body, c, &res) == MG_OK)
        end = send_body(r, c, &body);
    mg_tool_result_done(&res);
    return end;
}

/* Everything that can be run now. */
static void serve_ready(struct runner *r)
{
    struct mg_call *c;
    while (alive(r) && (c = mg_ledger_take(r->ledger, mg_now_ns()))) {
        enum mg_call_end end = serve_call(r, c);
        if (!r->abandoned) /* its thread still reads it */
            mg_ledger_end(r->ledger, c, end, mg_now_ns());
        if (r->o->after_call)
            r->o->after_call(r->o->ctx);
    }
}

/* ---- the stream ---- */

static void on_history(void *ctx, const struct mg_event *e)
{
    mg_ledger_history(ctx, e);
}

static void reconcile(struct runner *r)
{
    struct mg_err err = {0};
    mg_ledger_history_begin(r->ledger);
    mg_rc rc = mg_history_read(&r->remote, r->o->session_id, r->o->tether->leave, on_history, r->ledger, &err);

    mg_ledger_history_end(r->ledger, rc == MG_OK, mg_now_ns());
    uint32_t wait_ms = mg_retry_delay_ms(r->list_failures, MG_RUNNER_BACKOFF_MS, MG_RUNNER_BACKOFF_MAX_MS);
    bool for_good = rc == MG_EAUTH || rc == MG_EDENIED || rc == MG_ENOTFOUND;
    r->list_failures = rc < 0 ? r->list_failures + 1 : 0;
    r->list_at_ns = rc < 0 && !for_good ? mg_now_ns() + (uint64_t)wait_ms * 1000000u : 0;
    if (rc < 0 && rc != MG_ECANCELED)
        mg_log(MG_WARN, "the history could not be read", MG_F_STR("session", r->o->session_id),
               MG_F_STR("error", err.text));
    serve_ready(r);
}

/* The next event, or NULL: the stream ended, the session is to be left, or the history is to be read again. */
static struct mg_stream_text *next_text(struct runner *r)
{
    struct mg_tether *t = r->o->tether;
    struct mg_stream_text *text = NULL;

    uint64_t at = mg_ledger_idle_at(r->ledger);
    if (r->list_at_ns && (!at || r->list_at_ns < at))
        at = r->list_at_ns;
    pthread_mutex_lock(&t->lock);
    while (t->end == MG_TETHER_RUNS && !(text = mg_stream_take(r->stream)) && !mg_stream_ended(r->stream) &&
           (!at || mg_now_ns() < at))
        (void)mg_tether_wait(t, at);
    pthread_mutex_unlock(&t->lock);
    return text;
}

static void take_text(struct runner *r, const struct mg_stream_text *text)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    struct mg_event e;
    struct mg_err err = {0};
    if (mg_json_parse(a, mg_sv_n(text->text, text->len), &mg_json_raw_limits, &v, &err) < 0)
        mg_log(MG_WARN, "an event of the stream is no JSON and is skipped", MG_F_STR("error", err.text));
    else if (mg_event_read(a, v, &e))
        r->over = mg_ledger_stream(r->ledger, &e, mg_now_ns());
}

static bool stream_ended(const struct runner *r)
{
    pthread_mutex_lock(&r->o->tether->lock);
    bool ended = mg_stream_ended(r->stream);
    pthread_mutex_unlock(&r->o->tether->lock);
    return ended;
}

/* One connection: stream, history, events. Returns false when the stream is refused for good. */
static bool attend(struct runner *r, uint32_t *backoff_ms, struct mg_err *err)
{
    int status = 0;
    mg_rc rc = mg_stream_open(&r->remote, r->o->session_id, r->o->tether, &r->stream, &status, err);
    if (rc < 0 && mg_retry_fatal(status))
        return false;
    if (rc < 0) {
        if (rc != MG_ECANCELED)
            mg_log(MG_WARN, "the stream could not be opened, tried again", MG_F_STR("error", err->text),
                   MG_F_INT("backoff_ms", *backoff_ms));
        return true;
    }
    reconcile(r);

    for (struct mg_stream_text *text; alive(r); free(text)) {
        text = next_text(r);
        if (text) {
            *backoff_ms = MG_RUNNER_BACKOFF_MS;
            take_text(r, text);
            serve_ready(r);
        } else if (r->list_at_ns && runs(r) && !stream_ended(r)) {
            reconcile(r);
        } else {
            break;
        }
    }
    if (runs(r))
        mg_log(MG_INFO, "the stream ended, opened again", MG_F_STR("session", r->o->session_id),
               MG_F_STR("why", mg_stream_why(r->stream)));
    mg_stream_close(r->stream);
    r->stream = NULL;
    return true;
}

static void sleep_off(struct runner *r, uint32_t *backoff_ms)
{
    uint64_t idle_at = mg_ledger_idle_at(r->ledger), now = mg_now_ns();
    uint64_t left = idle_at > now ? (idle_at - now) / 1000000u + 1 : 0;
    mg_tether_sleep(r->o->tether, idle_at && left < *backoff_ms ? (uint32_t)left : *backoff_ms);
    *backoff_ms = *backoff_ms * 2 < MG_RUNNER_BACKOFF_MAX_MS ? *backoff_ms * 2 : MG_RUNNER_BACKOFF_MAX_MS;
}

enum mg_runner_end mg_runner_run(const struct mg_runner_opts *o, bool *ret_abandoned, struct mg_err *err)
{
    struct runner r = {.o = o, .remote = *o->remote, .ledger = mg_ledger_new(o->max_idle_ms), .kept = mg_kept_new()};
    uint32_t backoff_ms = MG_RUNNER_BACKOFF_MS;
    bool refused = false;
    r.remote.helper = HELPER;
    while (runs(&r) && !refused) {
        refused = !attend(&r, &backoff_ms, err);
        if (runs(&r) && !refused)
            sleep_off(&r, &backoff_ms);
    }
    enum mg_runner_end end = refused                                        ? MG_RUNNER_FAILED
                             : mg_tether_ended(o->tether) != MG_TETHER_RUNS ? MG_RUNNER_TETHER
                             : r.over                                       ? MG_RUNNER_OVER
                                                                            : MG_RUNNER_IDLE;
    if (r.abandoned && end == MG_RUNNER_IDLE) {
        (void)mg_err_set(err, MG_EINTERNAL, "a tool does not return from its call");
        end = MG_RUNNER_FAILED;
    }
    *ret_abandoned = r.abandoned;
    mg_ledger_free(r.ledger);
    mg_kept_free(r.kept);
    return end;
}
