/* Events on a WebSocket: its subscriptions, served in turn, as far as their credit goes. */
#include "base/mem.h"
#include "http/stream.h"
#include "http/ws.h"

enum { TURN_EVENTS = 16 /* of one subscription before the next has its turn */ };

/* ---- subscriptions ---- */

void mg_ws_sub_turn(struct mg_ws_sub *s)
{
    if (mg_list_empty(&s->turn))
        mg_list_add_tail(&s->ws->turns, &s->turn);
    mg_conn_ready(s->ws->conn);
}

static void sub_ready(void *ctx)
{
    mg_ws_sub_turn(ctx);
}

struct mg_ws_sub *mg_ws_sub_new(struct mg_ws *ws, int64_t number, struct mg_sv types)
{
    struct mg_ws_sub *s = mg_xcalloc(1, sizeof(*s));
    s->ws = ws;
    s->number = number;
    s->types = types.len ? mg_xstrndup(types.ptr, types.len) : NULL;
    mg_list_init(&s->turn);
    mg_list_init(&s->link);
    mg_list_add_tail(&ws->subs, &s->link);
    ws->n_subs++;
    mg_metric_add(&ws->conn->http->metrics.subscriptions, 1);
    return s;
}

void mg_ws_sub_free(struct mg_ws_sub *s)
{
    mg_sub_free(s->sub);
    mg_list_del(&s->link);
    mg_list_del(&s->turn);
    s->ws->n_subs--;
    mg_metric_sub(&s->ws->conn->http->metrics.subscriptions, 1);
    free(s->types);
    free(s);
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
    s->thread = spec->thread;
    s->sub = mg_sub_new(ws->conn->http->opts.hub, &o);
    mg_ws_sub_turn(s);
}

struct mg_ws_sub *mg_ws_sub_find(struct mg_ws *ws, int64_t number)
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
void mg_ws_sub_end(struct mg_ws *ws, struct mg_ws_sub *s, enum mg_sub_end end, struct mg_buf *b)
{
    bool revoked = end == MG_SUB_REVOKED || end == MG_SUB_LEASE_LOST;
    if (ws->mux) {
        mg_ws_note(b, s, "end", end_reason(end));
        mg_ws_sub_free(s);
        if (revoked && ws->n_subs == 0)
            mg_ws_close(ws, MG_WS_CLOSE_POLICY, "the credential is no longer valid");
        return;
    }
    mg_ws_sub_free(s);
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
            mg_ws_note(b, s, "live", NULL);
        }
        if (last)
            end = MG_SUB_DELETED;
        if (end) {
            mg_ws_sub_end(ws, s, end, b);
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
