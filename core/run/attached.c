#include "run/attached.h"

#include "base/log.h"
#include "crypto/hash.h"
#include "domain/content-file.h"
#include "object/object.h"
#include "store/session-file.h"

static bool may_name_files(struct mg_sv content)
{
    return content.len && memmem(content.ptr, content.len, "\"file_id\"", 9);
}

static const struct mg_session_file *find(const struct mg_assembly *x, struct mg_sv id)
{
    for (int i = 0; i < x->n_files; i++)
        if (mg_sv_eq(x->files[i].id, id))
            return x->files[i].object_key.ptr ? &x->files[i] : NULL;
    return NULL;
}

static struct mg_json *parse(struct mg_arena *a, struct mg_sv content)
{
    struct mg_json *v = NULL;
    return may_name_files(content) && mg_json_parse(a, content, &mg_json_raw_limits, &v, NULL) >= 0 ? v : NULL;
}

/* ---- weight ---- */

static int64_t tokens_of(struct mg_arena *a, const struct mg_assembly *x, struct mg_sv content)
{
    const struct mg_json *v = parse(a, content);
    int64_t tokens = 0;
    for (const struct mg_json *b = v ? v->child : NULL; b; b = b->next) {
        struct mg_sv id;
        enum mg_content_kind kind;
        enum mg_content_place place = mg_content_file_of(a, b, &id);
        const struct mg_session_file *f = place == MG_PLACE_DOCUMENT ? find(x, id) : NULL;
        if (f && mg_content_file_kind(place, f->mime_type, f->size, &kind, NULL) >= 0)
            tokens += kind == MG_KIND_PDF ? mg_content_pdf_tokens(f->size) : mg_content_text_tokens(f->size);
    }
    return tokens;
}

mg_rc mg_attached_weigh(struct mg_pg *pg, struct mg_arena *a, const struct mg_id *session, struct mg_assembly *x,
                        struct mg_err *err)
{
    struct mg_context *c = &x->context;
    bool any = false;
    for (int i = 0; i < c->n && !any; i++)
        any = may_name_files(c->entries[i].content);
    if (!any)
        return MG_OK;
    mg_rc rc = mg_session_files_of(a, pg, mg_id_sv(session), &x->files, &x->n_files, err);
    for (int i = 0; i < c->n && rc >= 0; i++)
        if (!c->entries[i].assistant)
            c->entries[i].tokens = mg_content_tokens(c->entries[i].content) + tokens_of(a, x, c->entries[i].content);
    return rc;
}

/* ---- bytes ---- */

struct filling {
    struct mg_run *run;
    struct mg_pg *pg;
    struct mg_arena *a;
    struct mg_assembly *x;
    int64_t left; /* bytes that the files of this request may still have */
};

static void put_note(struct mg_jw *w, struct mg_sv text)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "text");
    mg_jw_kstr(w, "text", text);
    mg_jw_obj_end(w);
}

static void put_source(struct mg_jw *w, enum mg_content_kind kind, struct mg_sv mime, struct mg_sv data)
{
    bool text = kind == MG_KIND_TEXT;
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", text ? "text" : "base64");
    mg_jw_kstr(w, "media_type", mime);
    mg_jw_key(w, "data");
    if (text) {
        mg_jw_str(w, data);
    } else {
        mg_jw_raw(w, MG_SV("\""));
        (void)mg_base64_encode(w->out, data);
        (void)mg_buf_char(w->out, '"');
    }
    mg_jw_obj_end(w);
}

/* The block with its members in their order, and the bytes as its source. */
static mg_rc put_filled(struct filling *f, const struct mg_json *b, enum mg_content_place place,
                        const struct mg_session_file *file, struct mg_jw *w, bool *ret_lost, struct mg_err *err)
{
    enum mg_content_kind kind = MG_KIND_TEXT;
    struct mg_sv mime = mg_media_type(file->mime_type);
    mg_auto(buf) struct mg_buf data = MG_BUF_INIT((size_t)file->size + 1);
    mg_rc rc =
        mg_object_load(f->run->engine->opts.objects, f->pg, file->object_key, file->size, &data, f->run->cancel, err);
    *ret_lost = rc == MG_EIO && err->code[0] && strcmp(err->code, MG_OBJECT_LOST) == 0;
    if (rc < 0)
        return *ret_lost ? MG_OK : rc;
    *ret_lost = mg_content_file_kind(place, mime, file->size, &kind, NULL) < 0 ||
                mg_content_file_check(kind, mime, mg_buf_view(&data), NULL) < 0;
    if (*ret_lost)
        return MG_OK;
    mg_jw_obj(w);
    for (const struct mg_json *m = b->child; m; m = m->next) {
        mg_jw_key_sv(w, m->key);
        if (mg_sv_eqz(m->key, "source"))
            put_source(w, kind, mime, mg_buf_view(&data));
        else
            mg_jw_raw(w, m->raw);
    }
    mg_jw_obj_end(w);
    return MG_OK;
}

