/* What is said on a WebSocket. One session's form: every event is a message, every message of the client a POST of events. mango.v1: the
 * commands of ws-command.h; the server says
 *
 *   {"op":"hello","server":"mango","version":..,"node":..,"ping_interval_ms":..,"limits":{..}}
 *   {"op":"event","sub":N,"event":{..}}  {"op":"delta","sub":N,"event":{..}}  {"op":"live","sub":N}  {"op":"end","sub":N,"reason":".."}
 *   {"op":"ack","ref":R,"event_ids":[..]}  {"op":"pong","ref":R}  {"op":"error","ref":R,"sub":N,"error":{"type":..,"message":..}}
 *   {"op":"bye","reconnect_in_ms":N}
 *
 * What needs the database runs on a request thread, one command of a socket at a time: sends keep their order. */
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "http/response.h"
#include "http/stream.h"
#include "http/ws-command.h"
#include "http/ws.h"
#include "json/write.h"

enum {
    TURN_EVENTS = 16,             /* of one subscription before the next has its turn */
    INLINE_PARSE_MAX = 16 * 1024, /* bytes: longer messages are parsed on a request thread */
    MALFORMED_MAX = 10,
    ANSWER_MAX = 64 * 1024, /* bytes of one message of ours that is no event */
    BYE_SPREAD_MS = 5000,   /* clients come back spread over that time */
};

struct mg_ws_sub {
    struct mg_list link, turn;
    struct mg_ws *ws;
    struct mg_sub *sub; /* NULL while its start is being looked up */
    int64_t number;     /* the client's */
    int64_t credit;
    char *types; /* comma-separated or NULL */
    struct mg_id thread;
    bool live_said, cancelled;
};

enum job_kind { JOB_PARSE, JOB_SUBSCRIBE, JOB_SEND };

struct mg_ws_job {
    struct mg_task task;
    struct mg_list link;
    struct mg_ws *ws; /* NULL once the socket is gone */
    struct mg_ws_sub *sub;
    enum job_kind kind;
    struct mg_http_req req;
    struct mg_principal who;
    struct mg_sv text; /* the message; arena memory */
    struct mg_ws_command cmd;
    struct mg_stream_spec spec;
    struct mg_sv ids;
    bool parsed_bad;
    mg_rc rc;
    struct mg_err err;
};

/* ---- saying ---- */

static void say_error(struct mg_ws *ws, struct mg_sv ref, const int64_t *sub, const struct mg_err *err)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, ws->mux ? "op" : "type", ws->mux ? "error" : "mango.error");
    if (ref.len)
        mg_jw_kraw(&w, "ref", ref);
    if (sub)
        mg_jw_kint(&w, "sub", *sub);
    mg_jw_key(&w, "error");
    mg_error_value(&w, mg_http_status(err->rc), err);
    mg_jw_obj_end(&w);
    mg_ws_say(ws, mg_buf_view(&b));
}

static void say_ack(struct mg_ws *ws, struct mg_sv ref, struct mg_sv ids)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, ws->mux ? "op" : "type", ws->mux ? "ack" : "mango.ack");
    if (ref.len)
        mg_jw_kraw(&w, "ref", ref);
    mg_jw_kraw(&w, "event_ids", ids.len ? ids : MG_SV("[]"));
    mg_jw_obj_end(&w);
    mg_ws_say(ws, mg_buf_view(&b));
}

static void say_pong(struct mg_ws *ws, struct mg_sv ref)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "op", "pong");
    if (ref.len)
        mg_jw_kraw(&w, "ref", ref);
    mg_jw_obj_end(&w);
    mg_ws_say(ws, mg_buf_view(&b));
}

