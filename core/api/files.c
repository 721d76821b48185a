/* /v1/files */
#include "api/render.h"
#include "domain/check.h"
#include "domain/file.h"
#include "service/file.h"

enum {
    FIELD_MAX = 64, /* bytes of a plain field: a number of seconds */
    IDS_MAX = 100,  /* of ids */
};

static const struct mg_list_kind FILES = {.name = "files", .limit = 20, .limit_max = 1000};

static void render(struct mg_jw *w, const struct mg_file_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "file");
    mg_jw_kstr(w, "filename", x->filename);
    mg_jw_kstr(w, "mime_type", x->mime_type);
    mg_jw_kint(w, "size_bytes", x->size);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_kbool(w, "downloadable", true);
    mg_jw_ktime(w, "expires_at", x->expires_us);
    mg_jw_key(w, "scope");
    if (x->session_id.ptr) {
        mg_jw_obj(w);
        mg_jw_kstrz(w, "type", "session");
        mg_jw_kstr(w, "id", x->session_id);
        mg_jw_obj_end(w);
    } else {
        mg_jw_null(w);
    }
    mg_jw_obj_end(w);
}

static mg_rc answer(struct mg_http_res *res, const struct mg_file_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render(&w, x);
    return MG_OK;
}

/* ---- upload ---- */

struct intake {
    struct mg_http_req *req;
    struct mg_objects *objects;
    struct mg_upload *upload;
    struct mg_file_spec spec;
    struct mg_buf field;
    enum { NOTHING, FILE_PART, EXPIRES_PART } part;
};

static mg_rc on_file(struct intake *in, const struct mg_part *p, struct mg_err *err)
{
    struct mg_arena *a = in->req->arena;
    if (in->upload)
        return mg_err_set(err, MG_EINVAL, "file: is given more than once; send one file a request");
    if (!p->filename.ptr)
        return mg_err_set(err, MG_EINVAL, "file: the part needs a filename");
    mg_rc rc = mg_file_name(a, p->filename, p->content_type, &in->spec.filename, err);
    if (rc < 0)
        return rc;
    in->spec.mime_type = mg_file_type(a, p->content_type, in->spec.filename);
    in->part = FILE_PART;
    return mg_upload_begin(in->objects, in->req->pg, mg_req_workspace(in->req), "file", &in->upload, err);
}

static mg_rc on_part(void *ctx, const struct mg_part *p, struct mg_err *err)
{
    struct intake *in = ctx;
    if (mg_sv_eqz(p->name, "file"))
        return on_file(in, p, err);
    if (!mg_sv_eqz(p->name, "expires_in_seconds"))
        return mg_err_set(err, MG_EINVAL,
                          "%.*s: is not a field of this request; its fields are: file, expires_in_seconds",
                          (int)(p->name.len < 80 ? p->name.len : 80), p->name.ptr);
    if (in->spec.expires_in_s)
        return mg_err_set(err, MG_EINVAL, "expires_in_seconds: is given more than once");
    in->part = EXPIRES_PART;
    return MG_OK;
}

static mg_rc on_data(void *ctx, struct mg_sv data, struct mg_err *err)
{
    struct intake *in = ctx;
    if (in->part == EXPIRES_PART) {
        if (mg_buf_sv(&in->field, data) < 0)
            return mg_err_set(err, MG_EINVAL, "expires_in_seconds: must be an integer");
        return MG_OK;
    }
    if (mg_upload_size(in->upload) + (int64_t)data.len > MG_FILE_BYTES_MAX)
        return mg_err_set(err, MG_ETOOBIG, "file: has more than %lld bytes, which a file may have at most",
                          MG_FILE_BYTES_MAX);
    return mg_upload_write(in->upload, data, err);
}

static mg_rc on_end(void *ctx, struct mg_err *err)
{
    struct intake *in = ctx;
    if (in->part == EXPIRES_PART)
        return mg_file_expiry(mg_buf_view(&in->field), &in->spec.expires_in_s, err);
    return MG_OK;
}

static mg_rc receive(struct intake *in, struct mg_err *err)
{
    const struct mg_multipart_ops ops = {.part = on_part, .data = on_data, .end = on_end, .ctx = in};
    mg_rc rc = mg_req_multipart(in->req, &ops, err);
    if (rc >= 0 && !in->upload)
        rc = mg_err_set(err, MG_EINVAL, "file: is missing; send it as a part named 'file' with a filename");
    return rc;
}

mg_rc mg_post_files(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct intake in = {.req = req, .field = MG_BUF_INIT(FIELD_MAX)};
    struct mg_file_row row = {0};
    mg_rc rc = mg_req_objects(req, &in.objects, err);
    if (rc >= 0)
        rc = receive(&in, err);
    mg_buf_done(&in.field);
    if (rc >= 0)
        rc = mg_files_create(req->pg, req->arena, mg_req_who(req), in.upload, &in.spec, &row, err);
    else if (in.upload)
        mg_upload_end(in.upload, req->pg, rc, err);
    return rc < 0 ? rc : answer(res, &row);
}

/* ---- list ---- */