static void add_lost(struct filling *f, int entry, int64_t block, struct mg_sv id)
{
    struct mg_assembly *x = f->x;
    if (x->n_lost == MG_LOST_MAX)
        return; /* the next request finds the rest */
    x->lost[x->n_lost++] = (struct mg_context_mark){
        .kind = MG_MARK_REPLACED,
        .made_at = x->in.len,
        .turn = x->in.turn,
        .a = x->context.entries[entry].number,
        .b = block,
        .content =
            mg_arena_printf(f->a, "[left out: the bytes of the file '%.*s' are not there any more]", MG_SV_ARG(id)),
    };
}

static mg_rc put_block(struct filling *f, int entry, int64_t number, const struct mg_json *b, struct mg_jw *w,
                       struct mg_err *err)
{
    struct mg_sv id;
    bool lost = false;
    enum mg_content_place place = mg_content_file_of(f->a, b, &id);
    const struct mg_session_file *file = place == MG_PLACE_NONE ? NULL : find(f->x, id);
    if (place == MG_PLACE_NONE) {
        mg_jw_raw(w, b->raw);
        return MG_OK;
    }
    if (file && file->size > f->left) {
        put_note(w, mg_arena_printf(f->a, "[left out: the files of one request may have %d bytes together]",
                                    MG_CONTENT_FILES_BYTES));
        return MG_OK;
    }
    mg_rc rc = file && f->run->engine->opts.objects ? put_filled(f, b, place, file, w, &lost, err) : MG_OK;
    if (rc >= 0 && (lost || !file || !f->run->engine->opts.objects))
        add_lost(f, entry, number, id);
    else if (rc >= 0)
        f->left -= file->size;
    return rc;
}

static mg_rc fill_entry(struct filling *f, int i, struct mg_request_entry *entry, struct mg_err *err)
{
    const struct mg_json *v = parse(f->a, entry->content);
    if (!v || !mg_json_is(v, MG_JSON_ARRAY))
        return MG_OK;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(entry->content.len + 2 * (size_t)MG_CONTENT_FILES_BYTES);
    struct mg_jw w = mg_jw_to(&out);
    int64_t number = 0;
    mg_rc rc = MG_OK;
    mg_jw_arr(&w);
    for (const struct mg_json *b = v->child; b && rc >= 0; b = b->next)
        rc = put_block(f, i, number++, b, &w, err);
    mg_jw_arr_end(&w);
    if (rc >= 0 && !mg_buf_ok(&out))
        rc = mg_err_set(err, MG_ETOOBIG, "a message with its files is too large for a request");
    if (rc < 0 || f->x->n_lost)
        return rc;
    size_t len = 0;
    char *bytes = mg_buf_steal(&out, &len);
    f->x->owned[f->x->n_owned++] = bytes;
    entry->content = mg_sv_n(bytes, len);
    return MG_OK;
}

mg_rc mg_attached_fill(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                       struct mg_err *err)
{
    struct filling f = {.run = r, .pg = pg, .a = a, .x = x, .left = MG_CONTENT_FILES_BYTES};
    struct mg_request *q = &x->request;
    if (x->in.grade || !x->files)
        return MG_OK;
    struct mg_request_entry *entries = mg_arena_alloc(a, sizeof(*entries) * (size_t)q->n_entries);
    memcpy(entries, q->entries, sizeof(*entries) * (size_t)q->n_entries);
    x->owned = mg_arena_alloc(a, sizeof(*x->owned) * (size_t)q->n_entries);
    x->lost = mg_arena_alloc(a, sizeof(*x->lost) * MG_LOST_MAX);
    q->entries = entries;
    mg_rc rc = MG_OK;
    for (int i = q->n_entries - 1; i >= 0 && rc >= 0; i--)
        if (!entries[i].assistant && i < x->context.n)
            rc = fill_entry(&f, i, &entries[i], err);
    return rc;
}

/* ---- what is gone ---- */

mg_rc mg_run_attached_lost(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, const struct mg_assembly *x,
                           struct mg_session_state *ret_st, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc >= 0 && s.st.turn_step != MG_TURN_MODEL)
        rc = mg_err_set(err, MG_EFENCED, "the turn moved on");
    for (int i = 0; i < x->n_lost && rc >= 0; i++) {
        struct mg_sv text = x->lost[i].content;
        rc = mg_context_mark_add(a, s.t, &s.st.session, &s.st.thread, &x->lost[i], err);
        mg_step_event(
            &s, MG_EV_SESSION_ERROR,
            mg_members_error(a, "unknown_error",
                             mg_arena_printf(a,
                                             "a file of a message cannot be shown to the model: %.*s; this "
                                             "note stands for it from here on. Send the content anew if it is "
                                             "needed",
                                             MG_SV_ARG(text))
                                 .ptr,
                             "retrying"),
            true);
    }
    if (rc >= 0)
        rc = mg_step_commit(&s, "turn.file_lost", err);
    if (rc >= 0)
        mg_log(MG_WARN, "files of messages are gone", MG_F_STR("session", r->session.s), MG_F_INT("files", x->n_lost));
    *ret_st = s.st;
    return rc;
}
