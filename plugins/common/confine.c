#include "common/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Every open goes through openat2 beneath the workspace's descriptor, so the kernel itself refuses what leads out,
 * whatever a command swaps meanwhile. Absolute links that point back into the workspace are turned into relative ones
 * here, then opened the same way. */

enum {
    RACES_MAX = 64,         /* EAGAIN of openat2: a rename met a ".." */
    CONFINE_LINKS_MAX = 40, /* symbolic links in one path, as the kernel has it */
};

static int beneath(int dir_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (int i = 0; i < RACES_MAX; i++) {
        int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            return fd >= 0 ? fd : -errno;
    }
    return -EAGAIN;
}

bool confine_works(int dir_fd)
{
    int fd = beneath(dir_fd, ".", O_PATH | O_DIRECTORY);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* "" and "." and the root itself become "."; an absolute path must lie inside of the root. 0 or -errno. */
static int relative(const struct confine *b, const char *path, size_t len, char out[PATH_MAX])
{
    size_t root_len = strlen(b->root);
    if (memchr(path, '\0', len))
        return -EINVAL;
    if (len > 0 && path[0] == '/') {
        if (len < root_len || memcmp(path, b->root, root_len) != 0 || (len > root_len && path[root_len] != '/'))
            return -EXDEV;
        path += root_len;
        len -= root_len;
        while (len > 0 && *path == '/') {
            path++;
            len--;
        }
    }
    if (len >= PATH_MAX)
        return -ENAMETOOLONG;
    if (len == 0)
        memcpy(out, ".", 2);
    else
        snprintf(out, PATH_MAX, "%.*s", (int)len, path);
    return 0;
}

/* path[0..link_len) is a link with this target: replaces it in path. 0 or -errno. */
static int substitute(const struct confine *b, char path[PATH_MAX], size_t link_len, const char *target)
{
    char head[PATH_MAX], next[PATH_MAX];
    const char *rest = path + link_len; /* "" or "/..." */
    int n;
    if (target[0] == '/') {
        int rc = relative(b, target, strlen(target), head);
        if (rc < 0)
            return rc;
        n = snprintf(next, sizeof(next), "%s%s", head, rest);
    } else {
        size_t dir_len = link_len;
        while (dir_len > 0 && path[dir_len - 1] != '/')
            dir_len--;
        n = snprintf(next, sizeof(next), "%.*s%s%s", (int)dir_len, path, target, rest);
    }
    if (n < 0 || n >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(path, next, (size_t)n + 1);
    return 0;
}

/* Looks at the component that ends at len. 1: it was a link and has been replaced; 0: it is none; negative: -errno. */
static int expand_at(const struct confine *b, char path[PATH_MAX], size_t len)
{
    char prefix[PATH_MAX], target[PATH_MAX];
    struct stat st;
    snprintf(prefix, sizeof(prefix), "%.*s", (int)len, path);
    int fd = beneath(b->root_fd, prefix, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return fd;
    ssize_t n = fstat(fd, &st) == 0 && S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, sizeof(target) - 1) : 0;
    close(fd);
    if (n <= 0)
        return 0;
    target[n] = '\0';
    int rc = substitute(b, path, len, target);
    return rc < 0 ? rc : 1;
}

/* Replaces the first link on the way. 0: there was none. */
static int expand_first(const struct confine *b, char path[PATH_MAX])
{
    for (size_t i = 1;; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        int rc = path[i - 1] == '/' ? 0 : expand_at(b, path, i);
        if (rc != 0 || path[i] == '\0')
            return rc;
    }
}

static int open_relative(const struct confine *b, char path[PATH_MAX], uint64_t flags)
{
    for (int links = 0; links < CONFINE_LINKS_MAX; links++) {
        int fd = beneath(b->root_fd, path, flags);
        if (fd != -EXDEV)
            return fd;
        int rc = expand_first(b, path);
        if (rc <= 0)
            return rc == 0 || rc == -ENOENT ? -EXDEV : rc;
    }
    return -ELOOP;
}

int confine_open(const struct confine *b, struct mango_sv path, uint64_t flags)
{
    char rel[PATH_MAX];
    int rc = relative(b, path.ptr, path.len, rel);
    return rc < 0 ? rc : open_relative(b, rel, flags);
}

/* Makes the folder and what is missing above it. */
static int make_dirs(const struct confine *b, const char *dir)
{
    char path[PATH_MAX];
    for (size_t i = 1;; i++) {
        if (dir[i] != '/' && dir[i] != '\0')
            continue;
        snprintf(path, sizeof(path), "%.*s", (int)i, dir);
        int fd = open_relative(b, path, O_PATH | O_DIRECTORY);
        if (fd == -ENOENT) {
            const char *slash = strrchr(path, '/');
            const char *name = slash ? slash + 1 : path;
            char up[PATH_MAX];
            snprintf(up, sizeof(up), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
            int parent = open_relative(b, up, O_PATH | O_DIRECTORY);
            if (parent < 0)
                return parent;
            int e = mkdirat(parent, name, 0755) < 0 && errno != EEXIST ? errno : 0;
            close(parent);
            if (e)
                return -e;
            snprintf(path, sizeof(path), "%.*s", (int)i, dir);
            fd = open_relative(b, path, O_PATH | O_DIRECTORY);
        }
        if (fd < 0)
            return fd;
        if (dir[i] == '\0')
            return fd;
        close(fd);
    }
}

int confine_parent(const struct confine *b, struct mango_sv path, char name[256])
{
    char rel[PATH_MAX];
    int rc = relative(b, path.ptr, path.len, rel);
    if (rc < 0)
        return rc;
    int links = 0;
    /* A link in the last place stands for the file that it names, there or not. */
    do {
        rc = expand_at(b, rel, strlen(rel));
        if (rc == -EXDEV && (rc = expand_first(b, rel)) == 0)
            return -EXDEV;
        if (rc < 0 && rc != -ENOENT)
            return rc;
    } while (rc == 1 && ++links < CONFINE_LINKS_MAX);
    if (links == CONFINE_LINKS_MAX)
        return -ELOOP;
    char *slash = strrchr(rel, '/');
    const char *last = slash ? slash + 1 : rel;
    if (*last == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return -EISDIR;
    size_t len = strlen(last);
    if (len > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(name, last, len + 1);
    if (!slash)
        return beneath(b->root_fd, ".", O_PATH | O_DIRECTORY);
    while (slash > rel && slash[-1] == '/')
        slash--;
    *slash = '\0';
    return make_dirs(b, rel);
}
