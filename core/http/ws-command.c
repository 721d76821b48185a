#include "http/ws-command.h"

#include "http/http.h"
#include "json/json.h"

struct field_parse {
    struct mg_arena *a;
    const struct mg_json *v;
    struct mg_ws_command *c;
    struct mg_err *err;
};

typedef mg_rc field_fn(struct field_parse *p);

static mg_rc need(const struct field_parse *p, const char *what)
{
    return mg_err_set(p->err, MG_EINVAL, "%.*s: must be %s, not %s", MG_SV_ARG(p->v->key), what,
                      mg_json_type_name(p->v));
}

static mg_rc text(struct field_parse *p, size_t max, struct mg_sv *ret)
{
    if (!mg_json_is(p->v, MG_JSON_STRING))
        return need(p, "a string");
    *ret = mg_json_str(p->a, p->v);
    if (ret->len > max || memchr(ret->ptr, 0, ret->len))
        return mg_err_set(p->err, MG_EINVAL, "%.*s: must have at most %zu bytes and no NUL", MG_SV_ARG(p->v->key), max);
    return MG_OK;
}

static mg_rc f_sub(struct field_parse *p)
{
    if (!mg_json_i64(p->v, &p->c->sub) || p->c->sub < 0 || p->c->sub > (INT64_C(1) << 53))
        return need(p, "a whole number from 0 to 2^53");
    p->c->has_sub = true;
    return MG_OK;
}

static mg_rc f_ref(struct field_parse *p)
{
    if ((!mg_json_is(p->v, MG_JSON_STRING) && !mg_json_is(p->v, MG_JSON_NUMBER)) || p->v->raw.len > MG_WS_REF_MAX)
        return need(p, "a string or a number of at most 128 bytes");
    p->c->ref = p->v->raw;
    return MG_OK;
}

static mg_rc f_session(struct field_parse *p)
{
    return text(p, 128, &p->c->session_id);
}

static mg_rc f_after(struct field_parse *p)
{
    if (mg_json_is(p->v, MG_JSON_NULL))
        return MG_OK;
    return text(p, 128, &p->c->after);
}

static mg_rc f_thread(struct field_parse *p)
{
    if (mg_json_is(p->v, MG_JSON_NULL))
        return MG_OK;
    return text(p, 128, &p->c->thread_id);
}

static mg_rc f_key(struct field_parse *p)
{
    return text(p, MG_WS_IDEMPOTENCY_MAX, &p->c->idempotency_key);
}

static mg_rc f_credit(struct field_parse *p)
{
    if (!mg_json_i64(p->v, &p->c->credit) || p->c->credit < 0 || p->c->credit > MG_WS_CREDIT_MAX)
        return need(p, "a whole number from 0 to 1000000");
    return MG_OK;
}

static mg_rc f_events(struct field_parse *p)
{
    if (!mg_json_is(p->v, MG_JSON_ARRAY))
        return need(p, "an array of events");
    p->c->events = p->v->raw;
    return MG_OK;
}

/* An array of names, or the comma-separated string that the query parameter has. */
static mg_rc f_types(struct field_parse *p)
{
    if (mg_json_is(p->v, MG_JSON_NULL))
        return MG_OK;
    if (mg_json_is(p->v, MG_JSON_STRING))
        return text(p, 8192, &p->c->types);
    if (!mg_json_is(p->v, MG_JSON_ARRAY) || p->v->n > 100)
        return need(p, "an array of at most 100 event types");
    for (const struct mg_json *t = p->v->child; t; t = t->next) {
        struct mg_sv name = mg_json_is(t, MG_JSON_STRING) ? mg_json_str(p->a, t) : MG_SV("");
        if (name.len == 0 || name.len > 64 || memchr(name.ptr, ',', name.len) || memchr(name.ptr, 0, name.len))
            return mg_err_set(p->err, MG_EINVAL, "types: each must be the name of an event type");
        p->c->types =
            p->c->types.len ? mg_arena_printf(p->a, "%.*s,%.*s", MG_SV_ARG(p->c->types), MG_SV_ARG(name)) : name;
    }
    return MG_OK;
}

bool mg_ws_delta_kind(struct mg_sv name, bool *message, bool *thinking)
{
    if (mg_sv_eqz(name, "agent.message"))
        *message = true;
    else if (mg_sv_eqz(name, "agent.thinking"))
        *thinking = true;
    else
        return false;
    return true;
}

