/* What a look found is decided and written: in the transaction that commits a call's result, under the session's lock, then the stores' in the order of
 * their ids. */
#include "base/mem.h"
#include "run/memory-internal.h"

struct apply {
    struct mg_memory *m;
    struct mg_memory_delta *d;
    struct mg_step *s;
    struct mg_memory_mount *mount;
    struct mg_memory_actor by;
    bool read_only, archived;
};

/* Once for each state of a file. */
static void tell(struct apply *x, struct mg_memory_change *c, const char *why)
{
    if (!c->told)
        mg_memory_note(x->d, x->mount, mg_sv_of(c->path), "%s", why);
    c->told = true;
}

/* d: where it is no conflict. */
static const char *why_lost(const struct apply *x, const struct mg_memory_change *c, const struct mg_memory_decision *d)
{
    if (c->conflict && x->d->others)
        return "not saved: another writer changed it meanwhile. The file gets that text once no call of another thread "
               "runs: read it then and make your change again";
    if (c->conflict)
        return c->sha[0] ? "not saved: another writer changed it meanwhile. The file has that text now: read it and "
                           "make your change again"
                         : "not deleted: another writer changed it meanwhile. The file is there again with that text";
    if (d->act == MG_MEMORY_KEEP)
        return x->archived ? "not saved: the store is archived; the file stays in this sandbox alone"
                           : "not saved: this session may only read the store; the file stays in this sandbox alone";
    return x->archived ? "not saved: the store is archived; the file is put back as the store has it"
                       : "not saved: this session may only read the store; the file is put back as the store has it";
}

/* ---- acts ---- */

static mg_rc pull(struct mg_memory_change *c, const struct mg_memory_row *head, struct mg_err *err)
{
    c->pull = (struct mg_memory_pull){.mount = c->mount, .path = mg_xstrdup(c->path)};
    return head ? mg_memory_pull_text(&c->pull, head->content.json, head->content.sha256, err) : MG_OK;
}

static mg_rc create(struct apply *x, struct mg_memory_change *c, struct mg_err *err)
{
    struct mg_arena *a = x->s->arena;
    struct mg_err own = {0};
    const struct mg_id id = mg_id_new("mem");
    struct mg_memory_row row = {.id = mg_id_sv(&id), .store_id = mg_id_sv(&x->mount->store), .path = mg_sv_of(c->path)};
    mg_rc rc = mg_memory_content_of(a, mg_sv_n(c->text, c->len), "it", &row.content, &own);
    if (rc >= 0)
        rc = mg_memory_check_place(a, x->s->t, row.store_id, row.path, mg_sv_n(NULL, 0), &own);
    if (rc == MG_EINVAL || rc == MG_ECONFLICT) {
        c->refused = true;
        if (!c->told)
            mg_memory_note(x->d, x->mount, row.path, "not saved: %s", own.text);
        c->told = true;
        return MG_OK;
    }
    if (rc < 0)
        return mg_err_set(err, rc, "%s", own.text);
    memcpy(c->base, c->sha, sizeof(c->base));
    return mg_memory_insert(a, x->s->t, &x->by, &row, err);
}

static mg_rc update(struct apply *x, struct mg_memory_change *c, struct mg_memory_row *row, struct mg_err *err)
{
    mg_rc rc = mg_memory_content_of(x->s->arena, mg_sv_n(c->text, c->len), "it", &row->content, err);
    memcpy(c->base, c->sha, sizeof(c->base));
    return rc < 0 ? rc : mg_memory_save(x->s->arena, x->s->t, &x->by, row, err);
}

/* Threads of a session share its files, and the commits of their calls come in any order: what an earlier look saw is not written over what a later
 * one did. The session's row is locked. */
static void note_applied(const struct apply *x, struct mg_memory_change *c)
{
    pthread_mutex_lock(&x->m->lock);
    struct mg_memory_file *f = mg_memory_file_of(x->mount, mg_sv_of(c->path));
    c->overtaken = f->applied > x->d->look;
    c->conflict = c->overtaken && c->sha[0] && strcmp(f->dropped, c->sha) == 0;
    if (!c->overtaken)
        f->applied = x->d->look;
    pthread_mutex_unlock(&x->m->lock);
}

