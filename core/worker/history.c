#include "worker/history.h"

#include "base/log.h"

enum { PATH_BYTES = 64 * 1024 /* a cursor is the server's */, SMALLER = 10 };

struct page {
    struct mg_remote_answer answer;
    struct mg_arena *arena;
    struct mg_json *root;
};

static void page_cleanup(struct page *p)
{
    mg_remote_answer_cleanup(&p->answer);
    mg_arena_free(p->arena);
}

static mg_rc get_page(const struct mg_remote *r, const char *session_id, int limit, const char *cursor,
                      struct mg_cancel *cancel, struct page *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    (void)mg_buf_str(&path, "/v1/sessions/");
    (void)mg_buf_percent(&path, mg_sv_of(session_id));
    (void)mg_buf_printf(&path, "/events?limit=%d", limit);
    if (cursor) {
        (void)mg_buf_str(&path, "&page=");
        (void)mg_buf_percent(&path, mg_sv_of(cursor));
    }
    if (!mg_buf_ok(&path))
        return mg_err_set(err, MG_EINVAL, "the history's cursor is over %d bytes", PATH_BYTES);
    const struct mg_remote_req q = {
        .method = "GET", .path = path.ptr, .max_bytes = MG_HISTORY_PAGE_MAX, .cancel = cancel};
    mg_rc rc = mg_remote_call(r, &q, &ret->answer, err);
    if (rc < 0)
        return rc;
    ret->arena = mg_arena_new();
    rc = mg_json_parse(ret->arena, mg_buf_view(&ret->answer.body), &mg_json_raw_limits, &ret->root, err);
    if (rc == MG_OK && !mg_json_is(mg_json_get(ret->root, "data"), MG_JSON_ARRAY))
        rc = mg_err_set(err, MG_EINVAL, "the history's answer has no list `data`");
    return rc < 0 ? mg_err_wrap(err, rc, "a page of the history") : MG_OK;
}

/* One page whose size the server's events allow. */
static mg_rc get_fitting(const struct mg_remote *r, const char *session_id, int *limit, const char *cursor,
                         struct mg_cancel *cancel, struct page *ret, struct mg_err *err)
{
    for (;;) {
        mg_rc rc = get_page(r, session_id, *limit, cursor, cancel, ret, err);
        if (rc != MG_ETOOBIG || *limit == 1 || ret->answer.status != 0)
            return rc;
        page_cleanup(ret);
        *ret = (struct page){0};
        *limit = *limit > SMALLER ? *limit / SMALLER : 1;
    }
}

mg_rc mg_history_read(const struct mg_remote *r, const char *session_id, struct mg_cancel *cancel,
                      void (*fn)(void *ctx, const struct mg_event *e), void *ctx, struct mg_err *err)
{
    mg_autofree char *cursor = NULL;
    int limit = MG_HISTORY_LIMIT;
    for (int n = 0; n < MG_HISTORY_PAGES_MAX; n++) {
        __attribute__((cleanup(page_cleanup))) struct page p = {0};
        mg_rc rc = get_fitting(r, session_id, &limit, cursor, cancel, &p, err);
        if (rc < 0)
            return rc;
        for (const struct mg_json *v = mg_json_get(p.root, "data")->child; v; v = v->next) {
            struct mg_event e;
            if (mg_event_read(p.arena, v, &e))
                fn(ctx, &e);
        }
        struct mg_sv next = mg_json_get_str(p.arena, p.root, "next_page");
        if (next.len == 0)
            return MG_OK;
        if (cursor && mg_sv_eqz(next, cursor))
            return mg_err_set(err, MG_EINVAL, "the history's cursor does not move on");
        free(cursor);
        cursor = mg_xstrndup(next.ptr, next.len);
    }
    return mg_err_set(err, MG_ETOOBIG, "the history has over %d pages", MG_HISTORY_PAGES_MAX);
}
