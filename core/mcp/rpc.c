#include "mcp/rpc.h"

#include <stdio.h>

#include "base/utf8.h"
#include "json/write.h"

enum {
    DEPTH_MAX = 128,    /* levels of a message: deeper than any schema */
    NODES_MAX = 200000, /* values of a message; at 72 bytes each */
    SHOWN_MAX = 4096,   /* bytes of a server's text that are looked at for a message of one line */
    METHOD_NOT_FOUND = -32601,
};

static mg_rc malformed(struct mg_err *err, const char *what)
{
    return mg_err_set(err, MG_EINVAL, "a message of the server is no JSON-RPC: %s", what);
}

static bool id_is_legal(const struct mg_json *id)
{
    return mg_json_is(id, MG_JSON_STRING) || mg_json_is(id, MG_JSON_NUMBER);
}

static mg_rc take_call(struct mg_arena *a, const struct mg_json *v, struct mg_rpc *ret, struct mg_err *err)
{
    const struct mg_json *id = mg_json_get(v, "id"), *method = mg_json_get(v, "method");
    if (method->type != MG_JSON_STRING)
        return malformed(err, "method is not a string");
    if (id && !id_is_legal(id))
        return malformed(err, "id is neither a string nor a number");
    ret->kind = id ? MG_RPC_REQUEST : MG_RPC_NOTE;
    ret->id = id ? id->raw : MG_SV("");
    ret->method = mg_json_str(a, method);
    ret->body = mg_json_get(v, "params");
    return MG_OK;
}

static mg_rc take_one(struct mg_arena *a, const struct mg_json *v, struct mg_rpc *ret, struct mg_err *err)
{
    if (v->type != MG_JSON_OBJECT)
        return malformed(err, "it is not an object");
    *ret = (struct mg_rpc){.raw = v->raw};
    if (!mg_sv_eqz(mg_json_get_str(a, v, "jsonrpc"), "2.0"))
        return malformed(err, "jsonrpc is not \"2.0\"");
    if (mg_json_get(v, "method"))
        return take_call(a, v, ret, err);
    const struct mg_json *id = mg_json_get(v, "id");
    const struct mg_json *result = mg_json_get(v, "result"), *error = mg_json_get(v, "error");
    if (!result == !error)
        return malformed(err, "it must have a method, or either a result or an error");
    if (!mg_json_is(result ? result : error, MG_JSON_OBJECT))
        return malformed(err, "its result or error is not an object");
    if (result && !id_is_legal(id))
        return malformed(err, "a result without the id of a request");
    ret->kind = result ? MG_RPC_RESULT : MG_RPC_ERROR;
    ret->id = id ? id->raw : MG_SV("");
    ret->body = result ? result : error;
    return MG_OK;
}

mg_rc mg_rpc_parse(struct mg_arena *a, struct mg_sv text, struct mg_rpc *ret, int *ret_n, struct mg_err *err)
{
    static const struct mg_json_limits limits = {.max_depth = DEPTH_MAX, .max_nodes = NODES_MAX};
    struct mg_json *v;
    mg_rc rc = mg_json_parse(a, text, &limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "a message of the server is no JSON");
    if (v->type != MG_JSON_ARRAY) {
        *ret_n = 1;
        return take_one(a, v, ret, err);
    }
    if (v->n == 0 || v->n > MG_RPC_BATCH_MAX)
        return malformed(err, "an array of no messages, or of more than 64");
    *ret_n = 0;
    for (const struct mg_json *c = v->child; c && rc == MG_OK; c = c->next)
        rc = take_one(a, c, &ret[(*ret_n)++], err);
    return rc;
}

bool mg_rpc_is_answer(const struct mg_rpc *m, int64_t id)
{
    int64_t got;
    return (m->kind == MG_RPC_RESULT || m->kind == MG_RPC_ERROR) && mg_sv_to_i64(m->id, &got) && got == id;
}

void mg_rpc_show(char *out, size_t size, struct mg_sv text)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4 * SHOWN_MAX);
    if (text.len > SHOWN_MAX)
        text.len = SHOWN_MAX;
    (void)mg_utf8_clean(&b, text);
    for (size_t i = 0; i < b.len; i++)
        if ((unsigned char)b.ptr[i] < 0x20 || b.ptr[i] == 0x7f)
            b.ptr[i] = ' ';
    struct mg_sv v = mg_sv_trim(mg_buf_view(&b));
    size_t n = mg_utf8_floor(v, size - 1);
    memcpy(out, v.ptr, n);
    out[n] = '\0';
}

void mg_rpc_error_text(struct mg_arena *a, const struct mg_json *error, char *out, size_t size)
{
    enum { CODE_ROOM = 40 };
    char shown[512];
    int64_t code = 0;
    mg_rpc_show(shown, sizeof(shown) < size - CODE_ROOM ? sizeof(shown) : size - CODE_ROOM,
                mg_json_get_str(a, error, "message"));
    const struct mg_json *c = mg_json_get(error, "code");
    if (!c || !mg_json_i64(c, &code))
        (void)snprintf(out, size, "%s", shown[0] ? shown : "an error without a message");
    else
        (void)snprintf(out, size, "%s (code %lld)", shown[0] ? shown : "an error without a message", (long long)code);
}

/* ---- messages of ours ---- */

static struct mg_jw begin(struct mg_buf *out)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "jsonrpc", "2.0");
    return w;
}

static mg_rc finish(struct mg_jw *w)
{
    mg_jw_obj_end(w);
    return mg_buf_ok(w->out) ? MG_OK : MG_ETOOBIG;
}

mg_rc mg_rpc_request(struct mg_buf *out, int64_t id, const char *method, struct mg_sv params)
{
    struct mg_jw w = begin(out);
    mg_jw_kint(&w, "id", id);
    mg_jw_kstrz(&w, "method", method);
    if (params.len)
        mg_jw_kraw(&w, "params", params);
    return finish(&w);
}

mg_rc mg_rpc_note(struct mg_buf *out, const char *method, struct mg_sv params)
{
    struct mg_jw w = begin(out);
    mg_jw_kstrz(&w, "method", method);
    if (params.len)
        mg_jw_kraw(&w, "params", params);
    return finish(&w);
}

mg_rc mg_rpc_answer(struct mg_buf *out, struct mg_sv id, struct mg_sv method)
{
    struct mg_jw w = begin(out);
    mg_jw_kraw(&w, "id", id);
    if (mg_sv_eqz(method, "ping")) {
        mg_jw_kraw(&w, "result", MG_SV("{}"));
        return finish(&w);
    }
    mg_jw_key(&w, "error");
    mg_jw_obj(&w);
    mg_jw_kint(&w, "code", METHOD_NOT_FOUND);
    mg_jw_kstrz(&w, "message", "this client offers nothing to servers but ping");
    mg_jw_obj_end(&w);
    return finish(&w);
}
