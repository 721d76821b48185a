/* Concurrency: the state belongs to the loop's thread from start to on_done, then to the caller, which waits for it. */
#include "mcp/exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "mcp/rpc.h"

enum body_kind { BODY_UNKNOWN, BODY_STREAM, BODY_JSON, BODY_REFUSAL, BODY_FOREIGN };

struct state {
    const struct mg_mcp_exchange_req *req;
    struct mg_mcp_exchange *x;
    struct mg_sse sse;
    enum body_kind kind;
    int n_messages;
    bool alive; /* the present piece held the answer or progress */
    int done_fd;
};

static void copy_header(char *out, size_t size, struct mg_sv value)
{
    bool plain = value.len < size;
    for (size_t i = 0; plain && i < value.len; i++)
        plain = value.ptr[i] > 0x20 && value.ptr[i] < 0x7f;
    size_t n = plain ? value.len : 0;
    memcpy(out, value.ptr, n);
    out[n] = '\0';
}

static void on_header(void *ctx, int status, struct mg_sv name, struct mg_sv value)
{
    struct state *s = ctx;
    s->x->status = status;
    if (mg_sv_eq_nocase(name, MG_SV("content-type")))
        copy_header(s->x->type, sizeof(s->x->type), mg_sv_trim(mg_sv_n(value.ptr, mg_sv_find(value, ';'))));
    else if (mg_sv_eq_nocase(name, MG_SV("mcp-session-id")))
        copy_header(s->x->session, sizeof(s->x->session), value);
    else if (mg_sv_eq_nocase(name, MG_SV("location")))
        copy_header(s->x->location, sizeof(s->x->location), value);
}

/* ---- messages ---- */

static bool fail(struct state *s, const char *text)
{
    s->x->malformed = true;
    mg_rpc_show(s->x->text, sizeof(s->x->text), mg_sv_of(text));
    return false;
}

/* Whether a note tells of our request's progress. */
static bool is_progress(const struct state *s, const struct mg_rpc *m)
{
    int64_t token = 0;
    const struct mg_json *t = mg_json_get(m->body, "progressToken");
    bool ours = t && mg_json_i64(t, &token) && token == s->req->token;
    return ours && token && mg_sv_eqz(m->method, "notifications/progress");
}

static void take_message(struct state *s, const struct mg_rpc *m)
{
    if (s->req->id && !s->x->answered && mg_rpc_is_answer(m, s->req->id)) {
        s->x->answered = mg_buf_sv(&s->x->message, m->raw) == MG_OK;
        s->alive = true;
    } else if (m->kind == MG_RPC_REQUEST && s->req->on_request) {
        s->req->on_request(s->req->ctx, m->id, m->method);
    } else if (m->kind == MG_RPC_NOTE) {
        s->alive |= is_progress(s, m);
    }
}

/* False ends the exchange. */
static bool take_text(struct state *s, struct mg_sv text)
{
    struct mg_rpc messages[MG_RPC_BATCH_MAX];
    struct mg_err err = {0};
    int n = 0;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    if (mg_rpc_parse(a, text, messages, &n, &err) < 0)
        return fail(s, err.text);
    s->n_messages += n;
    if (s->n_messages > MG_MCP_EVENTS_MAX)
        return fail(s, "the server sent more messages than one answer may have");
    for (int i = 0; i < n; i++)
        take_message(s, &messages[i]);
    return !s->x->answered;
}

static bool on_event(void *ctx, struct mg_sv name, struct mg_sv data)
{
    (void)name;
    if (mg_sv_trim(data).len == 0)
        return true; /* only its id was meant */
    return take_text(ctx, data);
}

/* ---- bytes ---- */

static enum body_kind kind_of(const struct state *s, const char *p, size_t n)
{
    struct mg_sv type = mg_sv_of(s->x->type), text = mg_sv_trim(mg_sv_n(p, n));
    if (s->x->status < 200 || s->x->status > 299)
        return BODY_REFUSAL;
    if (mg_sv_eq_nocase(type, MG_SV("text/event-stream")))
        return BODY_STREAM;
    if (mg_sv_eq_nocase(type, MG_SV("application/json")))
        return BODY_JSON;
    if (text.len == 0)
        return BODY_UNKNOWN;
    return text.ptr[0] == '{' || text.ptr[0] == '[' ? BODY_JSON : BODY_FOREIGN;
}

