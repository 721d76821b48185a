#include "worker/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>

#include "base/clock.h"
#include "base/log.h"
#include "common/hostbox/remove.h"
#include "crypto/hash.h"
#include "worker/dir.h"
#include "worker/memory-folder.h"

enum {
    LOCK_RETRY_MS = 500, /* the folder is another live session's: looked at again */
    LOCK_NAME_HEX = 24,  /* digits of its digest that stand for the folder's name */
    LOCK_TEXT_MAX = 256, /* bytes of the lock that are read: a store's id is shorter */
    END_PAUSE_MS = 500,  /* between tries at the end while the server is away */
};

struct mg_memories {
    struct mg_memory_opts o;
    struct mg_memory_folder *stores[MG_MEMORY_STORES_MAX];
    unsigned n;
    uint64_t last_ns; /* the last pass */
};

/* ---- where a store's folder is ---- */

static bool clean_absolute(struct mg_sv path)
{
    if (path.len < 2 || path.len >= PATH_MAX || path.ptr[0] != '/')
        return false;
    for (struct mg_sv rest = mg_sv_from(path, 1); rest.len;)
        if (!mg_dir_component(mg_sv_split(&rest, '/')))
            return false;
    return path.ptr[path.len - 1] != '/';
}

/* The folder above the store's, made when missing. A descriptor or -errno. */
static int open_parent(const struct mg_memory_folder *s, const char *workdir, bool in_workdir)
{
    char parent[PATH_MAX];
    size_t n = (size_t)(s->name - s->root) - 1;
    if (in_workdir) {
        mg_autofd int root = open(workdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return root < 0 ? -errno : mg_dir_open(root, "memory", true);
    }
    if (n == 0)
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memcpy(parent, s->root, n);
    parent[n] = '\0';
    return mg_dir_absolute(parent);
}

/* Its mount_path as it is; without one, memory/NAME of the work folder. */
static mg_rc find_place(struct mg_memory_folder *s, struct mg_arena *a, const struct mg_json *resource,
                        const char *workdir, struct mg_err *err)
{
    struct mg_sv mount = mg_json_get_str(a, resource, "mount_path"), name = mg_json_get_str(a, resource, "name");
    struct mg_sv id = mg_sv_of(s->id);
    if (mount.len && !clean_absolute(mount))
        return mg_err_set(
            err, MG_EINVAL,
            "its mount_path must be absolute, without empty components, . and .., and without a slash at the end");
    if (!mg_dir_component(id))
        return mg_err_set(err, MG_EINVAL, "its memory_store_id cannot be the name of a folder");
    struct mg_sv path = mount.len ? mount
                                  : mg_arena_printf(a, "%s/memory/%.*s", strcmp(workdir, "/") == 0 ? "" : workdir,
                                                    MG_SV_ARG(mg_dir_component(name) ? name : id));
    s->root = mg_xstrndup(path.ptr, path.len);
    s->name = strrchr(s->root, '/') + 1;
    s->parent_fd = open_parent(s, workdir, mount.len == 0);
    if (s->parent_fd < 0)
        return mg_err_set(err, MG_EINVAL, "the folder above %s cannot be made on the worker's machine: %s", s->root,
                          strerror(-s->parent_fd));
    return MG_OK;
}

/* ---- whose it is ---- */

/* A file beside the folder says that this program made it, for which store, and, by its lock, whether a session uses it. So what a killed
 * worker left is told from what belongs to somebody else, and from what is in use. */
static int lock_once(struct mg_memory_folder *s)
{
    struct stat st;
    int fd = openat(s->parent_fd, s->lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int e = flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno : fstat(fd, &st) < 0 ? errno : st.st_nlink == 0 ? EINTR : 0;
    if (e == 0)
        return fd;
    close(fd);
    return -e;
}

static mg_rc lock_place(struct mg_memory_folder *s, struct mg_tether *t, struct mg_err *err)
{
    char sha[MG_SHA256_HEX];
    mg_sha256_hex(mg_sv_of(s->name), sha);
    (void)snprintf(s->lock_name, sizeof(s->lock_name), ".mango-%.*s.lock", LOCK_NAME_HEX, sha);
    for (bool said = false;;) {
        s->lock_fd = lock_once(s);
        if (s->lock_fd >= 0)
            return MG_OK;
        if (s->lock_fd == -EINTR) /* it was removed under us */
            continue;
        if (s->lock_fd != -EWOULDBLOCK)
            return mg_err_set(err, MG_EINVAL, "nothing can be made beside %s on the worker's machine: %s", s->root,
                              strerror(-s->lock_fd));
        if (!said)
            mg_log(MG_WARN, "waits for a memory store's folder that another session on this machine uses",
                   MG_F_STR("folder", s->root));
        said = true;
        mg_tether_sleep(t, LOCK_RETRY_MS);
        if (mg_tether_ended(t) != MG_TETHER_RUNS)
            return mg_err_set(err, MG_ECANCELED, "the worker was asked to leave before the tools began");
    }
}

/* What is at the place is what a worker that was killed made: nobody else's files are ever removed. Its lock names the store, and so does
 * its marker. */
static bool left_by_us(struct mg_memory_folder *s)
{
    char text[LOCK_TEXT_MAX];
    ssize_t n = pread(s->lock_fd, text, sizeof(text), 0);
    if (n <= 0)
        return false; /* the lock was made just now */
    struct mg_memory_folder left = {.id = mg_xstrndup(text, (size_t)n),
                                    .fd = mg_dir_open(s->parent_fd, s->name, false)};
    bool ours = mg_memory_marked(&left);
    if (left.fd >= 0)
        close(left.fd);
    free(left.id);
    if (!ours)
        s->lock_name[0] = '\0'; /* it is not ours to remove either */
    return ours;
}

static mg_rc make_folder(struct mg_memory_folder *s, struct mg_err *err)
{
    struct stat st;
    bool there = fstatat(s->parent_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !left_by_us(s))
        return mg_err_set(err, MG_EINVAL,
                          "there is something at %s on the worker's machine already; remove it, since its files would "
                          "become memories of the store",
                          s->root);
    int e = there ? remove_tree(s->parent_fd, s->name) : 0;
    bool written = e == 0 && ftruncate(s->lock_fd, 0) == 0 &&
                   pwrite(s->lock_fd, s->id, strlen(s->id), 0) == (ssize_t)strlen(s->id);
    if (e == 0 && !written)
        e = errno ? errno : EIO;
    if (e == 0)
        s->fd = mg_dir_open(s->parent_fd, s->name, true);
    if (e == 0 && s->fd < 0)
        e = -s->fd;
    s->ours = e == 0;
    return e ? mg_err_set(err, MG_EINVAL, "the folder %s cannot be made on the worker's machine: %s", s->root,
                          strerror(e))
             : MG_OK;
}

/* ---- the session's stores ---- */

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static bool any(const struct mg_memory_file *f)
{
    (void)f;
    return true;
}

static void store_free(struct mg_memory_folder *s)
{
    mg_memory_forget(s, any);
    mg_map_free(s->by_path);
    free(s->files);
    close_fd(s->fd);
    close_fd(s->lock_fd);
    close_fd(s->parent_fd);
    free(s->root);
    free(s->id);
    free(s);
}

static struct mg_memory_api api_of(const struct mg_memories *m, const struct mg_memory_folder *s,
                                   struct mg_cancel *cancel, uint64_t deadline_ns)
{
    return (struct mg_memory_api){
        .remote = m->o.remote, .tether = m->o.tether, .store_id = s->id, .cancel = cancel, .deadline_ns = deadline_ns};
}

bool mg_memory_any(struct mg_arena *a, const struct mg_json *resources)
{
    const struct mg_json *e = mg_json_is(resources, MG_JSON_ARRAY) ? resources->child : NULL;
    while (e && !mg_sv_eqz(mg_json_get_str(a, e, "type"), "memory_store"))
        e = e->next;
    return e != NULL;
}

/* The code of a failure: what no try can mend is MG_EINVAL. */
static mg_rc verdict(const struct mg_memories *m, mg_rc rc)
{
    if (rc == MG_OK)
        return rc;
    if (mg_tether_ended(m->o.tether) != MG_TETHER_RUNS)
        return MG_ECANCELED;
    return rc == MG_ENOTFOUND || rc == MG_EDENIED ? MG_EINVAL : rc;
}

static mg_rc prepare_one(struct mg_memories *m, struct mg_arena *a, const struct mg_json *resource, struct mg_err *err)
{
    struct mg_sv id = mg_json_get_str(a, resource, "memory_store_id");
    if (m->n == MG_MEMORY_STORES_MAX)
        return mg_err_set(err, MG_EINVAL, "the session has more than %d memory stores; attach fewer",
                          MG_MEMORY_STORES_MAX);
    struct mg_memory_folder *s = m->stores[m->n++] = mg_xcalloc(1, sizeof(*s));
    *s = (struct mg_memory_folder){
        .id = mg_xstrndup(id.ptr, id.len),
        .parent_fd = -1,
        .fd = -1,
        .lock_fd = -1,
        .by_path = mg_map_new(),
        .read_only = mg_sv_eqz(mg_json_get_str(a, resource, "access"), "read_only"),
    };
    mg_rc rc = find_place(s, a, resource, m->o.workdir, err);
    if (rc == MG_OK)
        rc = lock_place(s, m->o.tether, err);
    if (rc == MG_OK)
        rc = make_folder(s, err);
    if (rc == MG_OK) {
        const struct mg_memory_api api = api_of(m, s, m->o.tether->leave, 0);
        rc = verdict(m, mg_memory_download(s, &api, err));
    }
    return rc < 0 ? mg_err_wrap(err, rc, "memory store %s", s->id) : MG_OK;
}

mg_rc mg_memories_prepare(const struct mg_memory_opts *o, const struct mg_json *resources, struct mg_memories **ret,
                          struct mg_err *err)
{
    struct mg_memories *m = *ret = mg_xcalloc(1, sizeof(*m));
    mg_rc rc = MG_OK;
    m->o = *o;
    const struct mg_json *e = mg_json_is(resources, MG_JSON_ARRAY) ? resources->child : NULL;
    for (; e && rc == MG_OK; e = e->next) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        if (mg_sv_eqz(mg_json_get_str(a, e, "type"), "memory_store"))
            rc = prepare_one(m, a, e, err);
    }
    m->last_ns = mg_now_ns();
    return rc;
}

unsigned mg_memories_roots(const struct mg_memories *m, bool read_only, const char **ret)
{
    unsigned n = 0;
    for (unsigned i = 0; i < m->n; i++)
        if (m->stores[i]->ours && (!read_only || m->stores[i]->read_only))
            ret[n++] = m->stores[i]->root;
    return n;
}

void mg_memories_sync_due(struct mg_memories *m)
{
    if (mg_now_ns() - m->last_ns < (uint64_t)m->o.interval_ms * 1000000u ||
        mg_tether_ended(m->o.tether) != MG_TETHER_RUNS)
        return;
    for (unsigned i = 0; i < m->n; i++) {
        const struct mg_memory_api api = api_of(m, m->stores[i], m->o.tether->leave, 0);
        (void)!mg_memory_sync(m->stores[i], &api, false);
    }
    m->last_ns = mg_now_ns();
}

/* ---- the end ---- */

static mg_rc last_pass(struct mg_memories *m, struct mg_memory_folder *s, bool whole, uint64_t deadline_ns)
{
    const struct mg_memory_api api = api_of(m, s, m->o.tether->fence, deadline_ns);
    return whole ? mg_memory_sync(s, &api, true) : mg_memory_flush(s, &api);
}

/* All stores, each until it is done, the server comes back, or the time is over: what is not in the store by then is lost with the folder.
 * From OVER on the server takes nothing; what was lost is another's. */
static void last_passes(struct mg_memories *m, bool whole)
{
    uint64_t deadline_ns = mg_now_ns() + MG_MEMORY_END_MS * UINT64_C(1000000);
    for (unsigned i = 0; i < m->n; i++)
        while (m->stores[i]->ours && mg_now_ns() < deadline_ns && mg_tether_ended(m->o.tether) < MG_TETHER_OVER &&
               last_pass(m, m->stores[i], whole, deadline_ns) == MG_EUNAVAIL)
            mg_tether_sleep(m->o.tether, END_PAUSE_MS);
}

/* A folder that lost its marker, with files in it, is somebody else's by now. */
static void remove_folder(struct mg_memory_folder *s)
{
    bool marked = false;
    unsigned n = 0;
    mg_rc rc = mg_memory_scan(s, &marked, &n, NULL);
    if (!marked && (rc < 0 || n > 0)) {
        mg_log(MG_WARN, "the folder of a memory store lost its marker and is left on this machine",
               MG_F_STR("folder", s->root));
        return;
    }
    int e = remove_tree(s->parent_fd, s->name);
    if (e)
        mg_log(MG_WARN, "the folder of a memory store could not be removed", MG_F_STR("folder", s->root),
               MG_F_STR("error", strerror(e)));
    else if (s->lock_name[0])
        (void)unlinkat(s->parent_fd, s->lock_name, 0);
}

void mg_memories_end(struct mg_memories *m, bool clean, bool tools_run)
{
    if (!m)
        return;
    if (clean)
        last_passes(m, true);
    last_passes(m, false);
    for (unsigned i = 0; i < m->n; i++) {
        struct mg_memory_folder *s = m->stores[i];
        if (s->ours && !tools_run)
            remove_folder(s);
        else if (!s->ours && s->lock_fd >= 0 && s->lock_name[0])
            (void)unlinkat(s->parent_fd, s->lock_name, 0);
        store_free(s);
    }
    free(m);
}