void mg_ws_hello(struct mg_ws *ws)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ANSWER_MAX);
    const struct mg_http *h = ws->conn->http;
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "op", "hello");
    mg_jw_kstrz(&w, "server", "mango");
    mg_jw_kstrz(&w, "version", MANGO_VERSION);
    if (h->opts.node)
        mg_jw_kstrz(&w, "node", h->opts.node);
    mg_jw_kint(&w, "ping_interval_ms", h->limits.keepalive_ms);
    mg_jw_key(&w, "limits");
    mg_jw_obj(&w);
    mg_jw_kint(&w, "subscriptions", h->limits.subs_max);
    mg_jw_kint(&w, "message_bytes", MG_WS_MESSAGE_MAX);
    mg_jw_kint(&w, "default_credit", MG_WS_CREDIT);
    mg_jw_kint(&w, "max_credit", MG_WS_CREDIT_MAX);
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    mg_ws_say(ws, mg_buf_view(&b));
}

void mg_ws_bye(struct mg_ws *ws)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "op", "bye");
    mg_jw_kint(&w, "reconnect_in_ms", (int64_t)mg_rng_below(BYE_SPREAD_MS));
    mg_jw_obj_end(&w);
    mg_ws_say(ws, mg_buf_view(&b));
}

/* `live` and `end` go into the buffer of events: their place among them counts. */
static void put_note(struct mg_buf *out, const struct mg_ws_sub *s, const char *op, const char *reason)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "op", op);
    mg_jw_kint(&w, "sub", s->number);
    if (reason)
        mg_jw_kstrz(&w, "reason", reason);
    mg_jw_obj_end(&w);
    mg_frame_text(out, mg_buf_view(&b));
}

/* ---- subscriptions ---- */

static void sub_turn(struct mg_ws_sub *s)
{
    if (mg_list_empty(&s->turn))
        mg_list_add_tail(&s->ws->turns, &s->turn);
    mg_conn_ready(s->ws->conn);
}

static void sub_ready(void *ctx)
{
    sub_turn(ctx);
}

static struct mg_ws_sub *sub_new(struct mg_ws *ws, int64_t number, struct mg_sv types, struct mg_sv thread)
{
    struct mg_ws_sub *s = mg_xcalloc(1, sizeof(*s));
    s->ws = ws;
    s->number = number;
    s->types = types.len ? mg_xstrndup(types.ptr, types.len) : NULL;
    (void)mg_id_from(thread, &s->thread);
    mg_list_init(&s->turn);
    mg_list_init(&s->link);
    mg_list_add_tail(&ws->subs, &s->link);
    ws->n_subs++;
    mg_metric_add(&ws->conn->http->metrics.subscriptions, 1);
    return s;
}

static void sub_free(struct mg_ws_sub *s)
{
    mg_sub_free(s->sub);
    mg_list_del(&s->link);
    mg_list_del(&s->turn);
    s->ws->n_subs--;
    mg_metric_sub(&s->ws->conn->http->metrics.subscriptions, 1);
    free(s->types);
    free(s);
}

struct mg_ws_sub *mg_ws_sub_single(struct mg_ws *ws, struct mg_sv types, struct mg_sv thread)
{
    return sub_new(ws, -1, types, thread);
}

void mg_ws_sub_open(struct mg_ws *ws, struct mg_ws_sub *s, const struct mg_stream_spec *spec)
{
    const struct mg_sub_opts o = {
        .session = spec->session,
        .key_id = spec->key_id,
        .after_seq = spec->after_seq,
        .deltas_message = spec->deltas_message,
        .deltas_thinking = spec->deltas_thinking,
        .ready = sub_ready,
        .ctx = s,
    };
    s->sub = mg_sub_new(ws->conn->http->opts.hub, &o);
    sub_turn(s);
}

static struct mg_ws_sub *sub_find(struct mg_ws *ws, int64_t number)
{
    mg_list_each (it, &ws->subs) {
        struct mg_ws_sub *s = mg_container_of(it, struct mg_ws_sub, link);
        if (s->number == number)
            return s;
    }
    return NULL;
}

static const char *end_reason(enum mg_sub_end end)
{
    switch (end) {
    case MG_SUB_DELETED:
        return "deleted";
    case MG_SUB_REVOKED:
        return "revoked";
    case MG_SUB_LEASE_LOST:
        return "lease_lost";
    case MG_SUB_ERROR:
        break;
    }
    return "error";
}

