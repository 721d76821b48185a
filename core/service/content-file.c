#include "service/content-file.h"

#include "base/buf.h"
#include "base/mem.h"
#include "domain/content-file.h"
#include "object/object.h"
#include "store/file.h"
#include "store/session-file.h"

struct reading {
    struct mg_objects *objects;
    struct mg_pg *pg;
    struct mg_arena *a;
    struct mg_sv workspace;
    int64_t left; /* bytes that the files of this request may still have */
};

static mg_rc check_sum(struct reading *r, int64_t size, struct mg_err *err)
{
    r->left -= size;
    if (r->left < 0)
        return mg_err_set(err, MG_EINVAL, "the files of one request may have at most %d bytes together",
                          MG_CONTENT_FILES_BYTES);
    return MG_OK;
}

/* ret_text (may be NULL): the content itself. */
static mg_rc read_one(struct reading *r, enum mg_content_place place, struct mg_sv id, struct mg_sv *ret_text,
                      struct mg_err *err)
{
    struct mg_file_row row = {0};
    enum mg_content_kind kind = MG_KIND_TEXT;
    if (!r->objects)
        return mg_err_set(err, MG_EINVAL, "this server has no object store, and so no files");
    mg_rc rc = mg_file_get(r->a, r->pg, r->workspace, id, &row, err);
    if (rc == MG_ENOTFOUND && !err->code[0])
        rc = mg_err_code(err, rc, "file_not_found", "file '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
    if (rc >= 0)
        rc = mg_content_file_kind(place, row.mime_type, row.size, &kind, err);
    if (rc >= 0)
        rc = check_sum(r, row.size, err);
    if (rc < 0)
        return rc;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT((size_t)row.size + 1);
    rc = mg_object_load(r->objects, r->pg, row.object_key, row.size, &b, NULL, err);
    if (rc >= 0)
        rc = mg_content_file_check(kind, row.mime_type, mg_buf_view(&b), err);
    if (rc >= 0 && ret_text)
        *ret_text = mg_arena_sv(r->a, mg_buf_view(&b));
    return rc;
}

/* A draft that names none costs a look for the word. */
static bool may_name_files(const struct mg_draft *d)
{
    return d->type == MG_EV_USER_MESSAGE && d->content.len && memmem(d->content.ptr, d->content.len, "file_id", 7);
}

static mg_rc read_blocks(struct reading *r, struct mg_draft *d, const char *place, struct mg_err *err)
{
    struct mg_json *content;
    mg_rc rc = mg_json_parse(r->a, d->content, &mg_json_raw_limits, &content, err);
    if (rc < 0)
        return rc;
    unsigned i = 0;
    d->files = mg_arena_alloc(r->a, sizeof(*d->files) * (content->n + 1));
    for (const struct mg_json *b = content->child; b && rc >= 0; b = b->next, i++) {
        struct mg_sv id;
        enum mg_content_place at = mg_content_file_of(r->a, b, &id);
        if (at == MG_PLACE_NONE)
            continue;
        rc = read_one(r, at, id, NULL, err);
        if (rc < 0)
            return mg_err_wrap(err, rc, "%s.content[%u].source.file_id", place, i);
        d->files[d->n_files++] = id;
    }
    return rc;
}

mg_rc mg_content_files_read(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, struct mg_sv workspace,
                            const char *path, struct mg_draft *drafts, int n, struct mg_err *err)
{
    struct reading r = {.objects = o, .pg = pg, .a = a, .workspace = workspace, .left = MG_CONTENT_FILES_BYTES};
    mg_rc rc = MG_OK;
    for (int i = 0; i < n && rc >= 0; i++) {
        char place[MG_PATH_MAX];
        (void)mg_place_at(place, path, (unsigned)i);
        if (may_name_files(&drafts[i]))
            rc = read_blocks(&r, &drafts[i], place, err);
        if (rc < 0 || !drafts[i].rubric_file.len)
            continue;
        rc = read_one(&r, MG_PLACE_RUBRIC, drafts[i].rubric_file, &drafts[i].rubric, err);
        if (rc < 0)
            rc = mg_err_wrap(err, rc, "%s.rubric.file_id", place);
    }
    return rc;
}

mg_rc mg_content_files_pin(struct mg_txn *t, const struct mg_id *session, const struct mg_draft *d, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = 0; i < d->n_files && rc >= 0; i++)
        rc = mg_session_file_pin(t, mg_id_sv(session), d->files[i], err);
    return rc;
}
