#include "worker/memory-folder.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "crypto/hash.h"
#include "domain/memory.h"
#include "worker/dir.h"

enum {
    MARKER_MAX = 512, /* bytes: its first line, and the store's id */
    FILE_MODE = 0600, /* as the official worker has it */
};

/* ---- entries ---- */

struct mg_memory_file *mg_memory_entry(struct mg_memory_folder *s, const char *path)
{
    struct mg_memory_file *f = mg_map_get(s->by_path, mg_sv_of(path));
    if (f || s->n == MG_MEMORY_FILES_MAX)
        return f;
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->files = mg_xrealloc(s->files, s->room * sizeof(struct mg_memory_file *));
    }
    f = mg_xcalloc(1, sizeof(*f));
    f->path = mg_xstrdup(path);
    (void)mg_map_put(s->by_path, mg_sv_of(path), f);
    s->files[s->n++] = f;
    return f;
}

void mg_memory_forget(struct mg_memory_folder *s, bool (*gone)(const struct mg_memory_file *f))
{
    unsigned kept = 0;
    for (unsigned i = 0; i < s->n; i++) {
        struct mg_memory_file *f = s->files[i];
        if (!gone(f)) {
            s->files[kept++] = f;
            continue;
        }
        (void)mg_map_del(s->by_path, mg_sv_of(f->path));
        free(f->path);
        free(f->id);
        free(f);
    }
    s->n = kept;
}

void mg_memory_settle(struct mg_memory_file *f)
{
    if (*f->sent && strcmp(f->sent, f->remote) == 0)
        memcpy(f->base, f->remote, sizeof(f->base));
    f->sent[0] = '\0';
}

/* ---- the folder ---- */

static void marker_text(const struct mg_memory_folder *s, struct mg_buf *out)
{
    (void)mg_buf_printf(out, "version 1\n%s", s->id);
}

bool mg_memory_marked(const struct mg_memory_folder *s)
{
    mg_auto(buf) struct mg_buf has = MG_BUF_INIT(MARKER_MAX + 2), wants = MG_BUF_INIT(MARKER_MAX);
    marker_text(s, &wants);
    return s->fd >= 0 && mg_dir_read(s->fd, MG_MEMORY_MARKER, MARKER_MAX, &has, NULL) == MG_OK &&
           mg_sv_eq(mg_buf_view(&has), mg_buf_view(&wants));
}

struct scan {
    struct mg_memory_folder *store;
    unsigned n;
    bool full;
};

/* What is too large for a memory is not read: its size stands for its content. */
static void too_large(struct mg_memory_file *f, off_t size)
{
    (void)snprintf(f->local, sizeof(f->local), "%lld bytes", (long long)size);
    if (strcmp(f->refused, f->local) != 0)
        mg_log(MG_WARN, "a file of a memory store is too large to be a memory and stays here",
               MG_F_STR("path", f->path), MG_F_INT("bytes", (int64_t)size), MG_F_INT("limit", MG_MEMORY_CONTENT_MAX));
    memcpy(f->refused, f->local, sizeof(f->refused));
}

static void meet(void *ctx, const char *path, off_t size)
{
    struct scan *c = ctx;
    if (strcmp(path, MG_MEMORY_MARKER) == 0)
        return;
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MG_MEMORY_CONTENT_MAX + 2);
    struct mg_memory_file *f = mg_memory_entry(c->store, path);
    c->full = c->full || !f;
    if (!f)
        return;
    mg_rc rc =
        size > MG_MEMORY_CONTENT_MAX ? MG_ETOOBIG : mg_dir_read(c->store->fd, path, MG_MEMORY_CONTENT_MAX, &text, NULL);
    if (rc == MG_ENOTFOUND)
        return;
    c->n++;
    if (rc < 0)
        too_large(f, size);
    else
        mg_sha256_hex(mg_buf_view(&text), f->local);
}

/* Opened anew: a command may have removed the folder, or put another one there. */
static void reopen(struct mg_memory_folder *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = mg_dir_open(s->parent_fd, s->name, false);
}

mg_rc mg_memory_scan(struct mg_memory_folder *s, bool *ret_marked, unsigned *ret_n, struct mg_err *err)
{
    struct scan c = {.store = s};
    reopen(s);
    for (unsigned i = 0; i < s->n; i++)
        s->files[i]->local[0] = '\0';
    *ret_marked = mg_memory_marked(s);
    *ret_n = 0;
    if (s->fd == -ENOENT)
        return MG_OK;
    if (s->fd < 0)
        return mg_err_errno(err, -s->fd, "the folder of the store");
    mg_rc rc = mg_dir_walk(s->fd, MG_MEMORY_FILES_MAX, meet, &c, err);
    *ret_n = c.n;
    if (rc == MG_OK && c.full)
        rc = mg_err_set(err, MG_ETOOBIG, "more than %d files", MG_MEMORY_FILES_MAX);
    return rc;
}

/* ---- downloads ---- */

mg_rc mg_memory_write(struct mg_memory_folder *s, struct mg_memory_file *f, const struct mg_memory_item *item,
                      struct mg_err *err)
{
    char sha[MG_SHA256_HEX];
    mg_sha256_hex(item->content, sha);
    if (!mg_sv_eqz(item->sha256, sha))
        return mg_err_set(err, MG_EUNAVAIL, "the content is not the one whose SHA-256 the server names");
    mg_rc rc = mg_dir_write(s->fd, f->path, item->content, FILE_MODE, false, err);
    if (rc == MG_OK)
        memcpy(f->base, sha, sizeof(f->base));
    return rc;
}

struct download {
    struct mg_memory_folder *store;
    unsigned n;
};

static mg_rc take(void *ctx, const struct mg_memory_item *item, struct mg_err *err)
{
    struct download *d = ctx;
    struct mg_err why = {0};
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    (void)err;
    if (mg_memory_path_check(item->path, "path", &why) < 0 || mg_sv_eqz(item->path, "/" MG_MEMORY_MARKER)) {
        mg_log(MG_WARN, "a memory has a path that is none here and is left out", MG_F_SV("memory", item->id));
        return MG_OK;
    }
    const char *path = mg_arena_strdup(a, mg_sv_from(item->path, 1));
    struct mg_memory_file *f = mg_memory_entry(d->store, path);
    mg_rc rc = f ? mg_memory_write(d->store, f, item, &why)
                 : mg_err_set(&why, MG_ETOOBIG, "more than %d files", MG_MEMORY_FILES_MAX);
    d->n += rc == MG_OK;
    if (rc < 0) /* it is not in the base, so that a later pass fetches it */
        mg_log(MG_WARN, "a memory could not be written", MG_F_SV("memory", item->id), MG_F_STR("error", why.text));
    return MG_OK;
}

mg_rc mg_memory_download(struct mg_memory_folder *s, const struct mg_memory_api *api, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf marker = MG_BUF_INIT(MARKER_MAX);
    struct download d = {.store = s};
    for (unsigned i = 0; i < s->n; i++) {
        s->files[i]->base[0] = s->files[i]->sent[0] = '\0';
        s->files[i]->missing_ns = 0;
    }
    marker_text(s, &marker);
    mg_rc rc = mg_dir_write(s->fd, MG_MEMORY_MARKER, mg_buf_view(&marker), FILE_MODE, false, err);
    if (rc == MG_OK)
        rc = mg_memory_api_list(api, true, take, &d, err);
    if (rc == MG_OK)
        mg_log(MG_INFO, "a memory store is prepared", MG_F_STR("store", s->id), MG_F_STR("folder", s->root),
               MG_F_INT("memories", d.n));
    return rc;
}
