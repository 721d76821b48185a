#include "worker/event.h"

#include "base/mem.h"

static const struct {
    const char *type;
    enum mg_event_kind kind;
    const char *id; /* the member that names the call */
} KINDS[] = {
    {"agent.tool_use", MG_EVENT_CALL, "id"},
    {"agent.custom_tool_use", MG_EVENT_CALL, "id"},
    {"user.tool_result", MG_EVENT_RESULT, "tool_use_id"},
    {"user.custom_tool_result", MG_EVENT_RESULT, "custom_tool_use_id"},
    {"user.tool_confirmation", MG_EVENT_CONFIRMATION, "tool_use_id"},
    {"session.thread_status_terminated", MG_EVENT_THREAD_TERMINATED, NULL},
    {"session.status_idle", MG_EVENT_IDLE, NULL},
    {"session.status_terminated", MG_EVENT_OVER, NULL},
    {"session.deleted", MG_EVENT_OVER, NULL},
};

static enum mg_event_permission permission_of(struct mg_arena *a, const struct mg_json *v)
{
    const struct mg_json *p = mg_json_get(v, "evaluated_permission");
    if (!p || mg_json_is(p, MG_JSON_NULL))
        return MG_PERMIT_ALLOW;
    struct mg_sv s = mg_json_get_str(a, v, "evaluated_permission");
    return mg_sv_eqz(s, "allow") ? MG_PERMIT_ALLOW : mg_sv_eqz(s, "deny") ? MG_PERMIT_DENY : MG_PERMIT_ASK;
}

bool mg_event_read(struct mg_arena *a, const struct mg_json *v, struct mg_event *ret)
{
    *ret = (struct mg_event){.kind = MG_EVENT_OTHER};
    if (!mg_json_is(mg_json_get(v, "type"), MG_JSON_STRING))
        return false;
    struct mg_sv type = mg_json_get_str(a, v, "type");
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        if (!mg_sv_eqz(type, KINDS[i].type))
            continue;
        ret->kind = KINDS[i].kind;
        if (KINDS[i].id)
            ret->id = mg_json_get_str(a, v, KINDS[i].id);
    }
    ret->thread = mg_json_get_str(a, v, "session_thread_id");
    if (ret->kind == MG_EVENT_CALL) {
        ret->name = mg_json_get_str(a, v, "name");
        ret->input = mg_json_get_raw(v, "input");
        ret->custom = mg_sv_eqz(type, "agent.custom_tool_use");
        ret->permission = permission_of(a, v);
    }
    ret->allow = ret->kind == MG_EVENT_CONFIRMATION && mg_sv_eqz(mg_json_get_str(a, v, "result"), "allow");
    ret->ends_turn = ret->kind == MG_EVENT_IDLE &&
                     !mg_sv_eqz(mg_json_get_str(a, mg_json_get(v, "stop_reason"), "type"), "requires_action");
    if (ret->id.len == 0 &&
        (ret->kind == MG_EVENT_CALL || ret->kind == MG_EVENT_RESULT || ret->kind == MG_EVENT_CONFIRMATION))
        ret->kind = MG_EVENT_OTHER; /* about nothing that can be named */
    return true;
}

struct mg_call *mg_call_new(const struct mg_event *e)
{
    struct mg_call *c = mg_xcalloc(1, sizeof(*c));
    struct mg_sv input = e->input.len ? e->input : MG_SV("{}");
    mg_list_init(&c->link);
    c->id = mg_xstrndup(e->id.ptr, e->id.len);
    c->name = mg_xstrndup(e->name.ptr, e->name.len);
    c->thread = mg_xstrndup(e->thread.ptr, e->thread.len);
    c->input = mg_xstrndup(input.ptr, input.len);
    c->input_len = input.len;
    c->custom = e->custom;
    c->permission = e->permission;
    return c;
}

void mg_call_free(struct mg_call *c)
{
    if (!c)
        return;
    mg_list_del(&c->link);
    free(c->id);
    free(c->name);
    free(c->thread);
    free(c->input);
    free(c);
}
