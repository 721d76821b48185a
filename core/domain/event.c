#include "domain/event.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "domain/check.h"
#include "domain/content-file.h"
#include "json/write.h"

static const struct {
    const char *name;
    bool input;
} TYPES[MG_EV__COUNT] = {
    [MG_EV_USER_MESSAGE] = {"user.message", true},
    [MG_EV_USER_INTERRUPT] = {"user.interrupt", true},
    [MG_EV_USER_TOOL_CONFIRMATION] = {"user.tool_confirmation", true},
    [MG_EV_USER_CUSTOM_TOOL_RESULT] = {"user.custom_tool_result", true},
    [MG_EV_USER_TOOL_RESULT] = {"user.tool_result", true},
    [MG_EV_USER_DEFINE_OUTCOME] = {"user.define_outcome", true},
    [MG_EV_SYSTEM_MESSAGE] = {"system.message", true},
    [MG_EV_AGENT_MESSAGE] = {"agent.message", false},
    [MG_EV_AGENT_THINKING] = {"agent.thinking", false},
    [MG_EV_AGENT_TOOL_USE] = {"agent.tool_use", false},
    [MG_EV_AGENT_TOOL_RESULT] = {"agent.tool_result", false},
    [MG_EV_AGENT_CUSTOM_TOOL_USE] = {"agent.custom_tool_use", false},
    [MG_EV_AGENT_MCP_TOOL_USE] = {"agent.mcp_tool_use", false},
    [MG_EV_AGENT_MCP_TOOL_RESULT] = {"agent.mcp_tool_result", false},
    [MG_EV_AGENT_CONTEXT_COMPACTED] = {"agent.thread_context_compacted", false},
    [MG_EV_STATUS_RUNNING] = {"session.status_running", false},
    [MG_EV_STATUS_RESCHEDULED] = {"session.status_rescheduled", false},
    [MG_EV_STATUS_IDLE] = {"session.status_idle", false},
    [MG_EV_STATUS_TERMINATED] = {"session.status_terminated", false},
    [MG_EV_SESSION_ERROR] = {"session.error", false},
    [MG_EV_SESSION_UPDATED] = {"session.updated", false},
    [MG_EV_SESSION_USAGE] = {"session.usage", false},
    [MG_EV_SESSION_DELETED] = {"session.deleted", false},
    [MG_EV_MODEL_REQUEST_START] = {"span.model_request_start", false},
    [MG_EV_MODEL_REQUEST_END] = {"span.model_request_end", false},
    [MG_EV_THREAD_MESSAGE_SENT] = {"agent.thread_message_sent", false},
    [MG_EV_THREAD_MESSAGE_RECEIVED] = {"agent.thread_message_received", false},
    [MG_EV_THREAD_CREATED] = {"session.thread_created", false},
    [MG_EV_THREAD_RUNNING] = {"session.thread_status_running", false},
    [MG_EV_THREAD_RESCHEDULED] = {"session.thread_status_rescheduled", false},
    [MG_EV_THREAD_IDLE] = {"session.thread_status_idle", false},
    [MG_EV_THREAD_TERMINATED] = {"session.thread_status_terminated", false},
    [MG_EV_OUTCOME_START] = {"span.outcome_evaluation_start", false},
    [MG_EV_OUTCOME_ONGOING] = {"span.outcome_evaluation_ongoing", false},
    [MG_EV_OUTCOME_END] = {"span.outcome_evaluation_end", false},
};

/* Contract types that this server does not write yet. */
static const char *const OTHER_TYPES[] = {
    "workflow_run.created", "workflow_run.status_running", "workflow_run.status_idle", "workflow_run.status_ended",
    "workflow_run.error",   "workflow_run.phase_started",  "workflow_run.phase_ended", NULL,
};

const char *mg_event_type_name(enum mg_event_type t)
{
    return TYPES[t].name;
}

bool mg_event_type_from(struct mg_sv name, enum mg_event_type *ret)
{
    for (int i = 0; i < MG_EV__COUNT; i++)
        if (mg_sv_eqz(name, TYPES[i].name)) {
            *ret = (enum mg_event_type)i;
            return true;
        }
    return false;
}

bool mg_event_type_is_contract(struct mg_sv name)
{
    enum mg_event_type t;
    return mg_event_type_from(name, &t) || mg_word_index(OTHER_TYPES, name) >= 0;
}

/* ---- drafts ---- */