/* The stream of s is over; s is freed. */
static void sub_end(struct mg_ws *ws, struct mg_ws_sub *s, enum mg_sub_end end, struct mg_buf *b)
{
    bool revoked = end == MG_SUB_REVOKED || end == MG_SUB_LEASE_LOST;
    if (ws->mux) {
        put_note(b, s, "end", end_reason(end));
        sub_free(s);
        if (revoked && ws->n_subs == 0)
            mg_ws_close(ws, MG_WS_CLOSE_POLICY, "the credential is no longer valid");
        return;
    }
    sub_free(s);
    if (end == MG_SUB_DELETED)
        mg_ws_close(ws, MG_WS_CLOSE_NORMAL, "the session was deleted");
    else
        mg_ws_close(ws, revoked ? MG_WS_CLOSE_POLICY : MG_WS_CLOSE_SERVER, end_reason(end));
}

/* ---- events into a write ---- */

static void big_piece(struct mg_ws *ws, struct mg_buf *b)
{
    struct mg_sv rest = mg_sv_from(ws->big->json, ws->big_at);
    size_t n = rest.len < MG_HTTP_STREAM_WRITE ? rest.len : MG_HTTP_STREAM_WRITE;
    mg_stream_text(b, mg_sv_n(rest.ptr, n));
    ws->big_at += n;
    if (n < rest.len)
        return;
    if (ws->mux)
        (void)mg_buf_char(b, '}');
    mg_event_unref(ws->big);
    ws->big = NULL;
}

/* Takes the reference. */
static void put_event(struct mg_ws *ws, const struct mg_ws_sub *s, struct mg_event *e, struct mg_buf *b)
{
    mg_auto(buf) struct mg_buf prefix = MG_BUF_INIT(128);
    if (ws->mux)
        (void)mg_buf_printf(&prefix, "{\"op\":\"%s\",\"sub\":%lld,\"event\":", e->seq ? "event" : "delta",
                            (long long)s->number);
    mg_frame_begin(b, MG_WS_TEXT, prefix.len + e->json.len + (ws->mux ? 1 : 0));
    (void)mg_buf_sv(b, mg_buf_view(&prefix));
    mg_metric_add(&ws->conn->http->metrics.ws_events, 1);
    ws->big = e;
    ws->big_at = 0;
    big_piece(ws, b); /* the whole of a small one */
}

static bool may_take(const struct mg_ws *ws, const struct mg_ws_sub *s)
{
    return s->sub && (!ws->mux || s->credit > 0 || mg_sub_ended(s->sub));
}

/* One turn. False: it has nothing more for now, or it is gone. */
static bool gather_sub(struct mg_ws *ws, struct mg_ws_sub *s, struct mg_buf *b)
{
    for (int i = 0; i < TURN_EVENTS; i++) {
        bool live = false;
        enum mg_sub_end end = 0;
        if (b->len >= MG_HTTP_STREAM_WRITE || ws->big)
            return true;
        if (!may_take(ws, s))
            return false;
        struct mg_event *e = mg_sub_next(s->sub, &live, &end);
        bool last = e && !ws->mux && e->seq && mg_sv_eqz(e->type, "session.status_terminated");
        if (e && mg_stream_wants(mg_sv_of(s->types), &s->thread, e)) {
            s->credit -= e->seq != 0;
            put_event(ws, s, e, b);
        } else {
            mg_event_unref(e);
        }
        if (ws->mux && live && !end && !s->live_said && !ws->big) {
            s->live_said = true;
            put_note(b, s, "live", NULL);
        }
        if (last)
            end = MG_SUB_DELETED;
        if (end) {
            sub_end(ws, s, end, b);
            return false;
        }
        if (!e)
            return false;
    }
    return true;
}