static mg_rc f_deltas(struct field_parse *p)
{
    if (mg_json_is(p->v, MG_JSON_NULL))
        return MG_OK;
    if (!mg_json_is(p->v, MG_JSON_ARRAY) || p->v->n > 16)
        return need(p, "an array of agent.message and agent.thinking");
    for (const struct mg_json *t = p->v->child; t; t = t->next)
        if (!mg_json_is(t, MG_JSON_STRING) ||
            !mg_ws_delta_kind(mg_json_str(p->a, t), &p->c->deltas_message, &p->c->deltas_thinking))
            return mg_err_set(p->err, MG_EINVAL, "deltas: each must be agent.message or agent.thinking");
    return MG_OK;
}

enum {
    SUB = 1,
    REF = 2,
    SESSION = 4,
    AFTER = 8,
    TYPES = 16,
    DELTAS = 32,
    THREAD = 64,
    CREDIT = 128,
    N = 256,
    EVENTS = 512,
    KEY = 1024
};

static const struct {
    const char *name;
    unsigned bit;
    field_fn *parse;
} fields[] = {
    {"sub", SUB, f_sub},
    {"ref", REF, f_ref},
    {"session_id", SESSION, f_session},
    {"after", AFTER, f_after},
    {"types", TYPES, f_types},
    {"deltas", DELTAS, f_deltas},
    {"thread_id", THREAD, f_thread},
    {"credit", CREDIT, f_credit},
    {"n", N, f_credit},
    {"events", EVENTS, f_events},
    {"idempotency_key", KEY, f_key},
};

static const struct {
    const char *name;
    enum mg_ws_op op;
    unsigned needs, allows;
} ops[] = {
    {"subscribe", MG_WS_OP_SUBSCRIBE, SUB | SESSION, REF | AFTER | TYPES | DELTAS | THREAD | CREDIT},
    {"unsubscribe", MG_WS_OP_UNSUBSCRIBE, SUB, REF},
    {"credit", MG_WS_OP_CREDIT, SUB | N, REF},
    {"send", MG_WS_OP_SEND, SESSION | EVENTS, REF | KEY},
    {"ping", MG_WS_OP_PING, 0, REF},
};

enum { N_OPS = sizeof(ops) / sizeof(ops[0]), N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static int find_op(struct mg_arena *a, const struct mg_json *root)
{
    const struct mg_json *op = mg_json_get(root, "op");
    if (!mg_json_is(op, MG_JSON_STRING))
        return -1;
    struct mg_sv name = mg_json_str(a, op);
    for (int i = 0; i < N_OPS; i++)
        if (mg_sv_eqz(name, ops[i].name))
            return i;
    return -1;
}

static mg_rc unknown_field(struct mg_sv key, int op, struct mg_err *err)
{
    int shown = (int)(key.len < 64 ? key.len : 64);
    return mg_err_set(err, MG_EINVAL, "%.*s: not a field of '%s'", shown, key.ptr, ops[op].name);
}

static mg_rc parse_fields(struct mg_arena *a, const struct mg_json *root, int op, struct mg_ws_command *c,
                          struct mg_err *err)
{
    unsigned have = 0;
    for (const struct mg_json *v = root->child; v; v = v->next) {
        struct field_parse p = {.a = a, .v = v, .c = c, .err = err};
        int i = 0;
        if (mg_sv_eqz(v->key, "op"))
            continue;
        while (i < N_FIELDS && !mg_sv_eqz(v->key, fields[i].name))
            i++;
        if (i == N_FIELDS || !((ops[op].needs | ops[op].allows) & fields[i].bit))
            return unknown_field(v->key, op, err);
        mg_rc rc = fields[i].parse(&p);
        if (rc < 0)
            return rc;
        have |= fields[i].bit;
    }
    for (int i = 0; i < N_FIELDS; i++)
        if (ops[op].needs & ~have & fields[i].bit)
            return mg_err_set(err, MG_EINVAL, "%s: '%s' needs this field", fields[i].name, ops[op].name);
    return MG_OK;
}

mg_rc mg_ws_command_parse(struct mg_arena *a, struct mg_sv msg, struct mg_ws_command *ret, struct mg_err *err)
{
    struct mg_json *root = NULL;
    *ret = (struct mg_ws_command){.credit = MG_WS_CREDIT};
    mg_rc rc = mg_json_parse(a, msg, &mg_json_api_limits, &root, err);
    if (rc < 0)
        return rc;
    if (!mg_json_is(root, MG_JSON_OBJECT))
        return mg_err_set(err, MG_EINVAL, "a command must be a JSON object with a field op");
    const struct mg_json *ref = mg_json_get(root, "ref");
    if (ref) {
        struct field_parse p = {.a = a, .v = ref, .c = ret, .err = err};
        rc = f_ref(&p);
        if (rc < 0)
            return rc;
    }
    int op = find_op(a, root);
    if (op < 0)
        return mg_err_set(err, MG_EINVAL, "op: must be one of subscribe, unsubscribe, credit, send, ping");
    ret->op = ops[op].op;
    return parse_fields(a, root, op, ret, err);
}
