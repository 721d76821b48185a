/* A look into the sandbox: one command lists all files with their hashes; what differs from the base is read. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "domain/digest-line.h"
#include "run/memory-internal.h"

/* $1 the folder of all stores, then the stores' own. A line "S STORE" before each; then "N" (it was gone, and is made again), or a line of sha256sum for each
 * file that a memory can be, "R NAME" where there is no sha256sum, "X NAME" for what no memory can be, and "E STATUS" at the end. */
static const char LIST[] =
    "mkdir -p \"$1\" && cd \"$1\" || exit 3\nshift\n"
    "command -v sha256sum >/dev/null 2>&1 && h=y || h=\n"
    "for s; do printf 'S %s\\n' \"$s\"; s=\"./$s\"\n"
    "if [ -h \"$s\" ] || [ ! -d \"$s\" ]; then rm -f \"$s\"; mkdir -p \"$s\" && echo N; continue; fi\n"
    "if [ $h ]; then find \"$s\" -type d -o -type f ! -size +200 -exec sha256sum {} + -o -exec printf 'X %s\\n' {} +\n"
    "else find \"$s\" -type d -o -type f ! -size +200 -exec printf 'R %s\\n' {} + -o -exec printf 'X %s\\n' {} +\n"
    "fi 2>/dev/null\nprintf 'E %s\\n' $?\ndone\n";
_Static_assert(MG_MEMORY_CONTENT_MAX == 200 * 512, "find counts blocks of 512 bytes: -size +200 in LIST");
static const char NO_MEMORY[] = "X"; /* in mg_memory_file.told: what is there can never be a memory */

enum { ARGS_BEFORE = 5 };

struct entry {
    int mount;
    char kind; /* h hashed, R to be read, X no memory */
    struct mg_sv path;
    char sha[MG_SHA256_HEX];
};

struct listing {
    struct mg_arena *a;
    struct entry *entries;
    int n, cap;
    bool whole[MG_SESSION_STORES_MAX], was_gone[MG_SESSION_STORES_MAX];
};

/* ---- the command and its lines ---- */

static mg_rc run_list(const struct mg_memory *m, struct mg_sandbox *box, struct mg_cancel *cancel, struct mg_buf *out,
                      struct mg_err *err)
{
    const char *argv[ARGS_BEFORE + MG_SESSION_STORES_MAX + 1] = {"/bin/sh", "-c", LIST, "mango-memory",
                                                                 MG_MEMORY_FOLDER};
    for (int i = 0; i < m->n; i++)
        argv[ARGS_BEFORE + i] = m->mounts[i].slug;
    struct mg_exec_status st = {0};
    const struct mg_exec_req req = {.argv = argv,
                                    .deadline_ns = mg_now_ns() + MG_MEMORY_LIST_MS * UINT64_C(1000000),
                                    .cancel = cancel,
                                    .sink = mg_exec_to_buf,
                                    .sink_ctx = out};
    mg_rc rc = mg_sandbox_ops(box)->exec(box, &req, &st, err);
    if (rc < 0)
        return rc;
    if (!mg_buf_ok(out))
        return mg_err_set(err, MG_ETOOBIG, "there are too many files: their list has more than %d bytes",
                          MG_MEMORY_LIST_MAX);
    if (st.timed_out)
        return mg_err_set(err, MG_ETIMEOUT, "their files could not be listed within %d s", MG_MEMORY_LIST_MS / 1000);
    return st.exited && st.exit_code == 0 ? MG_OK : mg_err_set(err, MG_EIO, "their files could not be listed");
}

