#include <inttypes.h>

#include "api/api.h"
#include "base/clock.h"
#include "domain/check.h"
#include "domain/page.h"

enum { HOLD_PG_MS = 2000 /* an upload that takes longer gives its database connection back meanwhile */ };

mg_rc mg_param_one(const struct mg_http_req *req, const char *name, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_sv v[2] = {{NULL, 0}, {NULL, 0}};
    if (mg_http_query_all(req, name, v, 2) > 1)
        return mg_err_set(err, MG_EINVAL, "%s: is given more than once; give it once", name);
    *ret = v[0];
    return MG_OK;
}

mg_rc mg_param_bool(const struct mg_http_req *req, const char *name, bool *ret, struct mg_err *err)
{
    struct mg_sv v = {NULL, 0};
    mg_rc rc = mg_param_one(req, name, &v, err);
    if (rc < 0 || !v.ptr)
        return rc;
    *ret = mg_sv_eqz(v, "true");
    if (!*ret && !mg_sv_eqz(v, "false"))
        return mg_err_set(err, MG_EINVAL, "%s: must be true or false", name);
    return MG_OK;
}

mg_rc mg_param_int(const struct mg_http_req *req, const char *name, int64_t min, int64_t max, int64_t *ret,
                   struct mg_err *err)
{
    struct mg_sv v = {NULL, 0};
    mg_rc rc = mg_param_one(req, name, &v, err);
    if (rc < 0 || !v.ptr)
        return rc;
    if (!mg_sv_to_i64(v, ret) || *ret < min || *ret > max)
        return mg_err_set(err, MG_EINVAL, "%s: must be an integer from %" PRId64 " to %" PRId64, name, min, max);
    return MG_OK;
}

mg_rc mg_param_id(const struct mg_http_req *req, const char *name, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_id id;
    mg_rc rc = mg_param_one(req, name, ret, err);
    if (rc < 0 || !ret->ptr)
        return rc;
    if (ret->len == 0 || !mg_id_from(*ret, &id))
        return mg_err_set(err, MG_EINVAL, "%s: must be an id of letters, digits, '_' and '-'", name);
    return MG_OK;
}

mg_rc mg_param_words(const struct mg_http_req *req, const char *name, bool (*ok)(struct mg_sv word), const char *valid,
                     struct mg_sv **ret, int *ret_n, struct mg_err *err)
{
    struct mg_sv given[MG_PARAM_VALUES_MAX], *words = mg_arena_alloc(req->arena, sizeof(*words) * MG_PARAM_VALUES_MAX);
    int n = mg_http_query_all(req, name, given, MG_PARAM_VALUES_MAX), k = 0;
    bool many = n > MG_PARAM_VALUES_MAX;
    for (int i = 0; i < n && !many; i++) {
        struct mg_sv rest = given[i];
        do {
            struct mg_sv word = mg_sv_split(&rest, ',');
            if (!ok(word))
                return mg_err_set(err, MG_EINVAL, "%s: '%.*s' is not valid; valid are %s", name,
                                  (int)(word.len < 80 ? word.len : 80), word.ptr, valid);
            many = k == MG_PARAM_VALUES_MAX;
            if (!many)
                words[k++] = word;
        } while (rest.len && !many);
    }
    if (many)
        return mg_err_set(err, MG_EINVAL, "%s: at most %d values are allowed", name, MG_PARAM_VALUES_MAX);
    *ret = words;
    *ret_n = k;
    return MG_OK;
}

static mg_rc param_time(const struct mg_http_req *req, const char *name, int64_t *ret, struct mg_err *err)
{
    struct mg_sv v = {NULL, 0};
    mg_rc rc = mg_param_one(req, name, &v, err);
    *ret = INT64_MIN;
    if (rc < 0 || !v.ptr)
        return rc;
    if (!mg_time_parse(v, ret))
        return mg_err_set(err, MG_EINVAL, "%s: must be an RFC 3339 time such as 2026-11-30T07:26:01Z", name);
    return MG_OK;
}