static enum mg_net_go take_stream(struct state *s, const char *p, size_t n)
{
    struct mg_err err = {0};
    s->alive = false;
    s->x->stream = true;
    mg_rc rc = mg_sse_feed(&s->sse, p, n, &err);
    memcpy(s->x->event_id, s->sse.id, s->sse.id_len);
    s->x->event_id[s->sse.id_len] = '\0';
    s->x->retry_ms = s->sse.retry_ms;
    if (rc == MG_ETOOBIG)
        (void)fail(s, err.text);
    if (s->x->answered)
        return MG_NET_DRAIN;
    return rc < 0 ? MG_NET_STOP : s->alive ? MG_NET_GO : MG_NET_GO_IDLE;
}

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct state *s = ctx;
    if (s->kind == BODY_UNKNOWN)
        s->kind = kind_of(s, p, n);
    if (s->kind == BODY_STREAM)
        return take_stream(s, p, n);
    if (s->kind == BODY_JSON) /* it counts when it is whole: dripping does not buy time */
        return mg_buf_append(&s->x->message, p, n) == MG_OK ? MG_NET_GO_IDLE : MG_NET_STOP;
    size_t room = MG_MCP_REFUSAL_MAX - s->x->refusal.len;
    (void)mg_buf_append(&s->x->refusal, p, n < room ? n : room);
    return s->x->refusal.len < MG_MCP_REFUSAL_MAX ? MG_NET_GO_IDLE : MG_NET_STOP;
}

/* A plain JSON answer is read when it is whole. */
static void take_whole(struct state *s)
{
    size_t len;
    mg_autofree char *text = mg_buf_steal(&s->x->message, &len);
    (void)take_text(s, mg_sv_n(text, len));
}

static void on_done(void *ctx, const struct mg_net_result *r)
{
    struct state *s = ctx;
    const uint64_t one = 1;
    bool cut_by_us = s->x->malformed || s->x->refusal.len == MG_MCP_REFUSAL_MAX;
    s->x->sent = r->sent;
    s->x->status = r->status;
    s->x->rc = cut_by_us || s->x->answered ? MG_OK : r->rc;
    if (s->x->rc == MG_OK && s->kind == BODY_JSON)
        take_whole(s);
    else if (s->x->rc == MG_OK && s->kind == BODY_FOREIGN)
        (void)fail(s, "the server answered with something that is neither JSON nor an event stream");
    if (s->x->rc < 0)
        mg_rpc_show(s->x->text, sizeof(s->x->text), mg_sv_of(r->text));
    while (write(s->done_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

/* False: the cancel came first. */
static bool wait_done(int done_fd, struct mg_cancel *cancel)
{
    struct pollfd fds[2] = {{.fd = done_fd, .events = POLLIN},
                            {.fd = cancel ? mg_cancel_fd(cancel) : -1, .events = POLLIN}};
    for (;;) {
        uint64_t count;
        int n = poll(fds, 2, -1);
        if (n > 0 && fds[0].revents && read(done_fd, &count, sizeof(count)) > 0)
            return true;
        if (n > 0 && fds[1].revents)
            return false;
    }
}

void mg_mcp_exchange(struct mg_net *net, const struct mg_mcp_exchange_req *req, struct mg_mcp_exchange *ret)
{
    *ret = (struct mg_mcp_exchange){
        .message = MG_BUF_INIT(MG_MCP_ANSWER_MAX), .refusal = MG_BUF_INIT(MG_MCP_REFUSAL_MAX), .retry_ms = -1};
    mg_autofd int done_fd = eventfd(0, EFD_CLOEXEC);
    if (done_fd < 0) {
        ret->rc = MG_EIO;
        (void)snprintf(ret->text, sizeof(ret->text), "no descriptor to wait with");
        return;
    }
    struct state s = {.req = req, .x = ret, .done_fd = done_fd};
    mg_sse_init(&s.sse, MG_MCP_ANSWER_MAX, on_event, &s);
    uint64_t id =
        mg_net_start(net, &(struct mg_net_req){
                              .method = mg_sv_of(req->method),
                              .url = req->url,
                              .headers = req->headers,
                              .n_headers = req->n_headers,
                              .body = req->body,
                              .connect_ms = req->idle_ms < MG_MCP_CONNECT_MS ? req->idle_ms : MG_MCP_CONNECT_MS,
                              .idle_ms = req->idle_ms,
                              .total_ms = req->total_ms,
                              .max_bytes = MG_MCP_ANSWER_MAX,
                              .fresh = req->fresh,
                              .cancel = req->cancel,
                              .on_header = on_header,
                              .on_body = on_body,
                              .on_done = on_done,
                              .ctx = &s,
                          });
    if (!wait_done(done_fd, req->cancel)) {
        mg_net_cancel(net, id);
        (void)wait_done(done_fd, NULL);
    }
    mg_sse_done(&s.sse);
}
