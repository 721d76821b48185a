/* What other writers changed goes into the files. A file that is no longer as it was seen is left alone: the next look takes its change over, or tells
 * the agent that it came too late. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/memory-internal.h"

enum {
    REMOVE_MS = 30000,
    MODE = 0644,
    READ_ONLY_MODE = 0444,
};

/* $1 the file, $2 the store's folder: folders that it leaves empty go with it, since another memory may take their name. */
static const char REMOVE[] = "rm -f \"$1\"; d=${1%/*}; while [ \"$d\" != \"$2\" ] && rmdir \"$d\" 2>/dev/null; do "
                             "d=${d%/*}; done; [ ! -e \"$1\" ]";

struct source {
    const char *text;
    size_t left;
};

static int64_t next_bytes(void *ctx, char *p, uint64_t n)
{
    struct source *s = ctx;
    size_t take = n < s->left ? (size_t)n : s->left;
    memcpy(p, s->text, take);
    s->text += take;
    s->left -= take;
    return (int64_t)take;
}

static mg_rc remove_file(struct mg_sandbox *box, const char *path, const char *folder, struct mg_err *err)
{
    const char *const argv[] = {"/bin/sh", "-c", REMOVE, "mango-memory", path, folder, NULL};
    const struct mg_exec_req req = {.argv = argv, .deadline_ns = mg_now_ns() + REMOVE_MS * UINT64_C(1000000)};
    struct mg_exec_status st = {0};
    mg_rc rc = mg_sandbox_ops(box)->exec(box, &req, &st, err);
    if (rc >= 0 && !(st.exited && st.exit_code == 0))
        rc = mg_err_set(err, MG_EIO, "it cannot be removed");
    return rc;
}

/* A file whose mode forbids to write it is made anew. */
static mg_rc put_text(struct mg_sandbox *box, const char *path, const char *folder, uint32_t mode,
                      const struct mg_memory_pull *p, struct mg_err *err)
{
    struct source s = {p->text, p->len};
    mg_rc rc = mg_sandbox_put(box, path, mode, next_bytes, &s, (int64_t)p->len, err);
    if (rc != MG_EDENIED)
        return rc;
    s = (struct source){p->text, p->len};
    rc = remove_file(box, path, folder, err);
    return rc < 0 ? rc : mg_sandbox_put(box, path, mode, next_bytes, &s, (int64_t)p->len, err);
}

/* The file's hash now; "" when it is not there. */
static mg_rc hash_now(struct mg_sandbox *box, const char *path, char sha[MG_SHA256_HEX], struct mg_err *err)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MG_MEMORY_CONTENT_MAX + 2);
    bool eof = false;
    sha[0] = '\0';
    mg_rc rc = mg_sandbox_ops(box)->read(box, path, 0, MG_MEMORY_CONTENT_MAX + 1, &text, &eof, err);
    if (rc == MG_ENOTFOUND)
        return MG_OK;
    if (rc >= 0)
        mg_sha256_hex(mg_buf_view(&text), sha);
    return rc;
}

/* As it was seen, and nothing that was seen waits for its commit: the store has it, or the agent knows that it is lost. */
static bool may_replace(struct mg_memory *m, const struct mg_memory_pull *p, const char *sha)
{
    pthread_mutex_lock(&m->lock);
    const struct mg_memory_file *f = mg_memory_file_of(&m->mounts[p->mount], mg_sv_of(p->path));
    bool told = strcmp(f->told, sha[0] ? sha : MG_MEMORY_TOLD_GONE) == 0;
    bool may = strcmp(f->seen, sha) == 0 && (f->pulled || told || strcmp(f->base, sha) == 0);
    pthread_mutex_unlock(&m->lock);
    return may;
}

static void note_put(struct mg_memory *m, const struct mg_memory_pull *p)
{
    pthread_mutex_lock(&m->lock);
    struct mg_memory_file *f = mg_memory_file_of(&m->mounts[p->mount], mg_sv_of(p->path));
    memcpy(f->seen, p->sha, sizeof(f->seen));
    f->pulled = true;
    f->refused = false;
    f->told[0] = '\0';
    pthread_mutex_unlock(&m->lock);
}

static mg_rc put_one(struct mg_memory *m, struct mg_sandbox *box, const struct mg_memory_pull *p, int *done,
                     struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const struct mg_memory_mount *mount = &m->mounts[p->mount];
    const char *folder = mg_arena_printf(a, MG_MEMORY_FOLDER "/%s", mount->slug).ptr;
    const char *path = mg_arena_printf(a, "%s%s", folder, p->path).ptr;
    char now[MG_SHA256_HEX];
    mg_rc rc = MG_OK;
    if (mount->mounted) {
        rc = hash_now(box, path, now, err);
        if (rc >= 0 && !may_replace(m, p, now))
            return MG_OK;
    }
    if (rc >= 0 && p->text)
        rc = put_text(box, path, folder, mount->read_only ? READ_ONLY_MODE : MODE, p, err);
    else if (rc >= 0)
        rc = remove_file(box, path, folder, err);
    if (rc < 0)
        return rc;
    note_put(m, p);
    (*done)++;
    return MG_OK;
}

static mg_rc put_kind(struct mg_memory *m, struct mg_sandbox *box, const struct mg_memory_pull *pulls, int n,
                      bool removals, int *done, struct mg_err *err)
{
    for (int i = 0; i < n; i++) {
        if ((pulls[i].text == NULL) != removals)
            continue;
        mg_rc rc = put_one(m, box, &pulls[i], done, err);
        if (rc == MG_EGONE || rc == MG_EUNAVAIL || rc == MG_ECANCELED)
            return rc;
        if (rc < 0)
            mg_log(MG_WARN, "a memory cannot be put into a sandbox", MG_F_STR("session", m->session.s),
                   MG_F_STR("store", m->mounts[pulls[i].mount].store.s), MG_F_STR("error", err->text));
    }
    return MG_OK;
}

mg_rc mg_memory_put(struct mg_memory *m, struct mg_sandbox *box, int *ret_done, struct mg_err *err)
{
    *ret_done = 0;
    pthread_mutex_lock(&m->lock);
    struct mg_memory_pull *pulls = m->pulls;
    int n = m->n_pulls;
    m->pulls = NULL;
    m->n_pulls = m->cap_pulls = 0;
    pthread_mutex_unlock(&m->lock);
    mg_rc rc = put_kind(m, box, pulls, n, true, ret_done, err); /* a memory may stand where a folder was */
    if (rc >= 0)
        rc = put_kind(m, box, pulls, n, false, ret_done, err);
    for (int i = 0; i < n; i++) {
        free(pulls[i].path);
        free(pulls[i].text);
    }
    free(pulls);
    return rc;
}