static bool is_id(struct mg_sv word)
{
    struct mg_id id;
    return mg_id_from(word, &id);
}

/* Both ways of paging: cursors, and ids of files. */
static mg_rc parse_ids(struct mg_http_req *req, struct mg_list_query *q, struct mg_file_filter *f, struct mg_err *err)
{
    bool paged = q->cursor.given || mg_http_query(req, "limit").ptr || f->after_id.ptr || f->before_id.ptr;
    if (f->n_ids && paged)
        return mg_err_set(err, MG_EINVAL, "ids: cannot be combined with page, limit, after_id or before_id");
    if ((f->after_id.ptr != NULL) + (f->before_id.ptr != NULL) + q->cursor.given > 1)
        return mg_err_set(err, MG_EINVAL, "page, after_id and before_id: only one of them can be given");
    if (f->n_ids)
        q->limit = IDS_MAX;
    if (f->after_id.ptr)
        q->cursor = (struct mg_cursor){.given = true, .id = f->after_id};
    if (f->before_id.ptr)
        q->cursor = (struct mg_cursor){.given = true, .back = true, .id = f->before_id};
    return MG_OK;
}

static mg_rc parse_list(struct mg_http_req *req, struct mg_list_query *q, struct mg_file_filter *f,
                        struct mg_sv *ret_scope, struct mg_err *err)
{
    struct mg_sv *ids = NULL;
    *f = (struct mg_file_filter){.n_ids = 0};
    mg_rc rc = mg_param_id(req, "scope_id", &f->scope_id, err);
    if (rc >= 0)
        rc = mg_param_id(req, "after_id", &f->after_id, err);
    if (rc >= 0)
        rc = mg_param_id(req, "before_id", &f->before_id, err);
    if (rc >= 0)
        rc = mg_param_words(req, "ids", is_id, "ids of files", &ids, &f->n_ids, err);
    if (rc >= 0)
        rc = mg_param_list(req, &FILES, f->scope_id, q, ret_scope, err);
    f->ids = ids;
    return rc < 0 ? rc : parse_ids(req, q, f, err);
}

mg_rc mg_get_files(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_file_filter f;
    struct mg_list_page page;
    struct mg_file_row *rows;
    struct mg_sv scope, first = {NULL, 0}, last = {NULL, 0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = parse_list(req, &q, &f, &scope, err);
    if (rc >= 0)
        rc = mg_file_list(req->arena, req->pg, &q, &f, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render(&w, &rows[i]);
        last = rows[i].id;
        first = i == 0 ? last : first;
    }
    mg_page_next(&w, req->arena, scope, page.more_after, (struct mg_page_edge){.id = last});
    mg_jw_kbool(&w, "has_more", q.cursor.back ? page.more_before : page.more_after);
    mg_jw_kstr_or_null(&w, "first_id", first);
    mg_jw_kstr_or_null(&w, "last_id", last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

/* ---- one ---- */

mg_rc mg_get_file(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_file_row row = {0};
    mg_rc rc = mg_file_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_delete_file(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_objects *objects;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_req_objects(req, &objects, err);
    if (rc >= 0)
        rc = mg_files_delete(objects, req->pg, req->arena, mg_req_who(req), req->param[0], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[0], "file_deleted");
}

/* ---- download ---- */

struct outlet {
    struct mg_http_req *req;
    struct mg_http_res *res;
    uint64_t length;
    bool begun;
};

/* The head goes out with the first piece: until then a failure is an answer of its own. */
static mg_rc begin(struct outlet *o, struct mg_err *err)
{
    if (o->begun)
        return MG_OK;
    o->begun = true;
    mg_pg_close(o->req->pg); /* a download may take long */
    return mg_http_send_begin(o->req, o->res, o->length, err);
}

static mg_rc send_piece(void *ctx, struct mg_sv data, struct mg_err *err)
{
    struct outlet *o = ctx;
    mg_rc rc = begin(o, err);
    return rc < 0 ? rc : mg_http_send(o->req, data.ptr, data.len, err);
}

static void add_header(struct mg_http_res *res, struct mg_sv name, struct mg_sv value)
{
    res->extra[res->n_extra++] = (struct mg_http_pair){name, value};
}

mg_rc mg_get_file_content(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_file_row row = {0};
    struct mg_objects *objects;
    mg_rc rc = mg_req_objects(req, &objects, err);
    if (rc >= 0)
        rc = mg_file_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    if (rc < 0)
        return rc;
    struct outlet out = {.req = req, .res = res, .length = (uint64_t)row.size};
    res->content_type = mg_arena_strdup(req->arena, row.mime_type);
    add_header(res, MG_SV("content-disposition"), mg_file_disposition(req->arena, row.filename));
    add_header(res, MG_SV("x-content-type-options"), MG_SV("nosniff"));
    add_header(res, MG_SV("content-security-policy"), MG_SV("sandbox; default-src 'none'"));
    if (req->method != MG_HEAD)
        rc = mg_object_read(objects, req->pg, row.object_key, row.size, send_piece, &out, NULL, err);
    return rc < 0 ? rc : begin(&out, err);
}