bool mg_ws_gather(struct mg_ws *ws, struct mg_buf *b)
{
    while (ws->big && b->len < MG_HTTP_STREAM_WRITE)
        big_piece(ws, b);
    if (ws->big)
        return true;
    if (ws->control.len) {
        (void)mg_buf_sv(b, mg_buf_view(&ws->control));
        mg_buf_done(&ws->control);
    }
    while (!ws->closing && !mg_list_empty(&ws->turns) && b->len < MG_HTTP_STREAM_WRITE && !ws->big) {
        struct mg_ws_sub *s = mg_container_of(ws->turns.next, struct mg_ws_sub, turn);
        mg_list_del(&s->turn);
        if (gather_sub(ws, s, b) && mg_list_empty(&s->turn))
            mg_list_add_tail(&ws->turns, &s->turn);
    }
    return ws->big || ws->control.len || (!ws->closing && !mg_list_empty(&ws->turns));
}

/* ---- commands that need the database ---- */

static void job_run(struct mg_task *t, struct mg_pg *pg);
static void job_done(struct mg_task *t);

static struct mg_ws_job *job_new(struct mg_ws *ws, enum job_kind kind, struct mg_sv text)
{
    struct mg_ws_job *j = mg_xcalloc(1, sizeof(*j));
    j->task = (struct mg_task){.http = ws->conn->http, .run = job_run, .done = job_done};
    j->ws = ws;
    j->kind = kind;
    j->who = ws->who;
    j->req = (struct mg_http_req){
        .arena = mg_arena_new(),
        .method = MG_POST,
        .request_id = mg_id_new("req"),
        .app = ws->conn->http->opts.app,
        .principal = ws->who.key.s[0] ? &j->who : NULL,
    };
    j->req.remote = mg_arena_sv(j->req.arena, ws->remote);
    j->text = mg_arena_sv(j->req.arena, text);
    mg_list_init(&j->link);
    return j;
}

static void job_free(struct mg_ws_job *j)
{
    mg_list_del(&j->link);
    mg_arena_free(j->req.arena);
    free(j);
}

static mg_rc run_send(struct mg_ws_job *j)
{
    const struct mg_http_opts *o = &j->task.http->opts;
    struct mg_sv body = j->text;
    if (!o->ws_send)
        return mg_err_set(&j->err, MG_EINVAL, "op: this server takes no events on a WebSocket; POST them");
    if (j->cmd.events.len)
        body = mg_arena_printf(j->req.arena, "{\"events\":%.*s}", MG_SV_ARG(j->cmd.events));
    return o->ws_send(&j->req, j->cmd.session_id, body, j->cmd.idempotency_key, &j->ids, &j->err);
}

static void job_run(struct mg_task *t, struct mg_pg *pg)
{
    struct mg_ws_job *j = mg_container_of(t, struct mg_ws_job, task);
    j->req.pg = pg;
    if (j->kind == JOB_PARSE) {
        j->rc = mg_ws_command_parse(j->req.arena, j->text, &j->cmd, &j->err);
        j->parsed_bad = j->rc < 0;
        if (j->rc >= 0 && j->cmd.op == MG_WS_OP_SEND)
            j->kind = JOB_SEND;
    }
    if (j->kind == JOB_SUBSCRIBE)
        j->rc = j->task.http->opts.resolve_stream(&j->req, j->cmd.session_id, j->cmd.after, &j->spec, &j->err);
    else if (j->kind == JOB_SEND)
        j->rc = run_send(j);
    if (j->rc < 0)
        j->err.rc = j->rc;
    j->req.pg = NULL;
}

static void malformed(struct mg_ws *ws)
{
    if (++ws->malformed >= MALFORMED_MAX)
        mg_ws_close(ws, MG_WS_CLOSE_POLICY, "ten malformed commands");
}