enum {
    INITIAL_MAX = 50,                 /* initial_events of a session: the contract's */
    DENY_MESSAGE_MAX = 10000,         /* characters: it goes to the model as a tool result */
    RUBRIC_MAX = MG_RUBRIC_CHARS_MAX, /* characters of a rubric or a description: semantics OU4 */
    ITERATIONS = 3,                   /* cycles of an outcome that names none, and the most: the contract's */
    ITERATIONS_MAX = 20,
};

#define RESULT_BLOCKS (MG_CONTENT_TEXT | MG_CONTENT_IMAGE | MG_CONTENT_DOCUMENT | MG_CONTENT_SEARCH_RESULT)
#define RULE_TYPE                            \
    {                                        \
        .name = "type", .type = MG_FT_STRING \
    }
#define RULE_THREAD                                                        \
    {                                                                      \
        .name = "session_thread_id", .type = MG_FT_ID, .flags = MG_FF_NULL \
    }
#define RULE_END     \
    {                \
        .name = NULL \
    }

static const struct mg_field_rule MESSAGE_RULES[] = {
    RULE_TYPE,
    {.name = "content", .type = MG_FT_ARRAY, .flags = MG_FF_REQUIRED, .min = 1},
    RULE_END,
};
static const struct mg_field_rule INTERRUPT_RULES[] = {RULE_TYPE, RULE_THREAD, RULE_END};
static const char *const VERDICTS[] = {"allow", "deny", NULL};
static const struct mg_field_rule CONFIRMATION_RULES[] = {
    RULE_TYPE,
    {.name = "tool_use_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
    {.name = "result", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = VERDICTS},
    {.name = "deny_message", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT, .max = DENY_MESSAGE_MAX},
    RULE_THREAD,
    RULE_END,
};
static const struct mg_field_rule TOOL_RESULT_RULES[] = {
    RULE_TYPE,
    {.name = "tool_use_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
    {.name = "content", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    {.name = "is_error", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
    RULE_THREAD,
    RULE_END,
};
static const struct mg_field_rule CUSTOM_RESULT_RULES[] = {
    RULE_TYPE,
    {.name = "custom_tool_use_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
    {.name = "content", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    {.name = "is_error", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
    RULE_THREAD,
    RULE_END,
};

enum { O_TYPE, O_DESCRIPTION, O_RUBRIC, O_ITERATIONS, N_OUTCOME };
static const struct mg_field_rule OUTCOME_RULES[] = {
    [O_TYPE] = RULE_TYPE,
    [O_DESCRIPTION] = {.name = "description",
                       .type = MG_FT_STRING,
                       .flags = MG_FF_REQUIRED | MG_FF_TEXT,
                       .min = 1,
                       .max = RUBRIC_MAX},
    [O_RUBRIC] = {.name = "rubric", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
    [O_ITERATIONS] =
        {.name = "max_iterations", .type = MG_FT_INT, .flags = MG_FF_NULL, .min = 1, .max = ITERATIONS_MAX},
    RULE_END,
};
enum { R_TYPE, R_CONTENT, N_RUBRIC };
static const char *const RUBRIC_TYPES[] = {"text", "file", NULL};
static const struct mg_field_rule RUBRIC_RULES[] = {
    [R_TYPE] = {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = RUBRIC_TYPES},
    [R_CONTENT] =
        {.name = "content", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT, .min = 1, .max = RUBRIC_MAX},
    RULE_END,
};
static const struct mg_field_rule RUBRIC_FILE_RULES[] = {
    [R_TYPE] = {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
    [R_CONTENT] = {.name = "file_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
    RULE_END,
};

static const struct mg_field_rule *rules_of(enum mg_event_type t)
{
    if (t == MG_EV_USER_INTERRUPT)
        return INTERRUPT_RULES;
    if (t == MG_EV_USER_TOOL_CONFIRMATION)
        return CONFIRMATION_RULES;
    if (t == MG_EV_USER_TOOL_RESULT)
        return TOOL_RESULT_RULES;
    if (t == MG_EV_USER_CUSTOM_TOOL_RESULT)
        return CUSTOM_RESULT_RULES;
    if (t == MG_EV_USER_DEFINE_OUTCOME)
        return OUTCOME_RULES;
    return MESSAGE_RULES;
}

static unsigned blocks_of(enum mg_event_type t)
{
    if (t == MG_EV_USER_MESSAGE)
        return MG_CONTENT_TEXT | MG_CONTENT_IMAGE | MG_CONTENT_DOCUMENT | MG_CONTENT_SPOKEN;
    if (t == MG_EV_SYSTEM_MESSAGE)
        return MG_CONTENT_TEXT | MG_CONTENT_SPOKEN;
    return RESULT_BLOCKS;
}

/* The object's members without its type, as the client wrote their values. The names have passed the table. */
static struct mg_sv members_of(struct mg_arena *a, const struct mg_json *obj)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(obj->raw.len + 16);
    for (const struct mg_json *m = obj->child; m; m = m->next) {
        if (mg_sv_eqz(m->key, "type"))
            continue;
        mg_buf_printf(&b, "%s\"%.*s\":", b.len ? "," : "", MG_SV_ARG(m->key));
        mg_buf_sv(&b, m->raw);
    }
    return mg_arena_sv(a, mg_buf_view(&b));
}

static struct mg_sv text_of(struct mg_arena *a, const struct mg_json *obj, const char *name)
{
    const struct mg_json *v = mg_json_get(obj, name);
    return mg_json_is(v, MG_JSON_STRING) ? mg_json_str(a, v) : MG_SV("");
}

static mg_rc fill(struct mg_arena *a, const struct mg_json *obj, const char *place, struct mg_draft *d,
                  struct mg_err *err)
{
    char p[MG_PATH_MAX];
    const struct mg_json *content = mg_json_get(obj, "content"), *is_error = mg_json_get(obj, "is_error");
    if (mg_given(content)) {
        mg_rc rc = mg_content_check(a, content, mg_place(p, place, "content"), blocks_of(d->type), err);
        if (rc < 0)
            return rc;
        d->content = content->raw;
    }
    d->members = members_of(a, obj);
    d->thread_id = text_of(a, obj, "session_thread_id");
    d->ref_id = text_of(a, obj, d->type == MG_EV_USER_CUSTOM_TOOL_RESULT ? "custom_tool_use_id" : "tool_use_id");
    d->deny_message = text_of(a, obj, "deny_message");
    d->allow = d->type == MG_EV_USER_TOOL_CONFIRMATION && mg_sv_eqz(text_of(a, obj, "result"), "allow");
    d->is_error = mg_given(is_error) && is_error->boolean;
    if (d->allow && d->deny_message.len)
        return mg_err_set(err, MG_EINVAL, "%s: is only for the result \"deny\"; leave it out",
                          mg_place(p, place, "deny_message"));
    return MG_OK;
}

static mg_rc parse_type(struct mg_arena *a, const struct mg_json *obj, const char *place, int where,
                        enum mg_event_type *ret, struct mg_err *err)
{
    static const char *const INITIAL[] = {"user.message", "user.define_outcome", NULL};
    static const char *const DEPLOYMENT[] = {"user.message", "user.define_outcome", "system.message", NULL};
    static const char *const ALL[] = {
        "user.message",     "user.interrupt",      "user.tool_confirmation", "user.custom_tool_result",
        "user.tool_result", "user.define_outcome", "system.message",         NULL};
    char p[MG_PATH_MAX];
    enum mg_event_type t;
    const struct mg_json *tag = mg_json_is(obj, MG_JSON_OBJECT) ? mg_json_get(obj, "type") : NULL;
    if (mg_json_is(tag, MG_JSON_STRING) && mg_event_type_from(mg_json_str(a, tag), &t) && !TYPES[t].input)
        return mg_err_set(err, MG_EINVAL, "%s: %s is written by the server only; clients may send %s",
                          mg_place(p, place, "type"), mg_event_type_name(t), mg_words(a, ALL));
    const char *const *words = where == MG_DRAFTS_INITIAL ? INITIAL : where == MG_DRAFTS_DEPLOYMENT ? DEPLOYMENT : ALL;
    int i = 0;
    mg_rc rc = mg_check_tag(a, obj, place, words, &i, err);
    if (rc < 0)
        return rc;
    mg_event_type_from(mg_sv_of(words[i]), ret);
    return MG_OK;
}

/* The stored event has all three members, max_iterations as it counts. */
static mg_rc fill_outcome(struct mg_arena *a, const struct mg_json *const *m, const char *place, struct mg_draft *d,
                          struct mg_err *err)
{
    char p[MG_PATH_MAX];
    const struct mg_json *r[N_RUBRIC];
    bool file = mg_sv_eqz(text_of(a, m[O_RUBRIC], "type"), "file");
    mg_rc rc =
        mg_check_object(a, m[O_RUBRIC], mg_place(p, place, "rubric"), file ? RUBRIC_FILE_RULES : RUBRIC_RULES, r, err);
    if (rc < 0)
        return rc;
    d->max_iterations = ITERATIONS;
    if (mg_given(m[O_ITERATIONS]))
        (void)mg_json_i64(m[O_ITERATIONS], &d->max_iterations);
    d->description = mg_json_str(a, m[O_DESCRIPTION]);
    *(file ? &d->rubric_file : &d->rubric) = mg_json_str(a, r[R_CONTENT]);
    d->members =
        mg_arena_printf(a, "\"description\":%.*s,\"rubric\":%.*s,\"max_iterations\":%lld",
                        MG_SV_ARG(m[O_DESCRIPTION]->raw), MG_SV_ARG(m[O_RUBRIC]->raw), (long long)d->max_iterations);
    return MG_OK;
}

static mg_rc parse_draft(struct mg_arena *a, const struct mg_json *obj, const char *place, int where,
                         struct mg_draft *d, struct mg_err *err)
{
    const struct mg_json *m[MG_FIELDS_MAX];
    mg_rc rc = parse_type(a, obj, place, where, &d->type, err);
    if (rc >= 0)
        rc = mg_check_object(a, obj, place, rules_of(d->type), m, err);
    if (rc < 0)
        return rc;
    return d->type == MG_EV_USER_DEFINE_OUTCOME ? fill_outcome(a, m, place, d, err) : fill(a, obj, place, d, err);
}

/* At most one system.message; it is last and directly follows an event that a model request will answer. */
static mg_rc check_order(const struct mg_draft *d, int n, const char *path, struct mg_err *err)
{
    int outcomes = 0;
    for (int i = 0; i < n; i++) {
        outcomes += d[i].type == MG_EV_USER_DEFINE_OUTCOME;
        if (outcomes > 1)
            return mg_err_set(
                err, MG_EINVAL,
                "%s[%d]: a request may hold one user.define_outcome; send the next when the first has ended", path, i);
    }
    for (int i = 0; i < n; i++) {
        if (d[i].type != MG_EV_SYSTEM_MESSAGE)
            continue;
        if (i != n - 1)
            return mg_err_set(err, MG_EINVAL,
                              "%s[%d]: a system.message must be the last event of its request, and the only one", path,
                              i);
        bool follows = i > 0 && (d[i - 1].type == MG_EV_USER_MESSAGE || d[i - 1].type == MG_EV_USER_TOOL_RESULT ||
                                 d[i - 1].type == MG_EV_USER_CUSTOM_TOOL_RESULT);
        if (!follows)
            return mg_err_set(err, MG_EINVAL,
                              "%s[%d]: a system.message must directly follow a user.message, a user.tool_result or a "
                              "user.custom_tool_result in the same request",
                              path, i);
    }
    return MG_OK;
}

mg_rc mg_drafts_parse(struct mg_arena *a, const struct mg_json *events, const char *path, int where,
                      struct mg_draft **ret, int *ret_n, struct mg_err *err)
{
    const struct mg_field_rule rule = {.type = MG_FT_ARRAY,
                                       .min = where == MG_DRAFTS_INITIAL ? 0 : 1,
                                       .max = where ? INITIAL_MAX : MG_EVENTS_PER_POST_MAX};
    mg_rc rc = mg_check_value(a, events, path, &rule, err);
    if (rc < 0)
        return rc;
    struct mg_draft *d = mg_arena_alloc(a, sizeof(*d) * (events->n + 1));
    int n = 0;
    char place[MG_PATH_MAX];
    for (const struct mg_json *e = events->child; e; e = e->next, n++) {
        rc = parse_draft(a, e, mg_place_at(place, path, (unsigned)n), where, &d[n], err);
        if (rc < 0)
            return rc;
    }
    rc = check_order(d, n, path, err);
    if (rc < 0)
        return rc;
    *ret = d;
    *ret_n = n;
    return MG_OK;
}

struct mg_sv mg_draft_members(struct mg_arena *a, const struct mg_draft *d, struct mg_sv ref, struct mg_sv thread)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(d->members.len + d->deny_message.len * 6 + 1024);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, d->type == MG_EV_USER_CUSTOM_TOOL_RESULT ? "custom_tool_use_id" : "tool_use_id", ref);
    if (d->type == MG_EV_USER_TOOL_CONFIRMATION)
        mg_jw_kstrz(&w, "result", d->allow ? "allow" : "deny");
    else if (d->content.len)
        mg_jw_kraw(&w, "content", d->content);
    if (d->deny_message.len)
        mg_jw_kstr(&w, "deny_message", d->deny_message);
    if (d->type != MG_EV_USER_TOOL_CONFIRMATION)
        mg_jw_kbool(&w, "is_error", d->is_error);
    if (thread.len)
        mg_jw_kstr(&w, "session_thread_id", thread);
    mg_jw_obj_end(&w);
    struct mg_sv all = mg_buf_view(&b);
    return mg_arena_sv(a, mg_sv_n(all.ptr + 1, all.len - 2));
}
