#include "run/memory.h"

#include <stdio.h>

#include "base/hook.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/write.h"
#include "run/memory-internal.h"
#include "tools/result.h"

enum {
    ROUNDS = 4096, /* of one sync, which ends before that unless others write all the time */
};

static bool has_work(const struct mg_memory_delta *d)
{
    bool reset = false;
    for (int i = 0; i < MG_SESSION_STORES_MAX; i++)
        reset = reset || d->reset[i];
    return d->n > 0 || reset;
}

/* What a committed delta leaves in memory. */
static void settle(struct mg_memory *m, struct mg_memory_delta *d)
{
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n; i++)
        if (d->reset[i])
            mg_memory_files_clear(&m->mounts[i]);
    for (int i = 0; i < d->n; i++) {
        struct mg_memory_change *c = &d->changes[i];
        struct mg_memory_file *f = mg_memory_file_of(&m->mounts[c->mount], mg_sv_of(c->path));
        if (c->overtaken || f->settled > d->look)
            continue;
        f->settled = d->look;
        memcpy(f->base, c->base, sizeof(f->base));
        if (strcmp(f->base, f->seen) == 0)
            f->pulled = false;
        if (c->told && !d->others) /* else those whose calls ran hear it too */
            (void)snprintf(f->told, sizeof(f->told), "%s", c->sha[0] ? c->sha : MG_MEMORY_TOLD_GONE);
        f->refused = c->refused;
        if (c->conflict)
            memcpy(f->dropped, c->sha, sizeof(f->dropped));
        if (c->pull.path)
            mg_memory_pull_add(m, &c->pull);
        c->pull = (struct mg_memory_pull){.path = NULL};
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- what the agent is told ---- */

static void notes_take(struct mg_buf *out, struct mg_memory *m, const struct mg_memory_delta *d)
{
    pthread_mutex_lock(&m->lock);
    (void)mg_buf_sv(out, mg_buf_view(&m->notes));
    mg_buf_reset(&m->notes);
    pthread_mutex_unlock(&m->lock);
    (void)mg_buf_sv(out, mg_buf_view(&d->notes));
    if (d->n_notes > MG_MEMORY_NOTES)
        (void)mg_buf_printf(out, "[memory] and %d more\n", d->n_notes - MG_MEMORY_NOTES);
}

static void notes_keep(struct mg_memory *m, const struct mg_memory_delta *d)
{
    pthread_mutex_lock(&m->lock);
    if (mg_buf_sv(&m->notes, mg_buf_view(&d->notes)) < 0)
        mg_buf_reset(&m->notes);
    pthread_mutex_unlock(&m->lock);
}

struct mg_sv mg_content_with_notes(struct mg_arena *a, struct mg_sv content, struct mg_sv notes)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    mg_auto(buf) struct mg_buf shown = MG_BUF_INIT(16 * MG_MEMORY_NOTES_MAX);
    (void)mg_tool_show(&shown, mg_sv_trim(notes)); /* names are any bytes */
    (void)mg_buf_sv(&b, mg_sv_n(content.ptr, content.len - 1));
    (void)mg_buf_str(&b, ",{\"type\":\"text\",\"text\":\"");
    mg_json_escape(&b, mg_buf_view(&shown));
    (void)mg_buf_str(&b, "\"}]");
    return mg_buf_ok(&b) ? mg_arena_sv(a, mg_buf_view(&b)) : content;
}

/* ---- a call ---- */

void mg_memory_before(struct mg_box *b)
{
    struct mg_memory *m = mg_box_memory(b);
    struct mg_err err = {0};
    int done;
    if (!m)
        return;
    pthread_mutex_lock(&m->work);
    if (m->calls == 0 && mg_memory_put(m, mg_box_sandbox(b), &done, &err) < 0)
        mg_log(MG_WARN, "memories are not put into the sandbox yet", MG_F_STR("session", m->session.s),
               MG_F_STR("error", err.text));
    m->calls++;
    pthread_mutex_unlock(&m->work);
}

static bool may_write(const char *tool)
{
    static const char *const READERS[] = {"read", "glob", "grep", NULL};
    for (int i = 0; READERS[i]; i++)
        if (strcmp(tool, READERS[i]) == 0)
            return false;
    return true;
}

