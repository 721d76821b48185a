/* /v1/skills */
#include <inttypes.h>
#include <stdatomic.h>

#include "api/render.h"
#include "base/utf8.h"
#include "domain/skill.h"
#include "domain/zip.h"
#include "service/skill.h"

enum {
    FIELD_MAX = 4096, /* bytes of a plain field */
    UPLOADS_MAX = 4,  /* bundles that are held in memory at once; each has up to 30 MB, twice for a moment */
};

static const struct mg_list_kind SKILLS = {.name = "skills", .limit = 20, .limit_max = 100};
static const struct mg_list_kind VERSIONS = {.name = "skill_versions", .limit = 20, .limit_max = 1000};
static atomic_int uploads;

/* ---- shapes: the union of both dialects, but for source, which conflicts ---- */

static bool old_dialect(const struct mg_http_req *req)
{
    struct mg_sv beta = req->anthropic_beta;
    return (beta.len && memmem(beta.ptr, beta.len, "skills-2025-10-02", 17)) ||
           mg_sv_eqz(req->anthropic_version, "2023-06-01");
}

static void version_or_null(struct mg_jw *w, struct mg_arena *a, const char *key, int64_t version)
{
    if (version)
        mg_jw_kstr(w, key, mg_arena_printf(a, "%" PRId64, version));
    else
        mg_jw_knull(w, key);
}

static void render_source(struct mg_jw *w, const struct mg_http_req *req, struct mg_sv id)
{
    const char *source = mg_skill_is_vendors(id) ? "anthropic" : "custom";
    mg_jw_key(w, "source");
    if (old_dialect(req)) {
        mg_jw_str(w, mg_sv_of(source));
        return;
    }
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", source);
    mg_jw_obj_end(w);
}

static void render_skill(struct mg_jw *w, const struct mg_http_req *req, const struct mg_skill_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "skill");
    mg_jw_kstr(w, "display_name", x->display_name);
    mg_jw_kstr(w, "display_title", x->display_name);
    version_or_null(w, req->arena, "latest_version_id", x->latest);
    version_or_null(w, req->arena, "latest_version", x->latest);
    render_source(w, req, x->id);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_obj_end(w);
}

static void render_version(struct mg_jw *w, const struct mg_http_req *req, const struct mg_skill_version_row *x)
{
    mg_jw_obj(w);
    version_or_null(w, req->arena, "id", x->version);
    mg_jw_kstrz(w, "type", "skill_version");
    mg_jw_kstr(w, "skill_id", x->skill_id);
    version_or_null(w, req->arena, "version", x->version);
    mg_jw_kstr(w, "name", x->name);
    mg_jw_kstr(w, "description", x->description);
    mg_jw_kstr(w, "directory", x->directory);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_obj_end(w);
}

static mg_rc answer_skill(const struct mg_http_req *req, struct mg_http_res *res, const struct mg_skill_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render_skill(&w, req, x);
    return MG_OK;
}

static mg_rc answer_version(const struct mg_http_req *req, struct mg_http_res *res,
                            const struct mg_skill_version_row *x)
{
    struct mg_jw w = mg_jw_to(&res->body);
    render_version(&w, req, x);
    return MG_OK;
}

/* ---- upload ---- */

struct intake {
    struct mg_http_req *req;
    struct mg_skill_file *files;
    size_t *starts; /* of each file in bytes */
    int n;
    struct mg_buf bytes, field;
    struct mg_sv title; /* ptr NULL: none */
    bool takes_title, vendors;
    enum { FILE_PART, TITLE_PART, SOURCE_PART } part;
};

static mg_rc on_part(void *ctx, const struct mg_part *p, struct mg_err *err)
{
    struct intake *in = ctx;
    bool title = mg_sv_eqz(p->name, "display_name") || mg_sv_eqz(p->name, "display_title");
    if (title && in->takes_title) {
        if (in->title.ptr)
            return mg_err_set(err, MG_EINVAL, "display_name: is given more than once");
        in->part = TITLE_PART;
        mg_buf_reset(&in->field);
        return MG_OK;
    }
    if (mg_sv_eqz(p->name, "source") && in->takes_title) {
        in->part = SOURCE_PART;
        mg_buf_reset(&in->field);
        return MG_OK;
    }
    if (!mg_sv_eqz(p->name, "files[]") && !mg_sv_eqz(p->name, "files"))
        return mg_err_set(err, MG_EINVAL, "%.*s: is not a field of this request; its fields are: files[]%s",
                          (int)(p->name.len < 80 ? p->name.len : 80), p->name.ptr,
                          in->takes_title ? ", display_name, source" : "");
    if (!p->filename.ptr)
        return mg_err_set(err, MG_EINVAL,
                          "files: each part needs a filename with its folder, such as greeting/SKILL.md");
    if (in->n == MG_SKILL_FILES_MAX)
        return mg_err_set(err, MG_EINVAL, "files: at most %d files are allowed", MG_SKILL_FILES_MAX);
    in->part = FILE_PART;
    in->starts[in->n] = in->bytes.len;
    in->files[in->n++] = (struct mg_skill_file){.path = mg_arena_sv(in->req->arena, p->filename)};
    return mg_sv_ends(p->filename, ".zip") && in->n == 1 ? MG_OK : mg_skill_path_check(p->filename, err);
}

