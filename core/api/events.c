/* /v1/sessions/{}/events: pages and streams. Sending is in send.c. */
#include "api/api.h"
#include "domain/event.h"
#include "http/stream.h"
#include "run/work.h"
#include "store/event-list.h"

static const struct mg_list_kind EVENTS = {.name = "events", .limit = 100, .limit_max = 1000, .ascending = true};

static const char TYPES_HINT[] =
    "the event types of the API, such as user.message, agent.message, agent.tool_use or session.status_idle";

/* ---- pages ---- */

static struct mg_sv filter_text(struct mg_arena *a, struct mg_sv session_id, struct mg_sv thread,
                                const struct mg_sv *types, int n)
{
    struct mg_sv all =
        thread.len ? mg_arena_printf(a, "%.*s/%.*s", MG_SV_ARG(session_id), MG_SV_ARG(thread)) : session_id;
    for (int i = 0; i < n; i++)
        all = mg_arena_printf(a, "%.*s|%.*s", MG_SV_ARG(all), MG_SV_ARG(types[i]));
    return all;
}

/* Stored text goes out as it is, with its processed_at spliced in: nothing is parsed on this path. */
static void write_events(struct mg_buf *out, const struct mg_event_seen *rows, int n)
{
    (void)mg_buf_str(out, "{\"data\":[");
    for (int i = 0; i < n; i++) {
        if (i)
            (void)mg_buf_char(out, ',');
        (void)mg_event_render(out, rows[i].body, rows[i].processed_us);
    }
    (void)mg_buf_str(out, "],\"next_page\":");
}

mg_rc mg_events_page(struct mg_http_req *req, struct mg_http_res *res, struct mg_sv session_id, struct mg_sv thread,
                     struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_event_seen *rows;
    struct mg_sv *types = NULL, scope;
    int n_types = 0, n;
    bool more;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_param_words(req, "types", mg_event_type_is_contract, TYPES_HINT, &types, &n_types, err);
    if (rc >= 0)
        rc = mg_param_list(req, &EVENTS, filter_text(req->arena, session_id, thread, types, n_types), &q, &scope, err);
    if (rc >= 0)
        rc = mg_events_list(req->arena, req->pg, session_id, thread, &q, types, n_types, &r, &rows, &n, &more, err);
    if (rc < 0)
        return rc;
    write_events(&res->body, rows, n);
    if (!more)
        return mg_buf_str(&res->body, "null}");
    const struct mg_cursor next = {.pos = rows[n - 1].seq};
    struct mg_sv token = mg_cursor_format(req->arena, scope, &next);
    return mg_buf_printf(&res->body, "\"%.*s\"}", MG_SV_ARG(token));
}

mg_rc mg_get_events(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    return mg_events_page(req, res, req->param[0], MG_SV(""), err);
}

/* ---- streams ---- */

/* Never a silent gap: a place that cannot be honoured is an error before the stream begins. */
static mg_rc find_start(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv after, int64_t head,
                        int64_t *ret, struct mg_err *err)
{
    struct mg_id id;
    *ret = head;
    if (after.len == 0)
        return MG_OK;
    *ret = 0;
    if (mg_sv_eqz(after, "start"))
        return MG_OK;
    mg_rc rc = mg_id_from(after, &id) ? mg_event_seq_of(req->pg, session_id, after, ret, err) : MG_ENOTFOUND;
    if (rc != MG_ENOTFOUND)
        return rc;
    return mg_err_set(
        err, MG_EINVAL,
        "after (or Last-Event-ID): '%.*s' is not an event of this session; pass the id of the last event that you have "
        "seen, \"start\" for the whole history, or nothing for new events only",
        (int)(after.len < MG_ID_MAX ? after.len : MG_ID_MAX), after.ptr);
}

mg_rc mg_stream_resolve(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv after,
                        struct mg_stream_spec *ret, struct mg_err *err)
{
    int64_t head = 0;
    struct mg_sv thread = MG_SV("");
    mg_rc rc = mg_session_last_seq(req->pg, session_id, mg_req_workspace(req), &head, err);
    if (rc >= 0 && ret->thread.s[0])
        rc = mg_thread_of(req, session_id, mg_arena_sv(req->arena, mg_id_sv(&ret->thread)), &thread, err);
    if (rc >= 0)
        rc = find_start(req, session_id, after, head, &ret->after_seq, err);
    if (rc < 0)
        return rc;
    ret->thread = (struct mg_id){0};
    (void)mg_id_from(thread, &ret->thread);
    (void)mg_id_from(session_id, &ret->session);
    ret->key_id = mg_req_who(req)->key;
    if (mg_req_who(req)->kind == MG_BY_ITEM_TOKEN)
        mg_work_stream_opened(mg_req_app(req)->engine);
    return MG_OK;
}

static bool is_delta(struct mg_sv s)
{
    return mg_sv_eqz(s, "agent.message") || mg_sv_eqz(s, "agent.thinking");
}

static mg_rc parse_deltas(struct mg_http_req *req, struct mg_stream_spec *s, struct mg_err *err)
{
    struct mg_sv *words;
    int n;
    mg_rc rc = mg_param_words(req, "event_deltas", is_delta, "agent.message, agent.thinking", &words, &n, err);
    for (int i = 0; rc >= 0 && i < n; i++) {
        s->deltas_message |= mg_sv_eqz(words[i], "agent.message");
        s->deltas_thinking |= mg_sv_eqz(words[i], "agent.thinking");
    }
    return rc;
}

static mg_rc parse_types(struct mg_http_req *req, struct mg_stream_spec *s, struct mg_err *err)
{
    struct mg_sv *words;
    int n;
    mg_rc rc = mg_param_words(req, "types", mg_event_type_is_contract, TYPES_HINT, &words, &n, err);
    for (int i = 0; rc >= 0 && i < n; i++)
        s->types = mg_arena_printf(req->arena, "%.*s%s%.*s", MG_SV_ARG(s->types), i ? "," : "", MG_SV_ARG(words[i]));
    return rc;
}

mg_rc mg_events_open(struct mg_http_req *req, struct mg_http_res *res, struct mg_sv session_id, struct mg_sv thread,
                     struct mg_err *err)
{
    struct mg_stream_spec *s = mg_arena_new_of(req->arena, struct mg_stream_spec);
    struct mg_sv after;
    *s = (struct mg_stream_spec){.types = MG_SV("")};
    (void)mg_id_from(thread, &s->thread);
    mg_rc rc = mg_param_one(req, "after", &after, err);
    if (rc >= 0)
        rc = parse_deltas(req, s, err);
    if (rc >= 0)
        rc = parse_types(req, s, err);
    /* A browser that reconnects repeats its URL: the header knows better. */
    if (rc >= 0)
        rc = mg_stream_resolve(req, session_id, req->last_event_id.len ? req->last_event_id : after, s, err);
    if (rc >= 0)
        res->stream = s;
    return rc;
}

mg_rc mg_get_event_stream(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    return mg_events_open(req, res, req->param[0], MG_SV(""), err);
}