static void subscribed(struct mg_ws *ws, struct mg_ws_job *j)
{
    struct mg_ws_sub *s = j->sub;
    if (s->cancelled) {
        sub_free(s); /* `end` was said at the unsubscribe */
        return;
    }
    if (ws->revoked) { /* between the look-up and now */
        sub_end(ws, s, MG_SUB_REVOKED, &ws->control);
        return;
    }
    if (j->rc < 0) {
        say_error(ws, j->cmd.ref, &s->number, &j->err);
        sub_free(s);
        return;
    }
    j->spec.deltas_message = j->cmd.deltas_message;
    j->spec.deltas_thinking = j->cmd.deltas_thinking;
    mg_ws_sub_open(ws, s, &j->spec);
}

static void dispatch(struct mg_ws *ws, struct mg_ws_job *j);

static void job_result(struct mg_ws *ws, struct mg_ws_job *j)
{
    if (j->kind == JOB_SUBSCRIBE) {
        subscribed(ws, j);
    } else if (j->parsed_bad) {
        say_error(ws, j->cmd.ref, NULL, &j->err);
        malformed(ws);
    } else if (j->rc < 0) {
        say_error(ws, j->cmd.ref, NULL, &j->err);
        if (!ws->mux && j->rc == MG_EINVAL)
            malformed(ws);
    } else if (j->kind == JOB_SEND) {
        say_ack(ws, j->cmd.ref, j->ids);
        if (!ws->mux)
            ws->malformed = 0;
    }
}

static void jobs_start(struct mg_ws *ws);

static void job_finish(struct mg_ws_job *j)
{
    struct mg_ws *ws = j->ws;
    if (!ws) {
        job_free(j);
        return;
    }
    mg_list_del(&j->link);
    ws->n_jobs--;
    ws->job_bytes -= j->text.len;
    ws->job_runs = false;
    if (j->kind == JOB_PARSE && j->rc >= 0) { /* a long command that is no send */
        j->ws = ws;
        dispatch(ws, j);
    } else {
        job_result(ws, j);
        job_free(j);
    }
}

static void job_done(struct mg_task *t)
{
    struct mg_ws_job *j = mg_container_of(t, struct mg_ws_job, task);
    struct mg_ws *ws = j->ws;
    job_finish(j);
    if (!ws)
        return;
    jobs_start(ws);
    mg_ws_flow(ws);
    mg_conn_ready(ws->conn);
}

static void jobs_start(struct mg_ws *ws)
{
    while (!ws->job_runs && !mg_list_empty(&ws->jobs)) {
        struct mg_ws_job *j = mg_container_of(ws->jobs.next, struct mg_ws_job, link);
        ws->job_runs = true;
        if (mg_task_submit(ws->conn->http, &j->task) == 0)
            return;
        j->rc = mg_err_set(&j->err, MG_EUNAVAIL, "the server has more requests than it can queue; try again");
        j->err.rc = j->rc;
        job_finish(j);
    }
}

static void job_queue(struct mg_ws *ws, struct mg_ws_job *j)
{
    mg_list_add_tail(&ws->jobs, &j->link);
    ws->n_jobs++;
    ws->job_bytes += j->text.len;
    jobs_start(ws);
}

/* ---- commands ---- */

static mg_rc cmd_subscribe(struct mg_ws *ws, struct mg_ws_job *j)
{
    const struct mg_http *h = ws->conn->http;
    struct mg_id thread;
    if (j->cmd.thread_id.len && !mg_id_from(j->cmd.thread_id, &thread))
        return mg_err_set(&j->err, MG_EINVAL, "thread_id: is not an id");
    if (sub_find(ws, j->cmd.sub))
        return mg_err_set(&j->err, MG_EINVAL, "sub: %lld is in use on this socket", (long long)j->cmd.sub);
    if (ws->n_subs >= h->limits.subs_max)
        return mg_err_set(&j->err, MG_ERATE,
                          "sub: this socket has %u subscriptions, which is its limit; open another socket", ws->n_subs);
    j->sub = sub_new(ws, j->cmd.sub, j->cmd.types, j->cmd.thread_id);
    j->sub->credit = j->cmd.credit;
    j->kind = JOB_SUBSCRIBE;
    job_queue(ws, j);
    return MG_OK;
}

