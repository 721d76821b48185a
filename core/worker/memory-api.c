#include "worker/memory-api.h"

#include "domain/memory.h"
#include "json/write.h"

#define BETA "agent-memory-2026-07-22" /* as the official clients send it with these resources */

enum {
    PATH_BYTES = 64 * 1024, /* of a request's path: a cursor is the server's */
    PAGE = 100,             /* items without content */
    PAGE_FULL = 20,         /* with it; a server gives no more */
    PAGES_MAX = 1000,       /* of a list: a server that never ends one is not followed; a store has 2,000 memories */
    PAGE_BYTES = 32 * 1024 * 1024,        /* 20 contents of 100 KiB, each byte escaped, and their frames */
    BODY_MAX = 8 * MG_MEMORY_CONTENT_MAX, /* a content, escaped, and what stands beside it */
};

static mg_rc ask(const struct mg_memory_api *m, struct mg_remote_req *q, const struct mg_buf *path,
                 struct mg_remote_answer *ret, struct mg_err *err)
{
    *ret = (struct mg_remote_answer){.body = MG_BUF_INIT(0)};
    if (!mg_buf_ok(path))
        return mg_err_set(err, MG_EINVAL, "a cursor or an id has over %d bytes", PATH_BYTES);
    if (!mg_tether_may_send(m->tether))
        return mg_err_set(err, MG_EFENCED, "the item is not this worker's any more");
    q->path = path->ptr;
    q->beta = BETA;
    q->max_bytes = PAGE_BYTES;
    q->cancel = m->cancel;
    q->deadline_ns = m->deadline_ns;
    return mg_remote_call(m->remote, q, ret, err);
}

static void path_of(const struct mg_memory_api *m, const char *id, struct mg_buf *path)
{
    (void)mg_buf_str(path, "/v1/memory_stores/");
    (void)mg_buf_percent(path, mg_sv_of(m->store_id));
    (void)mg_buf_str(path, "/memories");
    if (id) {
        (void)mg_buf_char(path, '/');
        (void)mg_buf_percent(path, mg_sv_of(id));
    }
}

/* The item of an answer's text. Arena memory. */
static struct mg_memory_item item_of(struct mg_arena *a, const struct mg_json *v)
{
    return (struct mg_memory_item){
        .id = mg_json_get_str(a, v, "id"),
        .path = mg_json_get_str(a, v, "path"),
        .sha256 = mg_json_get_str(a, v, "content_sha256"),
        .content = mg_json_get_str(a, v, "content"),
    };
}