/* creates: new memories, which come last, since others may make room for them; else everything but those. */
static mg_rc act(struct apply *x, struct mg_memory_change *c, struct mg_memory_place *p, bool creates,
                 struct mg_err *err)
{
    if (c->overtaken) {
        mg_memory_sha_set(c->base, p->base);
        if (c->conflict)
            tell(x, c, why_lost(x, c, NULL));
        return MG_OK;
    }
    const struct mg_memory_sides sides = {
        .local = mg_sv_of(c->sha),
        .base = c->pulled ? mg_sv_of(c->sha) : p->base,
        .head = p->row.id.ptr ? p->row.content.sha256 : MG_SV(""),
        .read_only = x->read_only,
    };
    const struct mg_memory_decision d = mg_memory_decide(&sides);
    if ((d.act == MG_MEMORY_CREATE) != creates)
        return MG_OK;
    c->conflict = d.lost && d.act == MG_MEMORY_PULL && !mg_sv_eq(sides.head, sides.base);
    mg_memory_sha_set(c->base, sides.base);
    if (d.lost)
        tell(x, c, why_lost(x, c, &d));
    c->refused = d.lost && d.act == MG_MEMORY_KEEP;
    if ((d.act == MG_MEMORY_CREATE || d.act == MG_MEMORY_UPDATE) && !c->text)
        return MG_OK; /* not read: the next look has it */
    switch (d.act) {
    case MG_MEMORY_KEEP:
        return MG_OK;
    case MG_MEMORY_ADOPT:
        mg_memory_sha_set(c->base, sides.head);
        return MG_OK;
    case MG_MEMORY_FORGET:
        c->base[0] = '\0';
        return MG_OK;
    case MG_MEMORY_CREATE:
        return create(x, c, err);
    case MG_MEMORY_UPDATE:
        return update(x, c, &p->row, err);
    case MG_MEMORY_DELETE:
        c->base[0] = '\0';
        return mg_memory_delete(x->s->t, &x->by, &p->row, err);
    case MG_MEMORY_PULL:
        return pull(c, &p->row, err);
    case MG_MEMORY_REMOVE:
        return pull(c, NULL, err);
    }
    return MG_EINTERNAL;
}

/* ---- a store ---- */

/* The changes of the store, their places, and what both sides have afterwards. */
static mg_rc apply_changes(struct apply *x, struct mg_memory_change **changes, int n, struct mg_err *err)
{
    struct mg_arena *a = x->s->arena;
    struct mg_sv session = mg_id_sv(&x->s->st.session), store = mg_id_sv(&x->mount->store);
    struct mg_sv *paths = mg_arena_alloc(a, sizeof(*paths) * (size_t)n);
    struct mg_sv *shas = mg_arena_alloc(a, sizeof(*shas) * (size_t)n);
    struct mg_memory_place *places;
    mg_auto(res) struct mg_res *r = NULL;
    for (int i = 0; i < n; i++) {
        paths[i] = mg_sv_of(changes[i]->path);
        note_applied(x, changes[i]);
    }
    mg_rc rc = mg_memory_places(a, x->s->t, session, store, paths, n, &r, &places, err);
    for (int i = 0; i < 2 * n && rc >= 0; i++)
        rc = act(x, changes[i % n], &places[i % n], i >= n, err);
    for (int i = 0; i < n; i++)
        shas[i] = changes[i]->base[0] ? mg_sv_of(changes[i]->base) : mg_sv_n(NULL, 0);
    return rc < 0 ? rc : mg_memory_bases_set(a, x->s->t, session, store, paths, shas, n, err);
}

static mg_rc apply_store(struct apply *x, int mount, struct mg_err *err)
{
    struct mg_arena *a = x->s->arena;
    struct mg_memory_change **changes = mg_arena_alloc(a, sizeof(struct mg_memory_change *) * (size_t)(x->d->n + 1));
    struct mg_memory_store_row row = {.created_us = 0};
    int n = 0;
    for (int i = 0; i < x->d->n; i++)
        if (x->d->changes[i].mount == mount)
            changes[n++] = &x->d->changes[i];
    if (n == 0 && !x->d->reset[mount])
        return MG_OK;
    x->mount = &x->m->mounts[mount];
    mg_rc rc = mg_memory_store_lock(a, x->s->t, mg_id_sv(&x->s->st.workspace), mg_id_sv(&x->mount->store), &row, err);
    if (rc < 0)
        return rc;
    x->archived = row.archived_us != INT64_MIN;
    x->read_only = x->mount->read_only || x->archived;
    if (x->d->reset[mount])
        rc = mg_memory_bases_reset(x->s->t, mg_id_sv(&x->s->st.session), mg_id_sv(&x->mount->store), err);
    return rc < 0 || n == 0 ? rc : apply_changes(x, changes, n, err);
}

/* An earlier try of the same step may have left what became of them. */
static void forget_outcome(struct mg_memory_delta *d)
{
    for (int i = 0; i < d->n; i++) {
        free(d->changes[i].pull.path);
        free(d->changes[i].pull.text);
        d->changes[i].pull = (struct mg_memory_pull){.path = NULL};
        d->changes[i].refused = false;
    }
}

mg_rc mg_memory_apply(struct mg_memory *m, struct mg_memory_delta *d, struct mg_step *s, struct mg_err *err)
{
    struct apply x = {.m = m, .d = d, .s = s, .by = {.kind = "session", .id = mg_id_sv(&s->st.session)}};
    mg_rc rc = MG_OK;
    forget_outcome(d);
    for (int i = 0; i < m->n && rc >= 0; i++)
        rc = apply_store(&x, i, err);
    return rc;
}
