#include "service/memory.h"

#include "domain/check.h"
#include "domain/resource.h"
#include "json/write.h"
#include "store/work.h"

/* ---- stores ---- */

mg_rc mg_memory_stores_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                              const struct mg_json *body, struct mg_memory_store_row *ret, struct mg_err *err)
{
    struct mg_memory_store x;
    const struct mg_id id = mg_id_new("memstore");
    mg_rc rc = mg_memory_store_parse_create(a, body, &x, err);
    return rc < 0 ? rc : mg_memory_store_insert(a, pg, mg_id_sv(&who->workspace), &id, &x, ret, err);
}

static mg_rc not_archived(const struct mg_memory_store_row *row, struct mg_err *err)
{
    if (row->archived_us == INT64_MIN)
        return MG_OK;
    return mg_err_code(err, MG_EINVAL, "memory_store_archived",
                       "memory store '%.*s' is archived and takes no changes but deletes and redactions",
                       MG_SV_ARG(row->id));
}

mg_rc mg_memory_stores_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                              const struct mg_json *body, struct mg_memory_store_row *ret, struct mg_err *err)
{
    struct mg_memory_store x;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_memory_store_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc >= 0)
        rc = not_archived(ret, err);
    if (rc >= 0)
        rc = mg_memory_store_parse_update(a, body, &ret->store, &x, err);
    if (rc >= 0)
        rc = mg_memory_store_save(a, &t, ret, &x, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_memory_stores_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                               struct mg_memory_store_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_memory_store_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc < 0 || ret->archived_us != INT64_MIN)
        return rc;
    rc = mg_memory_store_set_archived(&t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_memory_stores_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                              struct mg_err *err)
{
    struct mg_memory_store_row row;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_memory_store_lock(a, &t, mg_id_sv(&who->workspace), id, &row, err);
    if (rc >= 0)
        rc = mg_memory_store_delete(&t, &row, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

/* ---- stores of sessions ---- */

/* As the session shows it. mount_path null: the worker puts it into its own workspace (contract 8.2). */
static struct mg_sv shown(struct mg_arena *a, const struct mg_memory_store_row *s, const struct mg_resource_spec *spec,
                          bool self_hosted)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "memory_store");
    mg_jw_kstr(&w, "memory_store_id", s->id);
    mg_jw_kstrz(&w, "access", spec->read_only ? "read_only" : "read_write");
    mg_jw_kstr(&w, "name", s->store.name);
    mg_jw_kstr(&w, "description", s->store.description);
    mg_jw_kstr_or_null(&w, "instructions", spec->instructions);
    mg_jw_kstr_or_null(
        &w, "mount_path",
        self_hosted ? mg_sv_n(NULL, 0)
                    : mg_arena_printf(a, MG_MOUNT_MEMORY "/%.*s", MG_SV_ARG(mg_memory_slug(a, s->store.name, s->id))));
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

mg_rc mg_memory_stores_attach(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv session,
                              bool self_hosted, int place, const struct mg_resource_spec *spec, struct mg_err *err)
{
    struct mg_memory_store_row s = {.created_us = 0};
    mg_rc rc = mg_memory_store_share(a, t, workspace, spec->memory_store_id, &s, err);
    if (rc >= 0)
        rc = not_archived(&s, err);
    if (rc < 0)
        return rc;
    return mg_session_store_insert(a, t, session, s.id, place, spec->read_only, mg_memory_slug(a, s.store.name, s.id),
                                   shown(a, &s, spec, self_hosted), err);
}

/* ---- changes of memories ---- */

static struct mg_memory_actor actor_of(const struct mg_principal *who)
{
    if (who->kind == MG_BY_ITEM_TOKEN)
        return (struct mg_memory_actor){.kind = "session", .id = mg_id_sv(&who->session)};
    return (struct mg_memory_actor){.kind = "api", .id = mg_id_sv(&who->key)};
}

/* The claim first, then the store: the order of locks of semantics WK24. */
static mg_rc begin(struct mg_arena *a, struct mg_txn *t, const struct mg_principal *who, struct mg_sv store,
                   struct mg_memory_store_row *ret, struct mg_err *err)
{
    mg_rc rc = who->kind == MG_BY_ITEM_TOKEN ? mg_work_fence(t, mg_id_sv(&who->work), &who->session, err) : MG_OK;
    return rc < 0 ? rc : mg_memory_store_lock(a, t, mg_id_sv(&who->workspace), store, ret, err);
}

mg_rc mg_memories_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv store,
                         const struct mg_json *body, struct mg_memory_row *ret, struct mg_err *err)
{
    struct mg_memory_wish w;
    struct mg_memory_store_row s = {.created_us = 0};
    const struct mg_memory_actor by = actor_of(who);
    struct mg_id *id = mg_arena_new_of(a, struct mg_id);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    *id = mg_id_new("mem");
    mg_rc rc = mg_memory_parse_create(a, body, &w, err);
    if (rc >= 0)
        rc = begin(a, &t, who, store, &s, err);
    if (rc >= 0)
        rc = not_archived(&s, err);
    if (rc >= 0)
        rc = mg_memory_check_place(a, &t, s.id, w.path, mg_sv_n(NULL, 0), err);
    if (rc < 0)
        return rc;
    *ret = (struct mg_memory_row){.id = mg_id_sv(id), .store_id = s.id, .path = w.path, .content = w.content};
    rc = mg_memory_insert(a, &t, &by, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

static mg_rc precondition_failed(struct mg_err *err)
{
    (void)mg_err_set(err, MG_ECONFLICT,
                     "the memory has changed: its content_sha256 is not the expected one; read it and decide again");
    if (err)
        err->type = "memory_precondition_failed_error";
    return MG_ECONFLICT;
}

/* What the memory becomes. False: it is that already. */
static bool apply(struct mg_memory_row *m, const struct mg_memory_wish *w)
{
    bool moves = w->path.ptr && !mg_sv_eq(w->path, m->path);
    bool changes = w->content.json.ptr && !mg_sv_eq(w->content.sha256, m->content.sha256);
    if (moves)
        m->path = w->path;
    if (changes)
        m->content = w->content;
    return moves || changes;
}

mg_rc mg_memories_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv store,
                         struct mg_sv id, const struct mg_json *body, struct mg_memory_row *ret, struct mg_err *err)
{
    struct mg_memory_wish w;
    struct mg_memory_store_row s = {.created_us = 0};
    const struct mg_memory_actor by = actor_of(who);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_memory_parse_update(a, body, &w, err);
    if (rc >= 0)
        rc = begin(a, &t, who, store, &s, err);
    if (rc >= 0)
        rc = not_archived(&s, err);
    if (rc >= 0)
        rc = mg_memory_read(a, &t, s.id, id, ret, err);
    if (rc < 0)
        return rc;
    struct mg_sv had = ret->content.sha256, was = ret->path;
    if (!apply(ret, &w))
        return MG_OK; /* a repeat of what is done succeeds, whatever its precondition: semantics ME3 */
    if (w.precondition.ptr && !mg_sv_eq(w.precondition, had))
        return precondition_failed(err);
    if (!mg_sv_eq(ret->path, was))
        rc = mg_memory_check_place(a, &t, s.id, ret->path, ret->id, err);
    if (rc >= 0)
        rc = mg_memory_save(a, &t, &by, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_memories_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv store,
                         struct mg_sv id, struct mg_sv expected, struct mg_err *err)
{
    struct mg_memory_row m;
    struct mg_memory_store_row s = {.created_us = 0};
    const struct mg_memory_actor by = actor_of(who);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    if (expected.ptr && !mg_memory_sha_ok(expected))
        return mg_err_set(err, MG_EINVAL, "expected_content_sha256: must have %d lowercase hexadecimal digits",
                          MG_MEMORY_SHA);
    mg_rc rc = begin(a, &t, who, store, &s, err);
    if (rc >= 0)
        rc = mg_memory_read(a, &t, s.id, id, &m, err);
    if (rc < 0)
        return rc;
    if (expected.ptr && !mg_sv_eq(expected, m.content.sha256))
        return precondition_failed(err);
    rc = mg_memory_delete(&t, &by, &m, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_memory_versions_redact(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                                struct mg_sv store, struct mg_sv id, struct mg_memory_version_row *ret,
                                struct mg_err *err)
{
    struct mg_memory_store_row s = {.created_us = 0};
    const struct mg_memory_actor by = actor_of(who);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_memory_store_lock(a, &t, mg_id_sv(&who->workspace), store, &s, err);
    if (rc >= 0)
        rc = mg_memory_version_redact(a, &t, s.id, id, &by, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}
