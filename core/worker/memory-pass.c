/* The passes that bring a folder and its store together. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "crypto/hash.h"
#include "domain/memory-sync.h"
#include "domain/memory.h"
#include "worker/dir.h"
#include "worker/fan.h"
#include "worker/memory-folder.h"
#include "worker/memory.h"

enum {
    PULLS_AT_ONCE = 16, /* as the official worker */
    PUSHES_AT_ONCE = 32,
    DELETES_MIN = 8, /* of one pass */
    DELETES_MAX = 50,
    DELETES_SHARE = 4, /* a quarter of the store */
};

struct pass {
    struct mg_memory_folder *store;
    const struct mg_memory_api *api;
    struct mg_memory_file **pulls, **pushes; /* room for all files each */
    unsigned n_pulls, n_pushes;
    unsigned deletes_left, held;
    bool last;
};

static void complain(const struct pass *p, const struct mg_memory_file *f, const char *what, const struct mg_err *err)
{
    mg_log(MG_WARN, what, MG_F_STR("store", p->store->id), MG_F_STR("path", f->path), MG_F_STR("error", err->text));
}

static bool hurried(const struct pass *p)
{
    return mg_cancel_fired(p->api->cancel) || (p->api->deadline_ns && mg_now_ns() >= p->api->deadline_ns);
}

/* ---- what the store has ---- */

static mg_rc note(void *ctx, const struct mg_memory_item *item, struct mg_err *err)
{
    struct mg_memory_folder *s = ctx;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    if (mg_memory_path_check(item->path, "path", NULL) < 0 || mg_sv_eqz(item->path, "/" MG_MEMORY_MARKER))
        return MG_OK;
    struct mg_memory_file *f = mg_memory_entry(s, mg_arena_strdup(a, mg_sv_from(item->path, 1)));
    if (!f)
        return mg_err_set(err, MG_ETOOBIG, "more than %d files", MG_MEMORY_FILES_MAX);
    free(f->id);
    f->id = mg_xstrndup(item->id.ptr, item->id.len);
    (void)snprintf(f->remote, sizeof(f->remote), "%.*s", MG_SV_ARG(item->sha256));
    return MG_OK;
}

static mg_rc list(struct pass *p, struct mg_err *err)
{
    struct mg_memory_folder *s = p->store;
    for (unsigned i = 0; i < s->n; i++)
        s->files[i]->remote[0] = '\0';
    mg_rc rc = mg_memory_api_list(p->api, false, note, s, err);
    for (unsigned i = 0; rc == MG_OK && i < s->n; i++)
        mg_memory_settle(s->files[i]);
    return rc;
}

/* ---- one file ---- */

static void pull_one(void *ctx, unsigned i)
{
    struct pass *p = ctx;
    struct mg_memory_file *f = p->pulls[i];
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_memory_item item = {.id = MG_SV("")};
    struct mg_err err = {0};
    if (hurried(p))
        return;
    mg_rc rc = mg_memory_api_get(p->api, a, f->id, &item, &err);
    if (rc == MG_OK)
        rc = mg_memory_write(p->store, f, &item, &err);
    if (rc < 0 && rc != MG_ENOTFOUND) /* deleted meanwhile: the next pass sees it */
        complain(p, f, "a memory could not be fetched", &err);
}

/* The file's text as it is sent. MG_EINVAL, MG_ETOOBIG: it can be no memory. */
static mg_rc read_text(const struct pass *p, struct mg_memory_file *f, struct mg_buf *text, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(MG_MEMORY_PATH_MAX + 2);
    if (mg_buf_printf(&path, "/%s", f->path) < 0)
        return mg_err_set(err, MG_EINVAL, "its path has more than %d bytes", MG_MEMORY_PATH_MAX);
    mg_rc rc = mg_memory_path_check(mg_buf_view(&path), "path", err);
    if (rc == MG_OK)
        rc = mg_dir_read(p->store->fd, f->path, MG_MEMORY_CONTENT_MAX, text, err);
    if (rc == MG_OK && !mg_utf8_valid(mg_buf_view(text), NULL))
        rc = mg_err_set(err, MG_EINVAL, "its content is not UTF-8");
    return rc;
}

