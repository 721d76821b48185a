#include "worker/item.h"

#include "base/buf.h"
#include "crypto/hash.h"
#include "json/json.h"

enum { SECRET_MAX = 64 * 1024 /* bytes of a decoded secret: a token and a URL are some hundred */ };

static void forget(char **s)
{
    if (*s)
        mg_wipe(*s, strlen(*s));
    free(*s);
    *s = NULL;
}

void mg_work_item_done(struct mg_work_item *w)
{
    free(w->id);
    free(w->environment_id);
    free(w->type);
    free(w->session_id);
    free(w->last_heartbeat);
    forget(&w->secret);
    forget(&w->json);
    *w = (struct mg_work_item){0};
}

static char *dup_member(struct mg_arena *a, const struct mg_json *v, const char *key)
{
    struct mg_sv s = mg_json_get_str(a, v, key);
    return mg_xstrndup(s.ptr, s.len);
}

mg_rc mg_work_item_parse(struct mg_sv body, struct mg_work_item *ret, bool *ret_empty, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    *ret = (struct mg_work_item){0};
    *ret_empty = mg_sv_trim(body).len == 0;
    if (*ret_empty)
        return MG_OK;
    mg_rc rc = mg_json_parse(a, body, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "the answer of the poll");
    *ret_empty = mg_json_is(v, MG_JSON_NULL) || (mg_json_is(v, MG_JSON_OBJECT) && !mg_json_get(v, "id"));
    if (*ret_empty)
        return MG_OK;
    const struct mg_json *data = mg_json_get(v, "data");
    if (!mg_json_is(mg_json_get(v, "id"), MG_JSON_STRING) || !mg_json_is(data, MG_JSON_OBJECT))
        return mg_err_set(err, MG_EINVAL, "the answer of the poll is no work item");
    ret->id = dup_member(a, v, "id");
    ret->environment_id = dup_member(a, v, "environment_id");
    ret->type = dup_member(a, data, "type");
    ret->session_id = dup_member(a, data, "id");
    ret->secret = dup_member(a, v, "secret");
    ret->json = mg_xstrndup(body.ptr, body.len);
    return MG_OK;
}

void mg_work_item_set(struct mg_work_item *ret, const char *id, const char *environment_id, const char *session_id,
                      const char *secret)
{
    *ret = (struct mg_work_item){
        .id = mg_xstrdup(id ? id : ""),
        .environment_id = mg_xstrdup(environment_id ? environment_id : ""),
        .type = mg_xstrdup("session"),
        .session_id = mg_xstrdup(session_id ? session_id : ""),
        .secret = mg_xstrdup(secret ? secret : ""),
    };
}

char *mg_work_item_token(const struct mg_work_item *w)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(SECRET_MAX);
    struct mg_json *v = NULL;
    char *token = NULL;
    if (!w->secret || !w->secret[0] || mg_base64_decode(&b, mg_sv_of(w->secret)) < 0)
        return NULL;
    if (mg_json_parse(a, mg_buf_view(&b), &mg_json_raw_limits, &v, NULL) == MG_OK) {
        struct mg_sv t = mg_json_get_str(a, v, "sessions_token");
        token = t.len ? mg_xstrndup(t.ptr, t.len) : NULL;
    }
    mg_wipe(b.ptr, b.len);
    return token;
}