/* name: "./SLUG/PATH". */
static void add(struct listing *l, const struct mg_memory *m, int mount, char kind, struct mg_sv sha, struct mg_sv name)
{
    size_t skip = 2 + strlen(m->mounts[mount].slug);
    if (name.len <= skip + 1 || name.ptr[skip] != '/')
        return; /* the rest of a name with a line break, which no memory has */
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        struct entry *more = mg_arena_alloc(l->a, sizeof(*more) * (size_t)l->cap);
        if (l->n)
            memcpy(more, l->entries, sizeof(*more) * (size_t)l->n);
        l->entries = more;
    }
    struct entry *e = &l->entries[l->n++];
    *e = (struct entry){.mount = mount, .kind = kind, .path = mg_arena_sv(l->a, mg_sv_from(name, skip))};
    if (sha.len == MG_MEMORY_SHA)
        memcpy(e->sha, sha.ptr, sha.len);
}

static void take_line(struct listing *l, const struct mg_memory *m, int *mount, struct mg_sv line)
{
    struct mg_sv sha, name;
    if (mg_sv_starts(line, "S ")) {
        *mount = -1;
        for (int i = 0; i < m->n; i++)
            if (mg_sv_eqz(mg_sv_from(line, 2), m->mounts[i].slug))
                *mount = i;
        return;
    }
    if (*mount < 0 || line.len == 0)
        return;
    if (mg_sv_eqz(line, "N"))
        l->was_gone[*mount] = true;
    else if (mg_sv_starts(line, "E "))
        l->whole[*mount] = mg_sv_eqz(line, "E 0");
    else if (mg_sv_starts(line, "X ./") || mg_sv_starts(line, "R ./"))
        add(l, m, *mount, line.ptr[0], MG_SV(""), mg_sv_from(line, 2));
    else if (mg_digest_line(l->a, line, &sha, &name))
        add(l, m, *mount, 'h', sha, name);
}

static mg_rc list(const struct mg_memory *m, struct mg_sandbox *box, struct mg_cancel *cancel, struct listing *ret,
                  struct mg_err *err)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(MG_MEMORY_LIST_MAX);
    int mount = -1;
    mg_rc rc = run_list(m, box, cancel, &out, err);
    struct mg_sv text = mg_buf_view(&out);
    while (rc >= 0 && text.len)
        take_line(ret, m, &mount, mg_sv_split(&text, '\n'));
    return rc;
}

/* ---- one file ---- */

static const char *place_of(struct mg_arena *a, const struct mg_memory *m, int mount, struct mg_sv path)
{
    return mg_arena_printf(a, MG_MEMORY_FOLDER "/%s%.*s", m->mounts[mount].slug, MG_SV_ARG(path)).ptr;
}

static mg_rc too_big(struct mg_err *err)
{
    return mg_err_set(err, MG_ETOOBIG, "it has more than the %d bytes that a memory may have; make it smaller",
                      MG_MEMORY_CONTENT_MAX);
}

/* Its text and hash as they are now. MG_ENOTFOUND: it went; MG_ETOOBIG. */
static mg_rc read_file(const struct mg_memory *m, struct mg_sandbox *box, int mount, struct mg_sv path,
                       struct mg_buf *out, char sha[MG_SHA256_HEX], struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    bool eof = false;
    mg_rc rc =
        mg_sandbox_ops(box)->read(box, place_of(a, m, mount, path), 0, MG_MEMORY_CONTENT_MAX + 1, out, &eof, err);
    if (rc < 0)
        return rc;
    if (out->len > MG_MEMORY_CONTENT_MAX)
        return too_big(err);
    mg_sha256_hex(mg_buf_view(out), sha);
    return MG_OK;
}

static void why_no_memory(const struct mg_memory *m, struct mg_sandbox *box, const struct entry *e, struct mg_err *why)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_file_stat st = {0};
    if (mg_sandbox_ops(box)->stat(box, place_of(a, m, e->mount, e->path), &st, why) == MG_OK && st.kind == 'f' &&
        st.size > MG_MEMORY_CONTENT_MAX)
        (void)too_big(why);
    else
        (void)mg_err_set(why, MG_EINVAL, "it is a link or a special file; a memory is a regular file");
}

/* ---- what differs ---- */