static void push_one(void *ctx, unsigned i)
{
    struct pass *p = ctx;
    struct mg_memory_file *f = p->pushes[i];
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MG_MEMORY_CONTENT_MAX + 2);
    struct mg_memory_item item = {.id = MG_SV("")};
    struct mg_err err = {0};
    if (hurried(p))
        return;
    bool update = *f->remote;
    mg_rc rc = read_text(p, f, &text, &err);
    if (rc == MG_ENOTFOUND)
        return;
    if (rc == MG_OK) {
        mg_sha256_hex(mg_buf_view(&text), f->sent);
        rc = mg_memory_api_put(p->api, a, update ? f->id : NULL, f->remote, f->path, mg_buf_view(&text), &item, &err);
        if (update && rc == MG_ENOTFOUND) /* deleted since the listing: the file is the only copy now */
            rc = mg_memory_api_put(p->api, a, NULL, NULL, f->path, mg_buf_view(&text), &item, &err);
    }
    if (rc == MG_OK) {
        (void)snprintf(f->base, sizeof(f->base), "%.*s", MG_SV_ARG(item.sha256));
        f->sent[0] = f->refused[0] = '\0';
        return;
    }
    if (rc == MG_EINVAL || rc == MG_ETOOBIG) {
        memcpy(f->refused, f->local, sizeof(f->refused));
        f->sent[0] = '\0';
        complain(p, f, "a file is refused as a memory and stays here until it changes", &err);
    } else if (rc == MG_ECONFLICT && update) {
        complain(p, f, "a memory was changed here and in its store; the store's is kept", &err);
    } else if (rc != MG_ECANCELED) {
        complain(p, f, "a memory could not be sent", &err);
    }
}

/* The file of a memory that the store has deleted, if nobody has changed it since it was looked at. */
static void drop_local(struct pass *p, struct mg_memory_file *f)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MG_MEMORY_CONTENT_MAX + 2);
    char sha[MG_SHA256_HEX];
    if (mg_dir_read(p->store->fd, f->path, MG_MEMORY_CONTENT_MAX, &text, NULL) < 0)
        return;
    mg_sha256_hex(mg_buf_view(&text), sha);
    if (strcmp(sha, f->base) == 0 && mg_dir_unlink(p->store->fd, f->path) == 0)
        f->base[0] = f->local[0] = '\0';
}

/* Deletes the memory of a file that has been missing long enough, in a folder that is still whole. */
static void drop_remote(struct pass *p, struct mg_memory_file *f)
{
    struct stat st;
    struct mg_err err = {0};
    uint64_t now = mg_now_ns();
    if (!f->missing_ns)
        f->missing_ns = now;
    if (!p->last && now - f->missing_ns < MG_MEMORY_ABSENT_MS * UINT64_C(1000000))
        return;
    bool back = fstatat(p->store->fd, f->path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (back || !mg_memory_marked(p->store) || hurried(p))
        return;
    if (p->deletes_left == 0) {
        p->held++;
        return;
    }
    p->deletes_left--;
    mg_rc rc = mg_memory_api_delete(p->api, f->id, f->base, &err);
    if (rc == MG_OK || rc == MG_ENOTFOUND) {
        f->base[0] = f->remote[0] = '\0';
        mg_log(MG_INFO, "a memory is deleted as its file was", MG_F_STR("store", p->store->id),
               MG_F_STR("path", f->path));
    } else {
        complain(p, f, "a memory could not be deleted and is kept", &err);
    }
}

/* ---- a pass ---- */

unsigned mg_memory_deletes_max(unsigned n)
{
    unsigned share = n / DELETES_SHARE;
    return share < DELETES_MIN ? DELETES_MIN : share > DELETES_MAX ? DELETES_MAX : share;
}

/* What is done about a file. push_only: at an end in a hurry nothing is fetched and nothing deleted. */
static enum mg_memory_act decide(const struct pass *p, const struct mg_memory_file *f, bool push_only)
{
    const struct mg_memory_sides sides = {.local = mg_sv_of(f->local),
                                          .base = mg_sv_of(f->base),
                                          .head = mg_sv_of(f->remote),
                                          .read_only = p->store->read_only};
    const struct mg_memory_decision d = mg_memory_decide(&sides);
    bool pushes = d.act == MG_MEMORY_CREATE || d.act == MG_MEMORY_UPDATE;
    if (pushes && strcmp(f->local, f->refused) == 0)
        return MG_MEMORY_KEEP;
    if (push_only && !pushes && d.act != MG_MEMORY_ADOPT && d.act != MG_MEMORY_FORGET)
        return MG_MEMORY_KEEP;
    if (d.lost && d.act != MG_MEMORY_KEEP)
        mg_log(MG_WARN, "a change of a memory is lost: its store has another, or takes none",
               MG_F_STR("store", p->store->id), MG_F_STR("path", f->path));
    return d.act;
}

static void act(struct pass *p, struct mg_memory_file *f, bool push_only)
{
    enum mg_memory_act what = decide(p, f, push_only);
    if (what != MG_MEMORY_DELETE)
        f->missing_ns = 0;
    switch (what) {
    case MG_MEMORY_KEEP:
        break;
    case MG_MEMORY_FORGET:
        f->base[0] = '\0';
        break;
    case MG_MEMORY_ADOPT:
        memcpy(f->base, f->remote, sizeof(f->base));
        break;
    case MG_MEMORY_PULL:
        p->pulls[p->n_pulls++] = f;
        break;
    case MG_MEMORY_CREATE:
    case MG_MEMORY_UPDATE:
        p->pushes[p->n_pushes++] = f;
        break;
    case MG_MEMORY_REMOVE:
        drop_local(p, f);
        break;
    case MG_MEMORY_DELETE:
        drop_remote(p, f);
        break;
    }
}

static bool nowhere(const struct mg_memory_file *f)
{
    return !*f->local && !*f->remote && !*f->base;
}

/* MG_EUNAVAIL: of some files it is not known whether they arrived. */
static mg_rc act_all(struct pass *p, bool push_only)
{
    struct mg_memory_folder *s = p->store;
    p->pulls = mg_xcalloc(s->n + 1, sizeof(struct mg_memory_file *));
    p->pushes = mg_xcalloc(s->n + 1, sizeof(struct mg_memory_file *));
    for (unsigned i = 0; i < s->n; i++)
        act(p, s->files[i], push_only);
    mg_fan(p->n_pushes, PUSHES_AT_ONCE, push_one, p);
    mg_fan(p->n_pulls, PULLS_AT_ONCE, pull_one, p);
    unsigned unsent = 0;
    for (unsigned i = 0; i < p->n_pushes; i++)
        unsent += *p->pushes[i]->sent != '\0';
    if (hurried(p) && unsent)
        mg_log(MG_WARN, "the time for a memory store is over; not every changed file was sent",
               MG_F_STR("store", s->id), MG_F_INT("files", unsent));
    if (p->held)
        mg_log(MG_WARN, "more files of a memory store are gone than one pass may delete; the rest waits",
               MG_F_STR("store", s->id), MG_F_INT("held", p->held));
    free(p->pulls);
    free(p->pushes);
    mg_memory_forget(s, nowhere);
    return unsent ? MG_EUNAVAIL : MG_OK;
}

static unsigned in_base(const struct mg_memory_folder *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++)
        n += *s->files[i]->base != '\0';
    return n;
}

