#include "run/server-tools.h"

#include <stdio.h>

#include "crypto/hash.h"
#include "domain/web-tools.h"
#include "json/write.h"
#include "run/tool-config.h"

enum { DEFINITIONS_MAX = 32 * 1024 * 1024 /* bytes of all definitions: an agent's body has that limit */ };

/* ---- declared ---- */

static const char *const TYPES[MG_WEB_TOOLS] = {
    [MG_WEB_FETCH] = "web_fetch_20250910",
    [MG_WEB_SEARCH] = "web_search_20250305",
};

/* Stored toolsets are resolved: each config says both. */
static bool allows(struct mg_arena *a, const struct mg_json *config)
{
    const struct mg_json *enabled = mg_json_get(config, "enabled");
    const struct mg_json *policy = mg_json_get(config, "permission_policy");
    return mg_json_is(enabled, MG_JSON_BOOL) && enabled->boolean &&
           mg_sv_eqz(mg_json_get_str(a, policy, "type"), "always_allow");
}

bool mg_web_tool_on(struct mg_arena *a, const struct mg_json *toolset, enum mg_web_mode mode, struct mg_sv name)
{
    if (mode == MG_WEB_NONE || mg_web_tool_of(name) < 0)
        return false;
    const struct mg_json *config = mg_toolset_config(a, toolset, name);
    return config ? allows(a, config) : mode == MG_WEB_ALL && allows(a, mg_json_get(toolset, "default_config"));
}

static void put_definition(enum mg_web_tool t, const struct mg_json *config, struct mg_jw *w)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", TYPES[t]);
    mg_jw_kstrz(w, "name", mg_web_tool_name(t));
    for (int i = 0; i < MG_WEB_MEMBERS; i++)
        if (mg_given(mg_json_get(config, mg_web_members[i])))
            mg_jw_kraw(w, mg_web_members[i], mg_json_get_raw(config, mg_web_members[i]));
    if (t == MG_WEB_FETCH)
        mg_jw_kraw(w, "citations", MG_SV("{\"enabled\":true}"));
    mg_jw_obj_end(w);
}

struct mg_sv mg_web_definitions(struct mg_arena *a, const struct mg_json *agent, enum mg_web_mode mode,
                                struct mg_sv tools, bool *ret_fetch)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(DEFINITIONS_MAX);
    struct mg_jw w = mg_jw_to(&b);
    const struct mg_json *list = mg_json_get(agent, "tools");
    *ret_fetch = false;
    mg_jw_arr(&w);
    if (mg_json_inside(tools).len)
        mg_jw_raw(&w, mg_json_inside(tools));
    for (const struct mg_json *t = list ? list->child : NULL; t; t = t->next) {
        if (!mg_sv_eqz(mg_json_get_str(a, t, "type"), "agent_toolset_20260401"))
            continue;
        for (int i = 0; i < MG_WEB_TOOLS; i++) {
            struct mg_sv name = mg_sv_of(mg_web_tool_name((enum mg_web_tool)i));
            bool on = mg_web_tool_on(a, t, mode, name);
            if (on)
                put_definition((enum mg_web_tool)i, mg_toolset_config(a, t, name), &w);
            *ret_fetch |= on && i == MG_WEB_FETCH;
        }
    }
    mg_jw_arr_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

/* ---- shown ---- */

static const struct mg_json *parsed(struct mg_arena *a, const struct mg_model_block *b)
{
    struct mg_json *v = NULL;
    return mg_json_parse(a, b->raw, &mg_json_raw_limits, &v, NULL) == MG_OK ? v : NULL;
}

static bool is_use(struct mg_arena *a, const struct mg_json *v)
{
    return mg_sv_eqz(mg_json_get_str(a, v, "type"), "server_tool_use");
}

static bool is_result(struct mg_arena *a, const struct mg_json *v)
{
    return mg_sv_ends(mg_json_get_str(a, v, "type"), "_tool_result") && mg_json_get(v, "tool_use_id");
}

