/* Messages of a client: in the one-session form each is a POST of events, in mango.v1 a command of ws-command.h.
 *
 * What needs the database runs on a request thread, one command of a socket at a time: sends keep their order. */
#include "base/mem.h"
#include "http/stream.h"
#include "http/ws-command.h"
#include "http/ws.h"

enum {
    INLINE_PARSE_MAX = 16 * 1024, /* bytes: longer messages are parsed on a request thread */
    MALFORMED_MAX = 10,
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
        mg_ws_sub_free(s); /* `end` was said at the unsubscribe */
        return;
    }
    if (ws->revoked) { /* between the look-up and now */
        mg_ws_sub_end(ws, s, MG_SUB_REVOKED, &ws->control);
        return;
    }
    if (j->rc < 0) {
        mg_ws_say_error(ws, j->cmd.ref, &s->number, &j->err);
        mg_ws_sub_free(s);
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
        mg_ws_say_error(ws, j->cmd.ref, NULL, &j->err);
        malformed(ws);
    } else if (j->rc < 0) {
        mg_ws_say_error(ws, j->cmd.ref, NULL, &j->err);
        if (!ws->mux && j->rc == MG_EINVAL)
            malformed(ws);
    } else if (j->kind == JOB_SEND) {
        mg_ws_say_ack(ws, j->cmd.ref, j->ids);
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
        if (mg_task_submit(ws->conn->http, &j->task, false) == 0)
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
    struct mg_id thread = {0};
    if (j->cmd.thread_id.len && !mg_id_from(j->cmd.thread_id, &thread))
        return mg_err_set(&j->err, MG_EINVAL, "thread_id: is not an id");
    if (mg_ws_sub_find(ws, j->cmd.sub))
        return mg_err_set(&j->err, MG_EINVAL, "sub: %lld is in use on this socket", (long long)j->cmd.sub);
    if (ws->n_subs >= h->limits.subs_max)
        return mg_err_set(&j->err, MG_ERATE,
                          "sub: this socket has %u subscriptions, which is its limit; open another socket", ws->n_subs);
    j->spec.thread = thread;
    j->sub = mg_ws_sub_new(ws, j->cmd.sub, j->cmd.types);
    j->sub->credit = j->cmd.credit;
    j->kind = JOB_SUBSCRIBE;
    job_queue(ws, j);
    return MG_OK;
}

static mg_rc cmd_unsubscribe(struct mg_ws *ws, const struct mg_ws_job *j, struct mg_err *err)
{
    struct mg_ws_sub *s = mg_ws_sub_find(ws, j->cmd.sub);
    if (!s || s->cancelled)
        return mg_err_set(err, MG_ENOTFOUND, "sub: there is no subscription %lld on this socket",
                          (long long)j->cmd.sub);
    mg_ws_note(&ws->control, s, "end", "unsubscribed");
    mg_conn_ready(ws->conn);
    if (s->sub) {
        mg_ws_sub_free(s);
        return MG_OK;
    }
    s->cancelled = true; /* its start is being looked up: freed when that ends */
    s->number = -1;
    return MG_OK;
}

static mg_rc cmd_credit(struct mg_ws *ws, const struct mg_ws_job *j, struct mg_err *err)
{
    struct mg_ws_sub *s = mg_ws_sub_find(ws, j->cmd.sub);
    if (!s)
        return mg_err_set(err, MG_ENOTFOUND, "sub: there is no subscription %lld on this socket",
                          (long long)j->cmd.sub);
    s->credit += j->cmd.credit;
    if (s->credit > MG_WS_CREDIT_MAX)
        s->credit = MG_WS_CREDIT_MAX;
    mg_ws_sub_turn(s);
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
        mg_ws_say_pong(ws, j->cmd.ref);
        break;
    }
    if (rc < 0) {
        j->err.rc = rc;
        mg_ws_say_error(ws, j->cmd.ref, j->cmd.has_sub ? &j->cmd.sub : NULL, &j->err);
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
    mg_ws_say_error(ws, j->cmd.ref, j->cmd.has_sub ? &j->cmd.sub : NULL, &j->err);
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
        mg_ws_sub_free(mg_container_of(ws->subs.next, struct mg_ws_sub, link));
}