/* The folder is gone or was emptied: that is an accident, not the wish to delete everything. */
static mg_rc recover(struct pass *p, struct mg_err *err)
{
    struct mg_memory_folder *s = p->store;
    mg_log(MG_WARN, "the folder of a memory store was emptied; it is downloaded again", MG_F_STR("store", s->id),
           MG_F_STR("folder", s->root));
    if (s->fd < 0)
        s->fd = mg_dir_open(s->parent_fd, s->name, true);
    return s->fd < 0 ? mg_err_errno(err, -s->fd, "the folder") : mg_memory_download(s, p->api, err);
}

static mg_rc sync_store(struct pass *p, struct mg_err *err)
{
    struct mg_memory_folder *s = p->store;
    bool marked;
    unsigned n;
    mg_rc rc = mg_memory_scan(s, &marked, &n, err);
    if (rc == MG_OK && !marked)
        return n == 0 ? recover(p, err)
                      : mg_err_set(err, MG_ECONFLICT,
                                   "the marker %s is gone or another store's; the folder is left as it is",
                                   MG_MEMORY_MARKER);
    if (rc == MG_OK)
        rc = list(p, err);
    if (rc < 0)
        return rc;
    if (n == 0 && in_base(s) > 1)
        return recover(p, err);
    p->deletes_left = mg_memory_deletes_max(in_base(s));
    return act_all(p, false);
}

static bool dirty(const struct mg_memory_folder *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct mg_memory_file *f = s->files[i];
        bool changed = *f->local && strcmp(f->local, f->base) != 0 && strcmp(f->local, f->refused) != 0;
        if (changed || *f->sent)
            return true;
    }
    return false;
}

static mg_rc flush_store(struct pass *p, struct mg_err *err)
{
    bool marked;
    unsigned n;
    mg_rc rc = mg_memory_scan(p->store, &marked, &n, err);
    if (rc == MG_OK && !marked && n > 0)
        rc = mg_err_set(err, MG_ECONFLICT, "the marker %s is gone or another store's", MG_MEMORY_MARKER);
    if (rc < 0 || !marked || !dirty(p->store))
        return rc;
    rc = list(p, err);
    return rc == MG_OK ? act_all(p, true) : rc;
}

/* Says what went wrong. A server that is away is worth another try. */
static mg_rc end_pass(const struct mg_memory_folder *s, const char *what, mg_rc rc, const struct mg_err *err)
{
    if (rc < 0 && err->rc < 0) /* else each file said so itself */
        mg_log(MG_WARN, what, MG_F_STR("store", s->id), MG_F_STR("error", err->text));
    return rc == MG_EIO || rc == MG_ETIMEOUT ? MG_EUNAVAIL : rc;
}

mg_rc mg_memory_sync(struct mg_memory_folder *s, const struct mg_memory_api *api, bool last)
{
    struct pass p = {.store = s, .api = api, .last = last};
    struct mg_err err = {0};
    return end_pass(s, "a memory store is not synchronised", sync_store(&p, &err), &err);
}

mg_rc mg_memory_flush(struct mg_memory_folder *s, const struct mg_memory_api *api)
{
    struct pass p = {.store = s, .api = api};
    struct mg_err err = {0};
    mg_rc rc = s->read_only ? MG_OK : flush_store(&p, &err);
    return end_pass(s, "changes of a memory store are not sent", rc, &err);
}