/* A result may come in the answer after the one that holds its call, so that the event's id follows from the endpoint's and from the place of the call
 * in the transcript. */
static struct mg_id event_id(const struct mg_step *s, int64_t place, struct mg_sv model_id)
{
    char hex[MG_SHA256_HEX];
    struct mg_id id;
    mg_sha256_hex(mg_arena_printf(s->arena, "%s %s %lld %.*s", s->st.session.s, s->st.thread.s, (long long)place,
                                  MG_SV_ARG(model_id)),
                  hex);
    (void)snprintf(id.s, sizeof(id.s), "sevt_%.26s", hex);
    return id;
}

static int64_t place_now(const struct mg_step *s)
{
    return s->st.transcript_len + s->n_entries;
}

static bool used_here(struct mg_arena *a, const struct mg_model_result *res, int before, struct mg_sv model_id)
{
    for (int i = 0; i < before; i++) {
        const struct mg_json *v = res->blocks[i].kind == MG_BLOCK_OTHER ? parsed(a, &res->blocks[i]) : NULL;
        if (v && is_use(a, v) && mg_sv_eq(mg_json_get_str(a, v, "id"), model_id))
            return true;
    }
    return false;
}

bool mg_server_tool_open(struct mg_arena *a, const struct mg_model_result *res, int block)
{
    const struct mg_json *use = res->blocks[block].kind == MG_BLOCK_OTHER ? parsed(a, &res->blocks[block]) : NULL;
    if (!use || !is_use(a, use))
        return false;
    for (int i = block + 1; i < res->n_blocks; i++) {
        const struct mg_json *v = res->blocks[i].kind == MG_BLOCK_OTHER ? parsed(a, &res->blocks[i]) : NULL;
        if (v && is_result(a, v) && mg_sv_eq(mg_json_get_str(a, v, "tool_use_id"), mg_json_get_str(a, use, "id")))
            return false;
    }
    return true;
}

static void use_event(struct mg_step *s, const struct mg_json *v)
{
    mg_auto(buf) struct mg_buf m = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    struct mg_id id = event_id(s, place_now(s), mg_json_get_str(s->arena, v, "id"));
    bool whole = mg_json_is(mg_json_get(v, "input"), MG_JSON_OBJECT);
    (void)mg_buf_str(&m, "\"name\":\"");
    mg_json_escape(&m, mg_json_get_str(s->arena, v, "name"));
    (void)mg_buf_str(&m, "\",\"input\":");
    (void)mg_buf_sv(&m, whole ? mg_json_get_raw(v, "input") : MG_SV("{}"));
    (void)mg_buf_str(&m, ",\"evaluated_permission\":\"allow\",\"evaluation\":{\"type\":\"always_allow\"}");
    mg_step_event_id(s, &id, MG_EV_AGENT_TOOL_USE, mg_arena_sv(s->arena, mg_buf_view(&m)), true);
}

static void put_text(struct mg_jw *w, struct mg_sv text)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "text");
    mg_jw_kstr(w, "text", text.len ? text : MG_SV("(no output)"));
    mg_jw_obj_end(w);
}

/* A hit as the contract's search_result. What it says is encrypted for the endpoint; its title is what can be shown. */
static void put_hit(struct mg_arena *a, const struct mg_json *v, struct mg_jw *w)
{
    struct mg_sv title = mg_json_get_str(a, v, "title"), age = mg_json_get_str(a, v, "page_age");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "search_result");
    mg_jw_kstr(w, "source", mg_json_get_str(a, v, "url"));
    mg_jw_kstr(w, "title", title);
    mg_jw_key(w, "content");
    mg_jw_arr(w);
    put_text(w, age.len ? mg_arena_printf(a, "%.*s (%.*s)", MG_SV_ARG(title), MG_SV_ARG(age)) : title);
    mg_jw_arr_end(w);
    mg_jw_key(w, "citations");
    mg_jw_obj(w);
    mg_jw_kbool(w, "enabled", false);
    mg_jw_obj_end(w);
    mg_jw_obj_end(w);
}