static mg_rc cmd_unsubscribe(struct mg_ws *ws, const struct mg_ws_job *j, struct mg_err *err)
{
    struct mg_ws_sub *s = sub_find(ws, j->cmd.sub);
    if (!s || s->cancelled)
        return mg_err_set(err, MG_ENOTFOUND, "sub: there is no subscription %lld on this socket",
                          (long long)j->cmd.sub);
    put_note(&ws->control, s, "end", "unsubscribed");
    mg_conn_ready(ws->conn);
    if (s->sub) {
        sub_free(s);
        return MG_OK;
    }
    s->cancelled = true; /* its start is being looked up: freed when that ends */
    s->number = -1;
    return MG_OK;
}

static mg_rc cmd_credit(struct mg_ws *ws, const struct mg_ws_job *j, struct mg_err *err)
{
    struct mg_ws_sub *s = sub_find(ws, j->cmd.sub);
    if (!s)
        return mg_err_set(err, MG_ENOTFOUND, "sub: there is no subscription %lld on this socket",
                          (long long)j->cmd.sub);
    s->credit += j->cmd.credit;
    if (s->credit > MG_WS_CREDIT_MAX)
        s->credit = MG_WS_CREDIT_MAX;
    sub_turn(s);
    return MG_OK;
}

/* j->cmd is parsed; j is queued or freed. */
static void dispatch(struct mg_ws *ws, struct mg_ws_job *j)
{
    mg_rc rc = MG_OK;
    bool queued = false;
    switch (j->cmd.op) {
    case MG_WS_OP_SUBSCRIBE:
        rc = cmd_subscribe(ws, j);
        queued = rc >= 0;
        break;
    case MG_WS_OP_UNSUBSCRIBE:
        rc = cmd_unsubscribe(ws, j, &j->err);
        break;
    case MG_WS_OP_CREDIT:
        rc = cmd_credit(ws, j, &j->err);
        break;
    case MG_WS_OP_SEND:
        j->kind = JOB_SEND;
        job_queue(ws, j);
        queued = true;
        break;
    case MG_WS_OP_PING:
        say_pong(ws, j->cmd.ref);
        break;
    }
    if (rc < 0) {
        j->err.rc = rc;
        say_error(ws, j->cmd.ref, j->cmd.has_sub ? &j->cmd.sub : NULL, &j->err);
    }
    if (!queued)
        job_free(j);
}

void mg_ws_message(struct mg_ws *ws, struct mg_buf *message)
{
    struct mg_sv text = mg_buf_view(message);
    struct mg_ws_job *j = job_new(ws, ws->mux ? JOB_PARSE : JOB_SEND, text);
    if (!ws->mux)
        j->cmd.session_id = mg_arena_sv(j->req.arena, mg_id_sv(&ws->session));
    if (!ws->mux || text.len > INLINE_PARSE_MAX) {
        job_queue(ws, j);
        return;
    }
    mg_rc rc = mg_ws_command_parse(j->req.arena, j->text, &j->cmd, &j->err);
    if (rc >= 0) {
        dispatch(ws, j);
        return;
    }
    j->err.rc = rc;
    say_error(ws, j->cmd.ref, j->cmd.has_sub ? &j->cmd.sub : NULL, &j->err);
    job_free(j);
    malformed(ws);
}

void mg_ws_stream_free(struct mg_ws *ws)
{
    while (!mg_list_empty(&ws->jobs)) {
        struct mg_ws_job *j = mg_container_of(ws->jobs.next, struct mg_ws_job, link);
        bool runs = ws->job_runs;
        mg_list_del(&j->link);
        ws->job_runs = false;
        j->ws = NULL;
        if (!runs)
            job_free(j); /* else its done() frees it */
    }
    while (!mg_list_empty(&ws->subs))
        sub_free(mg_container_of(ws->subs.next, struct mg_ws_sub, link));
}