static bool has_room(struct mg_memory_delta *d)
{
    return d->n < MG_MEMORY_PASS_FILES && d->bytes < MG_MEMORY_PASS_BYTES;
}

static void add_change(struct mg_memory_delta *d, int mount, struct mg_sv path, const struct mg_memory_file *f)
{
    if (d->n == d->cap) {
        d->cap = d->cap ? d->cap * 2 : 16;
        d->changes = mg_xrealloc(d->changes, sizeof(*d->changes) * (size_t)d->cap);
    }
    struct mg_memory_change *c = &d->changes[d->n++];
    *c = (struct mg_memory_change){.mount = mount, .path = mg_xstrndup(path.ptr, path.len), .pulled = f->pulled};
    memcpy(c->sha, f->seen, sizeof(c->sha));
    c->told = strcmp(f->told, f->seen[0] ? f->seen : MG_MEMORY_TOLD_GONE) == 0;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static void refuse(struct mg_memory *m, struct mg_memory_delta *d, const struct entry *e, const char *state,
                   const char *why)
{
    struct mg_memory_mount *mount = &m->mounts[e->mount];
    pthread_mutex_lock(&m->lock);
    struct mg_memory_file *f = mg_memory_file_of(mount, e->path);
    bool news = !f->refused || !same(f->told, state);
    f->refused = true;
    (void)memcpy(f->told, state, strlen(state) + 1);
    pthread_mutex_unlock(&m->lock);
    if (news)
        mg_memory_note(d, mount, e->path, "not saved: %s", why);
}

/* What the listing says of one path. True: it may have to be taken over. */
static bool differs(struct mg_memory *m, const struct entry *e, struct mg_memory_file *ret)
{
    pthread_mutex_lock(&m->lock);
    struct mg_memory_file *f = mg_memory_file_of(&m->mounts[e->mount], e->path);
    if (!same(f->seen, e->sha))
        f->pulled = false;
    memcpy(f->seen, e->sha, sizeof(f->seen));
    if (same(f->seen, f->base)) {
        f->told[0] = '\0';
        f->refused = f->pulled = false;
    }
    bool known = f->refused && same(f->told, f->seen);
    *ret = *f;
    pthread_mutex_unlock(&m->lock);
    return !known && !same(ret->seen, ret->base);
}

/* The text of a candidate. False: it does not go to the store. */
static bool read_text(struct mg_memory *m, struct mg_sandbox *box, const struct entry *e, struct mg_memory_delta *d,
                      struct mg_memory_change *c)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MG_MEMORY_CONTENT_MAX + 2);
    struct mg_err err = {0};
    mg_rc rc = mg_memory_path_check(e->path, "its name", &err);
    if (rc >= 0)
        rc = read_file(m, box, e->mount, e->path, &text, c->sha, &err);
    if (rc >= 0 && !mg_utf8_valid(mg_buf_view(&text), NULL))
        rc = mg_err_set(&err, MG_EINVAL, "it is not valid UTF-8 text");
    if (rc == MG_EINVAL || rc == MG_ETOOBIG)
        refuse(m, d, e, e->sha, err.text);
    if (rc < 0)
        return false;
    d->bytes += text.len;
    c->text = mg_buf_steal(&text, &c->len);
    return true;
}

/* Unhashed: all of them are read. */
static bool hash_unhashed(const struct mg_memory *m, struct mg_sandbox *box, struct entry *e)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MG_MEMORY_CONTENT_MAX + 2);
    struct mg_err err;
    return e->kind != 'R' || read_file(m, box, e->mount, e->path, &text, e->sha, &err) == MG_OK;
}

/* Listed: whatever becomes of a look at it, it is not missing. */
static void mark_listed(struct mg_memory *m, const struct entry *e)
{
    pthread_mutex_lock(&m->lock);
    mg_memory_file_of(&m->mounts[e->mount], e->path)->listed = true;
    pthread_mutex_unlock(&m->lock);
}

