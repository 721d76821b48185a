/* What is kept of a session's memory stores while its sandbox is here, and what one look found. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "run/memory-internal.h"
#include "tools/names.h"

/* ---- one session's ---- */

static void file_free(void *ctx, struct mg_sv path, void *value)
{
    (void)ctx, (void)path;
    free(value);
}

void mg_memory_files_clear(struct mg_memory_mount *mount)
{
    mg_map_each(mount->files, file_free, NULL);
    mg_map_free(mount->files);
    mount->files = mg_map_new();
}

void mg_memory_free(struct mg_memory *m)
{
    mg_memory_pulls_clear(m);
    for (int i = 0; i < m->n; i++) {
        mg_map_each(m->mounts[i].files, file_free, NULL);
        mg_map_free(m->mounts[i].files);
        free(m->mounts[i].slug);
    }
    free(m->pulls);
    mg_buf_done(&m->notes);
    pthread_mutex_destroy(&m->work);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

struct mg_memory *mg_memory_new(const struct mg_id *session, const struct mg_mounted_store *stores, int n)
{
    struct mg_memory *m = mg_xcalloc(1, sizeof(*m));
    m->session = *session;
    m->notes = MG_BUF_INIT(MG_MEMORY_NOTES_MAX);
    pthread_mutex_init(&m->work, NULL);
    pthread_mutex_init(&m->lock, NULL);
    for (; m->n < n && m->n < MG_SESSION_STORES_MAX; m->n++) {
        struct mg_memory_mount *mount = &m->mounts[m->n];
        *mount = (struct mg_memory_mount){
            .slug = mg_xstrndup(stores[m->n].slug.ptr, stores[m->n].slug.len),
            .read_only = stores[m->n].read_only,
            .mounted = stores[m->n].mounted,
            .files = mg_map_new(),
        };
        (void)mg_id_from(stores[m->n].store_id, &mount->store);
    }
    return m;
}

/* The session's, which every box of it shares; made of stores when there is none. */
struct mg_memory *mg_memory_shared(struct mg_engine *e, const struct mg_id *session,
                                   const struct mg_mounted_store *stores, int n)
{
    pthread_mutex_lock(&e->lock);
    struct mg_memory *m = mg_map_get(e->memories, mg_id_sv(session));
    if (!m && n > 0) {
        m = mg_memory_new(session, stores, n);
        (void)mg_map_put(e->memories, mg_id_sv(session), m);
    }
    if (m)
        m->refs++;
    pthread_mutex_unlock(&e->lock);
    return m;
}

mg_rc mg_memory_open(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, struct mg_memory **ret,
                     struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_mounted_store *stores;
    int n = 0;
    mg_rc rc = mg_mounted_stores(a, pg, mg_id_sv(session), &stores, &n, err);
    if (rc >= 0)
        *ret = n ? mg_memory_shared(e, session, stores, n) : NULL;
    return rc;
}

void mg_memory_close(struct mg_engine *e, struct mg_memory *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&e->lock);
    bool last = --m->refs == 0;
    if (last)
        (void)mg_map_del(e->memories, mg_id_sv(&m->session));
    pthread_mutex_unlock(&e->lock);
    if (last)
        mg_memory_free(m);
}

struct mg_memory_file *mg_memory_file_of(struct mg_memory_mount *mount, struct mg_sv path)
{
    struct mg_memory_file *f = mg_map_get(mount->files, path);
    if (!f) {
        f = mg_xcalloc(1, sizeof(*f));
        (void)mg_map_put(mount->files, path, f);
    }
    return f;
}

void mg_memory_sha_set(char to[MG_SHA256_HEX], struct mg_sv sha)
{
    size_t n = sha.len < MG_SHA256_HEX ? sha.len : 0;
    if (n)
        memcpy(to, sha.ptr, n);
    to[n] = '\0';
}

mg_rc mg_memory_pull_text(struct mg_memory_pull *p, struct mg_sv json, struct mg_sv sha, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v;
    mg_rc rc = mg_json_parse(a, json, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return rc;
    struct mg_sv text = mg_json_str(a, v);
    p->text = mg_xstrndup(text.ptr, text.len);
    p->len = text.len;
    mg_memory_sha_set(p->sha, sha);
    return MG_OK;
}

void mg_memory_pulls_clear(struct mg_memory *m)
{
    for (int i = 0; i < m->n_pulls; i++) {
        free(m->pulls[i].path);
        free(m->pulls[i].text);
    }
    m->n_pulls = 0;
}

void mg_memory_pull_add(struct mg_memory *m, const struct mg_memory_pull *p)
{
    for (int i = 0; i < m->n_pulls; i++) {
        if (m->pulls[i].mount != p->mount || strcmp(m->pulls[i].path, p->path) != 0)
            continue;
        free(m->pulls[i].path);
        free(m->pulls[i].text);
        m->pulls[i] = *p;
        return;
    }
    if (m->n_pulls == m->cap_pulls) {
        m->cap_pulls = m->cap_pulls ? m->cap_pulls * 2 : 16;
        m->pulls = mg_xrealloc(m->pulls, sizeof(*m->pulls) * (size_t)m->cap_pulls);
    }
    m->pulls[m->n_pulls++] = *p;
}

/* ---- deltas ---- */

struct mg_memory_delta *mg_memory_delta_new(void)
{
    struct mg_memory_delta *d = mg_xcalloc(1, sizeof(*d));
    d->notes = MG_BUF_INIT(MG_MEMORY_NOTES_MAX);
    return d;
}

void mg_memory_delta_free(struct mg_memory_delta *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n; i++) {
        free(d->changes[i].path);
        free(d->changes[i].text);
        free(d->changes[i].pull.path);
        free(d->changes[i].pull.text);
    }
    free(d->changes);
    mg_buf_done(&d->notes);
    free(d);
}

void mg_memory_note(struct mg_memory_delta *d, const struct mg_memory_mount *mount, struct mg_sv path, const char *fmt,
                    ...)
{
    char why[MG_ERR_TEXT_MAX];
    va_list ap;
    if (d->n_notes++ >= MG_MEMORY_NOTES)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    mg_auto(buf) struct mg_buf name = MG_BUF_INIT(MG_MEMORY_NOTES_MAX);
    (void)mg_buf_printf(&name, MG_MOUNT_MEMORY "%s%s", mount ? "/" : "", mount ? mount->slug : "");
    (void)mg_buf_sv(&name, path);
    (void)mg_buf_str(&d->notes, "[memory] ");
    (void)mg_name_quote(&d->notes, mg_buf_view(&name), MG_NAME_COLON);
    (void)mg_buf_printf(&d->notes, ": %s\n", why);
}