void mg_memory_after(struct mg_run *r, struct mg_box *b)
{
    struct mg_memory *m = mg_box_memory(b);
    struct mg_err err = {0};
    if (!m)
        return;
    bool look = r->call_rc >= 0 && !mg_cancel_fired(r->cancel);
    if (look) {
        mg_hook("memory.before_look");
        mg_memory_delta_free(r->memory);
        r->memory = mg_memory_delta_new();
    }
    pthread_mutex_lock(&m->work);
    m->calls--;
    if (look && mg_memory_collect(m, mg_box_sandbox(b), r->cancel, may_write(r->call_name), r->memory, &err) < 0)
        mg_log(MG_WARN, "memories are not looked at", MG_F_STR("session", m->session.s), MG_F_STR("error", err.text));
    pthread_mutex_unlock(&m->work);
    if (look)
        mg_hook("memory.looked");
}

mg_rc mg_memory_take(struct mg_run *r, struct mg_step *s, struct mg_sv *content, struct mg_err *err)
{
    if (!r->memory)
        return MG_OK;
    struct mg_memory *m = mg_memory_shared(r->engine, &r->session, NULL, 0);
    mg_auto(buf) struct mg_buf notes = MG_BUF_INIT(4 * MG_MEMORY_NOTES_MAX);
    if (!m)
        return MG_OK; /* its boxes were dropped: the next sync finds the changes */
    mg_rc rc = mg_memory_apply(m, r->memory, s, err);
    if (rc >= 0)
        notes_take(&notes, m, r->memory);
    if (rc >= 0 && notes.len && content->len > 2)
        *content = mg_content_with_notes(s->arena, *content, mg_buf_view(&notes));
    mg_memory_close(r->engine, m);
    return rc;
}

void mg_memory_taken(struct mg_run *r)
{
    if (!r->memory)
        return;
    struct mg_memory *m = mg_memory_shared(r->engine, &r->session, NULL, 0);
    if (m)
        settle(m, r->memory);
    mg_memory_close(r->engine, m);
    mg_memory_delta_free(mg_steal(&r->memory));
}

/* ---- the other way ---- */

static int mount_of(const struct mg_memory *m, struct mg_sv store)
{
    for (int i = 0; i < m->n; i++)
        if (mg_sv_eq(mg_id_sv(&m->mounts[i].store), store))
            return i;
    return -1;
}

static mg_rc pull_of(struct mg_memory *m, const struct mg_memory_news *x, struct mg_err *err)
{
    struct mg_memory_pull p = {.mount = mount_of(m, x->store_id)};
    if (p.mount < 0)
        return MG_OK;
    const struct mg_memory_file *f = mg_memory_file_of(&m->mounts[p.mount], x->path);
    if (f->pulled && mg_sv_eq(mg_sv_of(f->seen), x->head))
        return MG_OK; /* it is there, and noted with the next commit */
    mg_rc rc = x->head.ptr ? mg_memory_pull_text(&p, x->json, x->head, err) : MG_OK;
    if (rc < 0)
        return rc;
    p.path = mg_xstrndup(x->path.ptr, x->path.len);
    mg_memory_pull_add(m, &p);
    return MG_OK;
}

/* Adds what differs now to what is pending. */
static mg_rc refresh(struct mg_memory *m, struct mg_arena *a, struct mg_txn *t, struct mg_err *err)
{
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_memory_news *news;
    int n = 0;
    mg_rc rc = mg_memory_news(a, t, mg_id_sv(&m->session), &res, &news, &n, err);
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < n && rc >= 0; i++)
        rc = pull_of(m, &news[i], err);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

mg_rc mg_memory_refresh(struct mg_run *r, struct mg_step *s, struct mg_err *err)
{
    struct mg_memory *m = mg_memory_shared(r->engine, &r->session, NULL, 0);
    if (!m)
        return MG_OK;
    mg_rc rc = refresh(m, s->arena, s->t, err);
    mg_memory_close(r->engine, m);
    return rc;
}

/* ---- both ways, at the beginning of a run ---- */

/* What the agent was told stays told. */
static void file_forget(void *ctx, struct mg_sv path, void *value)
{
    struct mg_memory_file *f = value;
    (void)ctx, (void)path;
    f->base[0] = f->seen[0] = '\0';
    f->pulled = false;
}