/* A fetched page: the document that the endpoint read. */
static void put_page(struct mg_arena *a, const struct mg_json *v, struct mg_jw *w)
{
    const struct mg_json *doc = mg_json_get(v, "content"), *source = mg_json_get(doc, "source");
    struct mg_sv title = mg_json_get_str(a, doc, "title");
    put_text(w, mg_json_get_str(a, v, "url"));
    if (!mg_json_is(source, MG_JSON_OBJECT))
        return;
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "document");
    mg_jw_kraw(w, "source", source->raw);
    if (title.len)
        mg_jw_kstr(w, "title", title);
    mg_jw_obj_end(w);
}

static void put_result(struct mg_arena *a, const struct mg_json *v, struct mg_jw *w)
{
    struct mg_sv type = mg_json_get_str(a, v, "type");
    if (mg_sv_eqz(type, "web_search_result"))
        put_hit(a, v, w);
    else if (mg_sv_eqz(type, "web_fetch_result"))
        put_page(a, v, w);
    else if (mg_sv_ends(type, "_error"))
        put_text(w, mg_json_get_str(a, v, "error_code"));
    else
        put_text(w, type); /* of a newer endpoint: its content may be for the model alone */
}

/* Whether the call of a result has an event: of this answer, or of the one before. */
static mg_rc find_use(struct mg_step *s, const struct mg_model_result *res, int block, struct mg_sv model_id,
                      struct mg_id *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_event_seen e;
    *ret = event_id(s, place_now(s), model_id);
    if (used_here(s->arena, res, block, model_id))
        return MG_OK;
    *ret = event_id(s, s->st.transcript_len, model_id);
    return mg_event_get(s->t, &s->st.session, ret, &r, &e, err);
}

static mg_rc result_event(struct mg_step *s, const struct mg_model_result *res, int block, const struct mg_json *v,
                          struct mg_err *err)
{
    mg_auto(buf) struct mg_buf m = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    const struct mg_json *content = mg_json_get(v, "content");
    struct mg_jw w = mg_jw_to(&m);
    struct mg_id use;
    mg_rc rc = find_use(s, res, block, mg_json_get_str(s->arena, v, "tool_use_id"), &use, err);
    if (rc == MG_ENOTFOUND)
        return MG_OK; /* nothing that clients saw is answered by it */
    if (rc < 0)
        return rc;
    bool failed =
        mg_json_is(content, MG_JSON_OBJECT) && mg_sv_ends(mg_json_get_str(s->arena, content, "type"), "_error");
    bool list = content && content->type == MG_JSON_ARRAY;
    mg_jw_arr(&w);
    if (content && content->type == MG_JSON_OBJECT)
        put_result(s->arena, content, &w);
    else if (!list || !content->child)
        put_text(&w, MG_SV("(no results)"));
    for (const struct mg_json *c = list ? content->child : NULL; c; c = c->next)
        put_result(s->arena, c, &w);
    mg_jw_arr_end(&w);
    mg_step_event(s, MG_EV_AGENT_TOOL_RESULT,
                  mg_arena_printf(s->arena, "\"tool_use_id\":\"%s\",\"content\":%.*s,\"is_error\":%s", use.s,
                                  MG_SV_ARG(mg_buf_view(&m)), failed ? "true" : "false"),
                  true);
    return MG_OK;
}

mg_rc mg_server_tool_event(struct mg_step *s, const struct mg_model_result *res, int block, struct mg_err *err)
{
    const struct mg_json *v = parsed(s->arena, &res->blocks[block]);
    if (v && is_use(s->arena, v))
        use_event(s, v);
    else if (v && is_result(s->arena, v))
        return result_event(s, res, block, v, err);
    return MG_OK;
}