static mg_rc param_order(const struct mg_http_req *req, bool *ret_ascending, struct mg_err *err)
{
    struct mg_sv v = {NULL, 0};
    mg_rc rc = mg_param_one(req, "order", &v, err);
    if (rc < 0 || !v.ptr)
        return rc;
    *ret_ascending = mg_sv_eqz(v, "asc");
    if (!*ret_ascending && !mg_sv_eqz(v, "desc"))
        return mg_err_set(err, MG_EINVAL, "order: must be asc or desc");
    return MG_OK;
}

static mg_rc param_times(const struct mg_http_req *req, struct mg_list_query *q, struct mg_err *err)
{
    mg_rc rc = param_time(req, "created_at[gt]", &q->gt_us, err);
    if (rc >= 0)
        rc = param_time(req, "created_at[gte]", &q->gte_us, err);
    if (rc >= 0)
        rc = param_time(req, "created_at[lt]", &q->lt_us, err);
    if (rc >= 0)
        rc = param_time(req, "created_at[lte]", &q->lte_us, err);
    return rc;
}

mg_rc mg_param_list(const struct mg_http_req *req, const struct mg_list_kind *kind, struct mg_sv filters,
                    struct mg_list_query *ret, struct mg_sv *ret_scope, struct mg_err *err)
{
    struct mg_list_query q = {.workspace = mg_req_workspace(req), .ascending = kind->ascending};
    struct mg_sv limit = {0}, page = {0};
    mg_rc rc = mg_param_one(req, "limit", &limit, err);
    if (rc >= 0)
        rc = mg_limit_parse(limit, kind->limit, kind->limit_max, &q.limit, err);
    if (rc >= 0)
        rc = param_order(req, &q.ascending, err);
    if (rc >= 0)
        rc = mg_param_bool(req, "include_archived", &q.include_archived, err);
    if (rc >= 0)
        rc = param_times(req, &q, err);
    if (rc >= 0)
        rc = mg_param_one(req, "page", &page, err);
    if (rc < 0)
        return rc;
    *ret_scope = mg_arena_printf(req->arena, "%s|%.*s|%d|%d|%" PRId64 "|%" PRId64 "|%" PRId64 "|%" PRId64 "|%.*s",
                                 kind->name, MG_SV_ARG(q.workspace), q.ascending, q.include_archived, q.gt_us, q.gte_us,
                                 q.lt_us, q.lte_us, MG_SV_ARG(filters));
    rc = mg_cursor_parse(req->arena, *ret_scope, page, &q.cursor, err);
    *ret = q;
    return rc;
}

mg_rc mg_req_body(const struct mg_http_req *req, const struct mg_json **ret, struct mg_err *err)
{
    return mg_body_parse(req->arena, req->body, ret, err);
}

mg_rc mg_req_no_body(const struct mg_http_req *req, struct mg_err *err)
{
    static const struct mg_field_rule NONE[] = {{.name = NULL}};
    const struct mg_json *body, *out[1];
    mg_rc rc = mg_req_body(req, &body, err);
    return rc < 0 ? rc : mg_check_object(req->arena, body, "", NONE, out, err);
}

mg_rc mg_req_multipart(struct mg_http_req *req, const struct mg_multipart_ops *ops, struct mg_err *err)
{
    mg_auto(multipart) struct mg_multipart *m = NULL;
    struct mg_sv piece = MG_SV("");
    bool released = false;
    mg_rc rc = mg_multipart_new(req->content_type, ops, &m, err);
    while (rc >= 0) {
        rc = mg_http_body_next(req, &piece, err);
        if (rc < 0 || piece.len == 0)
            break;
        rc = mg_multipart_feed(m, piece, err);
        if (!released && mg_now_ns() - req->start_ns > (uint64_t)HOLD_PG_MS * 1000000) {
            mg_pg_close(req->pg);
            released = true;
        }
    }
    return rc < 0 ? rc : mg_multipart_finish(m, err);
}

mg_rc mg_req_objects(const struct mg_http_req *req, struct mg_objects **ret, struct mg_err *err)
{
    *ret = mg_req_app(req)->objects;
    if (!*ret)
        return mg_err_set(err, MG_EUNAVAIL, "this server has no object store: see its log for the reason");
    return MG_OK;
}

mg_rc mg_res_deleted(struct mg_http_res *res, struct mg_sv id, const char *type)
{
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "id", id);
    mg_jw_kstrz(&w, "type", type);
    mg_jw_obj_end(&w);
    return MG_OK;
}