static mg_rc on_data(void *ctx, struct mg_sv data, struct mg_err *err)
{
    struct intake *in = ctx;
    if (in->part != FILE_PART)
        return mg_buf_sv(&in->field, data) < 0
                   ? mg_err_set(err, MG_EINVAL, "%s: is too long", in->part == TITLE_PART ? "display_name" : "source")
                   : MG_OK;
    if (mg_buf_sv(&in->bytes, data) < 0)
        return mg_err_set(err, MG_EINVAL, "files: must have less than %d bytes together", MG_SKILL_BYTES_MAX);
    return MG_OK;
}

static mg_rc check_source(struct mg_sv s, bool *ret_vendors, struct mg_err *err)
{
    *ret_vendors = mg_sv_eqz(s, "anthropic");
    if (!*ret_vendors && !mg_sv_eqz(s, "custom"))
        return mg_err_set(err, MG_EINVAL, "source: must be custom or anthropic");
    return MG_OK;
}

static mg_rc on_end(void *ctx, struct mg_err *err)
{
    struct intake *in = ctx;
    if (in->part == SOURCE_PART)
        return check_source(mg_buf_view(&in->field), &in->vendors, err);
    if (in->part != TITLE_PART)
        return MG_OK;
    struct mg_sv s = mg_sv_trim(mg_buf_view(&in->field));
    if (s.len == 0 || !mg_utf8_valid(s, NULL) || mg_utf8_count(s) > MG_SKILL_TITLE_MAX)
        return mg_err_set(err, MG_EINVAL, "display_name: must have 1 to %d characters", MG_SKILL_TITLE_MAX);
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < ' ' || s.ptr[i] == 0x7f)
            return mg_err_set(err, MG_EINVAL, "display_name: must not hold control characters");
    in->title = mg_arena_sv(in->req->arena, s);
    return MG_OK;
}

static mg_rc receive(struct intake *in, struct mg_err *err)
{
    const struct mg_multipart_ops ops = {.part = on_part, .data = on_data, .end = on_end, .ctx = in};
    mg_rc rc = mg_req_multipart(in->req, &ops, err);
    if (rc >= 0 && in->n == 0)
        rc = mg_err_set(err, MG_EINVAL, "files: is missing; send the files of the skill as parts named 'files[]'");
    for (int i = 0; i < in->n; i++) {
        size_t end = i + 1 < in->n ? in->starts[i + 1] : in->bytes.len;
        in->files[i].content = mg_sv_n(mg_buf_view(&in->bytes).ptr + in->starts[i], end - in->starts[i]);
    }
    return rc;
}

/* One part that is an archive stands for its members. */
static mg_rc expand(struct intake *in, struct mg_err *err)
{
    if (in->n != 1 || !mg_sv_ends(in->files[0].path, ".zip"))
        return MG_OK;
    return mg_zip_read(in->req->arena, in->files[0].content, &in->files, &in->n, err);
}

static mg_rc take_bundle(struct mg_http_req *req, struct mg_objects *objects, struct mg_sv skill_id,
                         struct mg_skill_version_row *ret, struct mg_err *err)
{
    struct intake in = {
        .req = req,
        .files = mg_arena_alloc(req->arena, sizeof(*in.files) * MG_SKILL_FILES_MAX),
        .starts = mg_arena_alloc(req->arena, sizeof(*in.starts) * MG_SKILL_FILES_MAX),
        .bytes = MG_BUF_INIT(MG_SKILL_BYTES_MAX),
        .field = MG_BUF_INIT(FIELD_MAX),
        .takes_title = skill_id.len == 0,
    };
    mg_rc rc = receive(&in, err);
    if (rc >= 0)
        rc = expand(&in, err);
    if (rc >= 0)
        rc = mg_skills_create(
            objects, req->pg, req->arena, mg_req_who(req),
            &(struct mg_skill_new){
                .skill_id = skill_id, .display_name = in.title, .vendors = in.vendors, .files = in.files, .n = in.n},
            ret, err);
    mg_buf_done(&in.bytes);
    mg_buf_done(&in.field);
    return rc;
}

static mg_rc upload(struct mg_http_req *req, struct mg_sv skill_id, struct mg_skill_version_row *ret,
                    struct mg_err *err)
{
    struct mg_objects *objects;
    mg_rc rc = mg_req_objects(req, &objects, err);
    if (rc < 0)
        return rc;
    if (atomic_fetch_add(&uploads, 1) >= UPLOADS_MAX) {
        atomic_fetch_sub(&uploads, 1);
        err->retry_after_s = 1;
        return mg_err_set(err, MG_EUNAVAIL, "the server takes as many skills at once as it may hold; try again");
    }
    rc = take_bundle(req, objects, skill_id, ret, err);
    atomic_fetch_sub(&uploads, 1);
    return rc;
}

