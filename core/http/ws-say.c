/* What the server says on a WebSocket of itself. mango.v1:
 *
 *   {"op":"hello","server":"mango","version":..,"node":..,"ping_interval_ms":..,"limits":{..}}
 *   {"op":"event","sub":N,"event":{..}}   {"op":"delta","sub":N,"event":{..}}
 *   {"op":"live","sub":N}                 {"op":"end","sub":N,"reason":".."}
 *   {"op":"ack","ref":R,"event_ids":[..]} {"op":"pong","ref":R}
 *   {"op":"error","ref":R,"sub":N,"error":{"type":..,"message":..}}
 *   {"op":"bye","reconnect_in_ms":N}
 *
 * The one-session form has {"type":"mango.ack",..} and {"type":"mango.error",..}. */
#include "base/rng.h"
#include "http/response.h"
#include "http/ws-command.h"
#include "http/ws.h"
#include "json/write.h"

enum {
    ANSWER_MAX = 64 * 1024, /* bytes of one message of ours that is no event */
    BYE_SPREAD_MS = 5000,   /* clients come back spread over that time */
};

void mg_ws_say_error(struct mg_ws *ws, struct mg_sv ref, const int64_t *sub, const struct mg_err *err)
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

void mg_ws_say_ack(struct mg_ws *ws, struct mg_sv ref, struct mg_sv ids)
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

void mg_ws_say_pong(struct mg_ws *ws, struct mg_sv ref)
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
void mg_ws_note(struct mg_buf *out, const struct mg_ws_sub *s, const char *op, const char *reason)
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