static mg_rc read_item(struct mg_arena *a, const struct mg_remote_answer *answer, struct mg_memory_item *ret,
                       struct mg_err *err)
{
    struct mg_json *v = NULL;
    mg_rc rc = mg_json_parse(a, mg_arena_sv(a, mg_buf_view(&answer->body)), &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return mg_err_set(err, MG_EUNAVAIL, "the server's answer is no memory");
    *ret = item_of(a, v);
    if (ret->id.len && mg_memory_sha_ok(ret->sha256))
        return MG_OK;
    return mg_err_set(err, MG_EUNAVAIL, "the server's answer has no id or no content_sha256");
}

/* ---- lists ---- */

struct listing {
    const struct mg_memory_api *m;
    bool full;
    mg_rc (*fn)(void *ctx, const struct mg_memory_item *item, struct mg_err *err);
    void *ctx;
};

static mg_rc take_page(const struct listing *l, struct mg_arena *a, const struct mg_json *v, struct mg_err *err)
{
    const struct mg_json *data = mg_json_get(v, "data");
    mg_rc rc = mg_json_is(data, MG_JSON_ARRAY)
                   ? MG_OK
                   : mg_err_set(err, MG_EUNAVAIL, "the server's list of memories has no `data`");
    for (const struct mg_json *e = rc == MG_OK ? data->child : NULL; e && rc == MG_OK; e = e->next) {
        if (!mg_sv_eqz(mg_json_get_str(a, e, "type"), "memory"))
            continue; /* a prefix */
        const struct mg_memory_item item = item_of(a, e);
        rc = item.id.len && mg_memory_sha_ok(item.sha256)
                 ? l->fn(l->ctx, &item, err)
                 : mg_err_set(err, MG_EUNAVAIL, "the server lists a memory without id or content_sha256");
    }
    return rc;
}

/* One page; *cursor becomes the next one's, NULL behind the last. */
static mg_rc list_page(const struct listing *l, char **cursor, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    mg_auto(remote_answer) struct mg_remote_answer answer = {0};
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    struct mg_remote_req q = {.method = "GET"};
    path_of(l->m, NULL, &path);
    (void)mg_buf_printf(&path, "?view=%s&limit=%d", l->full ? "full" : "basic", l->full ? PAGE_FULL : PAGE);
    if (*cursor) {
        (void)mg_buf_str(&path, "&page=");
        (void)mg_buf_percent(&path, mg_sv_of(*cursor));
    }
    mg_rc rc = ask(l->m, &q, &path, &answer, err);
    if (rc == MG_OK && mg_json_parse(a, mg_buf_view(&answer.body), &mg_json_raw_limits, &v, err) < 0)
        rc = mg_err_set(err, MG_EUNAVAIL, "the server's list of memories is no JSON");
    if (rc == MG_OK)
        rc = take_page(l, a, v, err);
    if (rc < 0)
        return rc;
    struct mg_sv next = mg_json_get_str(a, v, "next_page");
    bool stuck = *cursor && mg_sv_eqz(next, *cursor);
    free(*cursor);
    *cursor = next.len ? mg_xstrndup(next.ptr, next.len) : NULL;
    return stuck ? mg_err_set(err, MG_EUNAVAIL, "the cursor of the server's list does not move on") : MG_OK;
}

mg_rc mg_memory_api_list(const struct mg_memory_api *m, bool full,
                         mg_rc (*fn)(void *ctx, const struct mg_memory_item *item, struct mg_err *err), void *ctx,
                         struct mg_err *err)
{
    const struct listing l = {.m = m, .full = full, .fn = fn, .ctx = ctx};
    mg_autofree char *cursor = NULL;
    for (int n = 0; n < PAGES_MAX; n++) {
        mg_rc rc = list_page(&l, &cursor, err);
        if (rc < 0 || !cursor)
            return rc;
    }
    return mg_err_set(err, MG_EUNAVAIL, "the server's list of memories has over %d pages", PAGES_MAX);
}

/* ---- one memory ---- */

mg_rc mg_memory_api_get(const struct mg_memory_api *m, struct mg_arena *a, const char *id, struct mg_memory_item *ret,
                        struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    mg_auto(remote_answer) struct mg_remote_answer answer = {0};
    struct mg_remote_req q = {.method = "GET"};
    path_of(m, id, &path);
    (void)mg_buf_str(&path, "?view=full");
    mg_rc rc = ask(m, &q, &path, &answer, err);
    return rc < 0 ? rc : read_item(a, &answer, ret, err);
}

mg_rc mg_memory_api_put(const struct mg_memory_api *m, struct mg_arena *a, const char *id, const char *has_sha256,
                        const char *path, struct mg_sv content, struct mg_memory_item *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf url = MG_BUF_INIT(PATH_BYTES), body = MG_BUF_INIT(BODY_MAX);
    mg_auto(remote_answer) struct mg_remote_answer answer = {0};
    struct mg_jw w = mg_jw_to(&body);
    path_of(m, id, &url);
    mg_jw_obj(&w);
    if (!id)
        mg_jw_kstr(&w, "path", mg_arena_printf(a, "/%s", path));
    mg_jw_kstr(&w, "content", content);
    if (id) {
        mg_jw_key(&w, "precondition");
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", "content_sha256");
        mg_jw_kstrz(&w, "content_sha256", has_sha256);
        mg_jw_obj_end(&w);
    }
    mg_jw_obj_end(&w);
    if (!mg_buf_ok(&body))
        return mg_err_set(err, MG_ETOOBIG, "the content is too long");
    struct mg_remote_req q = {.method = "POST", .body = mg_buf_view(&body)};
    mg_rc rc = ask(m, &q, &url, &answer, err);
    return rc < 0 ? rc : read_item(a, &answer, ret, err);
}

mg_rc mg_memory_api_delete(const struct mg_memory_api *m, const char *id, const char *has_sha256, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    mg_auto(remote_answer) struct mg_remote_answer answer = {0};
    struct mg_remote_req q = {.method = "DELETE"};
    path_of(m, id, &path);
    (void)mg_buf_printf(&path, "?expected_content_sha256=%s", has_sha256);
    return ask(m, &q, &path, &answer, err);
}
