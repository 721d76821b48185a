#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/hostbox/hostbox.h"

/* Which folder a path leads into: the workspace, or one of the roots beside it. */

static bool below(struct mango_sv path, const char *root)
{
    size_t n = strlen(root);
    return path.len >= n && memcmp(path.ptr, root, n) == 0 && (path.len == n || path.ptr[n] == '/');
}

static struct box_root workspace(const struct box *b)
{
    const char *root = strcmp(b->root, "/") == 0 ? "" : b->root;
    return (struct box_root){{root, b->root_fd}, b->all->read_only};
}

/* The innermost one that an absolute path stands below; the workspace for everything else. */
static struct box_root root_of(const struct box *b, struct mango_sv path)
{
    struct box_root best = workspace(b);
    bool found = path.len > 0 && path.ptr[0] == '/' && below(path, best.at.root);
    for (int i = 0; i < b->all->n_roots && path.len > 0 && path.ptr[0] == '/'; i++) {
        const struct box_root *r = &b->all->roots[i];
        if (below(path, r->at.root) && (!found || strlen(r->at.root) > strlen(best.at.root))) {
            best = *r;
            found = true;
        }
    }
    return best;
}

/* Where everything is allowed, a link may lead a relative path out of the workspace: then the whole path counts. */
static bool wider(const struct box *b, struct mango_sv path, char out[PATH_MAX], struct box_root *ret)
{
    for (int i = 0; i < b->all->n_roots; i++) {
        if (b->all->roots[i].at.root[0])
            continue;
        bool whole = path.len > 0 && path.ptr[0] == '/';
        int n = snprintf(out, PATH_MAX, "%s%s%.*s", whole ? "" : b->root, whole ? "" : "/", (int)path.len,
                         path.len ? path.ptr : "");
        *ret = b->all->roots[i];
        return n > 0 && n < PATH_MAX && !memchr(path.ptr, '\0', path.len);
    }
    return false;
}

int path_open(const struct box *b, struct mango_sv path, uint64_t flags)
{
    struct box_root r = root_of(b, path);
    char whole[PATH_MAX];
    user_enter(b);
    int fd = confine_open(&r.at, path, flags);
    if (fd == -EXDEV && wider(b, path, whole, &r))
        fd = confine_open(&r.at, sv_z(whole), flags);
    user_leave(b);
    return fd;
}

/* The kernel's own name of what a descriptor stands for; "" where it has none. */
static void name_of(int fd, char out[PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
}

/* A folder that may not be written may stand within one that may, and be reached by a relative path or a link: where the
 * folder is counts, not how it was named. */
static bool forbids(const struct box *b, int dir_fd)
{
    char dir[PATH_MAX], root[PATH_MAX];
    for (int i = 0; i < b->all->n_roots; i++) {
        if (!b->all->roots[i].read_only)
            continue;
        name_of(dir_fd, dir);
        name_of(b->all->roots[i].at.root_fd, root);
        if (root[0] && below(sv_z(dir), root))
            return true;
    }
    return false;
}

int path_parent(const struct box *b, struct mango_sv path, char name[256])
{
    struct box_root r = root_of(b, path);
    char whole[PATH_MAX];
    if (r.read_only)
        return -EROFS;
    user_enter(b);
    int fd = confine_parent(&r.at, path, name);
    if (fd == -EXDEV && wider(b, path, whole, &r))
        fd = confine_parent(&r.at, sv_z(whole), name);
    user_leave(b);
    if (fd >= 0 && forbids(b, fd)) {
        close(fd);
        return -EROFS;
    }
    return fd;
}