mg_rc mg_post_skills(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_skill_version_row version = {0};
    struct mg_skill_row row = {0};
    mg_rc rc = upload(req, MG_SV(""), &version, err);
    if (rc >= 0)
        rc = mg_skill_get(req->arena, req->pg, mg_req_workspace(req), version.skill_id, &row, err);
    return rc < 0 ? rc : answer_skill(req, res, &row);
}

mg_rc mg_post_skill_versions(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_skill_version_row version = {0};
    struct mg_skill_row row = {0};
    mg_rc rc = mg_skill_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    if (rc >= 0)
        rc = upload(req, req->param[0], &version, err);
    return rc < 0 ? rc : answer_version(req, res, &version);
}

/* ---- lists ---- */

/* Empty: both. */
static mg_rc parse_source(struct mg_http_req *req, struct mg_sv *ret, struct mg_err *err)
{
    bool vendors;
    *ret = mg_sv_n(NULL, 0);
    mg_rc rc = mg_param_one(req, "source", ret, err);
    if (rc >= 0 && ret->ptr)
        rc = check_source(*ret, &vendors, err);
    if (rc >= 0 && !ret->ptr)
        *ret = MG_SV("");
    return rc;
}

mg_rc mg_get_skills(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_skill_row *rows;
    struct mg_sv scope, source, last = MG_SV("");
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = parse_source(req, &source, err);
    if (rc >= 0)
        rc = mg_param_list(req, &SKILLS, MG_SV(""), &q, &scope, err);
    if (rc >= 0)
        rc = mg_skill_list(req->arena, req->pg, &q, source, &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render_skill(&w, req, &rows[i]);
        last = rows[i].id;
    }
    mg_page_next(&w, req->arena, scope, page.more_after, (struct mg_page_edge){.id = last});
    mg_jw_kbool(&w, "has_more", page.more_after);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_get_skill_versions(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_skill_row skill = {0};
    struct mg_skill_version_row *rows;
    struct mg_sv scope = {0};
    int64_t last = 0;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_skill_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &skill, err);
    if (rc >= 0)
        rc = mg_param_list(req, &VERSIONS, req->param[0], &q, &scope, err);
    if (rc >= 0)
        rc = mg_skill_version_list(req->arena, req->pg, &q, req->param[0], &r, &rows, &page, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_page_begin(res);
    for (int i = 0; i < page.n; i++) {
        render_version(&w, req, &rows[i]);
        last = rows[i].version;
    }
    mg_page_next(&w, req->arena, scope, page.more_after, (struct mg_page_edge){.pos = last});
    mg_jw_kbool(&w, "has_more", page.more_after);
    mg_jw_obj_end(&w);
    return MG_OK;
}

/* ---- one ---- */

mg_rc mg_get_skill(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_skill_row row = {0};
    mg_rc rc = mg_skill_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer_skill(req, res, &row);
}

mg_rc mg_get_skill_version(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_skill_version_row row = {0};
    mg_rc rc =
        mg_skill_version_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], req->param[1], &row, err);
    return rc < 0 ? rc : answer_version(req, res, &row);
}

mg_rc mg_delete_skill(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_skills_delete(mg_req_app(req)->objects, req->pg, req->arena, mg_req_who(req), req->param[0],
                              !old_dialect(req), err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[0], "skill_deleted");
}

mg_rc mg_delete_skill_version(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_skills_delete_version(mg_req_app(req)->objects, req->pg, req->arena, mg_req_who(req), req->param[0],
                                      req->param[1], err);
    return rc < 0 ? rc : mg_res_deleted(res, req->param[1], "skill_version_deleted");
}

static mg_rc send_piece(void *ctx, struct mg_sv data, struct mg_err *err)
{
    return mg_http_send(ctx, data.ptr, data.len, err);
}

mg_rc mg_get_skill_content(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_skill_version_row row = {0};
    struct mg_objects *objects;
    if (mg_sv_eqz(req->param[1], "latest"))
        return mg_err_set(err, MG_EINVAL,
                          "version: must be the id of a version here; ask for 'latest' without /content");
    mg_rc rc =
        mg_skill_version_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], req->param[1], &row, err);
    if (rc >= 0)
        rc = mg_req_objects(req, &objects, err);
    if (rc < 0)
        return rc;
    res->content_type = "application/zip";
    res->extra[res->n_extra++] =
        (struct mg_http_pair){MG_SV("content-disposition"),
                              mg_arena_printf(req->arena, "attachment; filename=\"%.*s.zip\"", MG_SV_ARG(row.name))};
    rc = mg_http_send_begin(req, res, (uint64_t)row.size, err);
    if (rc >= 0 && req->method != MG_HEAD)
        rc = mg_object_read(objects, req->pg, row.object_key, row.size, send_piece, req, NULL, err);
    return rc;
}