static bool look_at(struct mg_memory *m, struct mg_sandbox *box, struct entry *e, struct mg_memory_delta *d)
{
    struct mg_memory_file f;
    struct mg_err why = {0};
    if (!m->mounts[e->mount].mounted)
        return true;
    mark_listed(m, e);
    if (e->kind == 'X') {
        why_no_memory(m, box, e, &why);
        refuse(m, d, e, NO_MEMORY, why.text);
        return true;
    }
    if (!hash_unhashed(m, box, e) || !differs(m, e, &f))
        return true;
    if (!has_room(d))
        return false;
    add_change(d, e->mount, e->path, &f);
    struct mg_memory_change *c = &d->changes[d->n - 1];
    if (f.pulled || m->mounts[e->mount].read_only || read_text(m, box, e, d, c))
        return true;
    free(c->path);
    d->n--;
    return true;
}

/* ---- what is missing, and what we wrote ourselves ---- */

struct rest {
    struct mg_memory_delta *d;
    int mount;
    bool gone; /* files that the listing did not have are gone */
};

static void clear_listed(void *ctx, struct mg_sv path, void *value)
{
    (void)ctx, (void)path;
    ((struct mg_memory_file *)value)->listed = false;
}

static void look_at_rest(void *ctx, struct mg_sv path, void *value)
{
    struct rest *r = ctx;
    struct mg_memory_file *f = value;
    if (f->listed)
        return;
    if (r->gone && f->seen[0]) {
        f->seen[0] = '\0';
        f->pulled = f->refused = false;
    }
    bool missing = r->gone && f->base[0] && !f->seen[0];
    if ((missing || (f->pulled && !same(f->seen, f->base))) && has_room(r->d))
        add_change(r->d, r->mount, path, f);
}

static void clear_marks(struct mg_memory *m)
{
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n; i++)
        mg_map_each(m->mounts[i].files, clear_listed, NULL);
    pthread_mutex_unlock(&m->lock);
}

static void add_rest(struct mg_memory *m, const struct listing *l, struct mg_memory_delta *d)
{
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n; i++) {
        /* a command that runs may be about to make the file again */
        struct rest r = {d, i, l->whole[i] && m->mounts[i].mounted && !d->others};
        if (!d->reset[i])
            mg_map_each(m->mounts[i].files, look_at_rest, &r);
    }
    pthread_mutex_unlock(&m->lock);
}

mg_rc mg_memory_collect(struct mg_memory *m, struct mg_sandbox *box, struct mg_cancel *cancel, bool look,
                        struct mg_memory_delta *d, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct listing l = {.a = a};
    struct mg_err own = {0};
    clear_marks(m);
    d->look = ++m->looks;
    d->others = m->calls > 0;
    mg_rc rc = look ? list(m, box, cancel, &l, &own) : MG_OK;
    if (rc == MG_EGONE || rc == MG_ECANCELED)
        return mg_err_set(err, rc, "%s", own.text);
    if (rc < 0) /* a list that is not whole says nothing about what is missing */
        mg_memory_note(d, NULL, MG_SV(""), "changes are not saved yet: %s; they are looked for after the next call",
                       own.text);
    for (int i = 0; i < m->n && rc >= 0; i++) {
        d->reset[i] = l.was_gone[i] && m->mounts[i].mounted;
        if (d->reset[i])
            mg_memory_note(d, &m->mounts[i], MG_SV(""),
                           "the folder itself was removed, which deletes nothing: its files are put back. Remove files "
                           "in it to delete memories");
    }
    bool all = true;
    for (int i = 0; i < l.n && rc >= 0 && all; i++)
        all = look_at(m, box, &l.entries[i], d);
    if (!all)
        mg_memory_note(d, NULL, MG_SV(""),
                       "more files have changed than are saved at once; the rest is saved after the next call");
    if (rc < 0 || !all)
        memset(l.whole, 0, sizeof(l.whole));
    add_rest(m, &l, d);
    return MG_OK;
}