mg_rc mg_memory_load(struct mg_memory *m, struct mg_pg *pg, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_mounted_store *stores;
    struct mg_memory_news *bases;
    int n = 0, n_stores = 0;
    mg_rc rc = mg_mounted_stores(a, pg, mg_id_sv(&m->session), &stores, &n_stores, err);
    if (rc >= 0)
        rc = mg_memory_bases(a, pg, mg_id_sv(&m->session), &res, &bases, &n, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&m->lock);
    mg_memory_pulls_clear(m);
    for (int i = 0; i < m->n; i++) {
        mg_map_each(m->mounts[i].files, file_forget, NULL);
        m->mounts[i].mounted = i < n_stores && stores[i].mounted;
    }
    for (int i = 0; i < n; i++) {
        int mount = mount_of(m, bases[i].store_id);
        if (mount < 0 || bases[i].base.len != MG_MEMORY_SHA)
            continue;
        struct mg_memory_file *f = mg_memory_file_of(&m->mounts[mount], bases[i].path);
        memcpy(f->base, bases[i].base.ptr, MG_MEMORY_SHA);
        memcpy(f->seen, f->base, sizeof(f->seen));
    }
    pthread_mutex_unlock(&m->lock);
    return MG_OK;
}

static mg_rc commit(struct mg_run *r, struct mg_memory *m, struct mg_pg *pg, struct mg_memory_delta *d, bool mounted,
                    struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {.engine = NULL};
    bool all = true;
    for (int i = 0; i < m->n; i++)
        all = all && m->mounts[i].mounted;
    mounted = mounted && !all;
    if (!has_work(d) && !mounted) {
        notes_keep(m, d);
        return MG_OK;
    }
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc >= 0)
        rc = mg_memory_apply(m, d, &s, err);
    for (int i = 0; i < m->n && rc >= 0 && mounted; i++)
        rc = mg_mounted_store_set(s.t, mg_id_sv(&m->session), mg_id_sv(&m->mounts[i].store), err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "memory.sync", err);
    if (rc < 0)
        return rc;
    notes_keep(m, d);
    settle(m, d);
    for (int i = 0; i < m->n && mounted; i++)
        m->mounts[i].mounted = true;
    return MG_OK;
}

static mg_rc look(struct mg_run *r, struct mg_memory *m, struct mg_pg *pg, struct mg_sandbox *box, bool whole,
                  struct mg_err *err)
{
    struct mg_memory_delta *d = mg_memory_delta_new();
    mg_rc rc = mg_memory_collect(m, box, r->cancel, whole, d, err);
    if (rc >= 0)
        rc = commit(r, m, pg, d, false, err);
    mg_memory_delta_free(d);
    return rc;
}

static mg_rc pending(struct mg_memory *m, struct mg_pg *pg, int *ret_n, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = refresh(m, a, &t, err);
    pthread_mutex_lock(&m->lock);
    *ret_n = m->n_pulls;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static mg_rc sync_locked(struct mg_run *r, struct mg_memory *m, struct mg_pg *pg, struct mg_sandbox *box,
                         struct mg_err *err)
{
    int n = 0, done = 0;
    const bool alone =
        m->calls == 0; /* else what is kept is not to be read again, and no file may change under a command */
    mg_rc rc = alone ? mg_memory_load(m, pg, err) : MG_OK;
    if (rc >= 0)
        rc = look(r, m, pg, box, true, err);
    for (int i = 0; i < ROUNDS && rc >= 0; i++) {
        rc = pending(m, pg, &n, err);
        if (rc >= 0 && n > 0 && alone)
            rc = mg_memory_put(m, box, &done, err);
        if (rc < 0 || n == 0 || done == 0)
            break; /* what stays cannot be put in, and was logged */
        rc = look(r, m, pg, box, false, err);
    }
    if (rc < 0)
        return rc;
    struct mg_memory_delta *none = mg_memory_delta_new();
    rc = commit(r, m, pg, none, true, err);
    mg_memory_delta_free(none);
    return rc;
}

/* What tools may not write: a line for each folder. */
static void protect(const struct mg_memory *m, struct mg_sandbox *box)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_MEMORY_NOTES_MAX);
    for (int i = 0; i < m->n; i++)
        if (m->mounts[i].read_only)
            (void)mg_buf_printf(&b, "%s" MG_MEMORY_FOLDER "/%s", b.len ? "\n" : "", m->mounts[i].slug);
    if (b.len)
        mg_sandbox_protect(box, b.ptr);
}

mg_rc mg_memory_meet(struct mg_run *r, struct mg_pg *pg, struct mg_err *err)
{
    struct mg_box *b = r->memory_synced ? NULL : mg_box_lock(r->engine, &r->session, &r->thread);
    mg_rc rc = MG_OK;
    if (!b)
        return MG_OK;
    struct mg_memory *m = mg_box_memory(b);
    if (m) {
        protect(m, mg_box_sandbox(b));
        pthread_mutex_lock(&m->work);
        rc = sync_locked(r, m, pg, mg_box_sandbox(b), err);
        pthread_mutex_unlock(&m->work);
    }
    mg_box_unlock(b);
    r->memory_synced = rc >= 0;
    return rc;
}
