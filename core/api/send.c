/* Sending events: POST /v1/sessions/{}/events, and the same over a WebSocket. */
#include "api/api.h"
#include "crypto/hash.h"
#include "domain/check.h"
#include "domain/event.h"
#include "service/admission.h"
#include "store/event-log.h"

enum {
    KEY_MAX = 255 /* bytes of an idempotency key */,
    ID_TAIL = 26 /* characters behind the prefix, as in ids of ours */
};

static mg_rc parse_send(struct mg_http_req *req, struct mg_sv text, struct mg_draft **ret, int *ret_n,
                        struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "events", .type = MG_FT_ARRAY, .flags = MG_FF_REQUIRED, .min = 1},
        {.name = NULL},
    };
    const struct mg_json *body, *m[1];
    mg_rc rc = mg_body_parse(req->arena, text, &body, err);
    if (rc >= 0)
        rc = mg_check_object(req->arena, body, "", RULES, m, err);
    return rc < 0 ? rc : mg_drafts_parse(req->arena, m[0], "events", false, ret, ret_n, err);
}

mg_rc mg_post_events(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_draft *drafts;
    int n;
    mg_rc rc = parse_send(req, req->body, &drafts, &n, err);
    if (rc < 0)
        return rc;
    (void)mg_buf_str(&res->body, "{\"data\":");
    rc = mg_admit(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), req->param[0], drafts, n, &res->body,
                  NULL, err);
    return rc < 0 ? rc : mg_buf_char(&res->body, '}');
}

/* ---- WebSocket ---- */

/* The ids that the events of this key get: the same again at a repeat, on whatever node. */
static mg_rc derive_ids(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv key, struct mg_draft *d, int n,
                        struct mg_err *err)
{
    if (key.len > KEY_MAX)
        return mg_err_set(err, MG_EINVAL, "idempotency_key: at most %d bytes are allowed", KEY_MAX);
    for (int i = 0; i < n; i++) {
        char hex[MG_SHA256_HEX];
        mg_sha256_hex(
            mg_arena_printf(req->arena, "mango-send-1\n%.*s\n%d\n%.*s", MG_SV_ARG(session_id), i, MG_SV_ARG(key)), hex);
        hex[ID_TAIL] = '\0';
        struct mg_sv id = mg_arena_printf(req->arena, "sevt_%s", hex);
        (void)mg_id_from(id, &d[i].id);
    }
    return MG_OK;
}

/* Whether the send with this key was accepted before. */
static mg_rc sent_before(struct mg_http_req *req, struct mg_sv session_id, const struct mg_draft *d, bool *ret,
                         struct mg_err *err)
{
    int64_t seq;
    mg_rc rc = mg_event_seq_of(req->pg, session_id, mg_id_sv(&d[0].id), &seq, err);
    *ret = rc == MG_OK;
    return rc == MG_ENOTFOUND ? MG_OK : rc;
}

static struct mg_sv id_list(struct mg_arena *a, const struct mg_id *ids, int n)
{
    struct mg_sv all = MG_SV("[");
    for (int i = 0; i < n; i++)
        all = mg_arena_printf(a, "%.*s%s\"%s\"", MG_SV_ARG(all), i ? "," : "", ids[i].s);
    return mg_arena_printf(a, "%.*s]", MG_SV_ARG(all));
}

mg_rc mg_ws_send(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv body, struct mg_sv idempotency_key,
                 struct mg_sv *ret_ids, struct mg_err *err)
{
    struct mg_draft *drafts = NULL;
    struct mg_id ids[MG_EVENTS_PER_POST_MAX];
    int n = 0;
    int64_t head;
    bool again = false;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(2 * MG_HTTP_BODY_MAX);
    mg_rc rc = parse_send(req, body, &drafts, &n, err);
    if (rc >= 0 && idempotency_key.len) {
        rc = mg_session_last_seq(req->pg, session_id, mg_req_workspace(req), &head, err);
        if (rc >= 0)
            rc = derive_ids(req, session_id, idempotency_key, drafts, n, err);
        if (rc >= 0)
            rc = sent_before(req, session_id, drafts, &again, err);
    }
    if (rc >= 0 && !again)
        rc = mg_admit(mg_req_app(req)->engine, req->pg, req->arena, mg_req_who(req), session_id, drafts, n, &out, ids,
                      err);
    if (rc == MG_ECONFLICT && idempotency_key.len) { /* perhaps a twin that was sent at the same time has won */
        mg_rc twin = sent_before(req, session_id, drafts, &again, NULL);
        rc = twin == MG_OK && again ? MG_OK : rc;
    }
    if (rc < 0)
        return rc;
    for (int i = 0; again && i < n; i++)
        ids[i] = drafts[i].id;
    *ret_ids = id_list(req->arena, ids, n);
    return MG_OK;
}
