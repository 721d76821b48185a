#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hostbox/hostbox.h"

/* A command may leave a tree that is deeper than any stack or descriptor limit. So nothing recurses: a folder's
 * subfolders are moved up to the top under new names before it is removed, until the top is empty. Nothing runs in the
 * tree any more. */

enum { ROUNDS_MAX = 1000000 };

/* Makes a folder of ours readable even if a command has taken the permission away. */
static int open_dir(int parent, const char *name)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(parent, name, flags);
    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
        fd = openat(parent, name, flags);
    if (fd >= 0)
        (void)fchmod(fd, 0700);
    return fd;
}

/* Empties one folder: files go, subfolders go up to top (or, in top itself, are emptied in their turn). Returns the
 * number of folders met, or -errno. */
static int empty_into(int dir_fd, int top_fd, unsigned *serial)
{
    int copy = dup(dir_fd);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    int folders = 0, e = d ? 0 : errno;
    if (!d && copy >= 0)
        close(copy);
    if (d)
        rewinddir(d);
    for (struct dirent *it; d && e == 0 && (it = readdir(d));) {
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0)
            continue;
        if (unlinkat(dir_fd, it->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM) { /* EPERM: what POSIX says for folders */
            e = errno;
            break;
        }
        struct stat st;
        if (fstatat(dir_fd, it->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) {
            e = EPERM;
            break;
        }
        folders++;
        char name[32];
        snprintf(name, sizeof(name), "%u", (*serial)++);
        if (dir_fd != top_fd && unlinkat(dir_fd, it->d_name, AT_REMOVEDIR) < 0 &&
            renameat(dir_fd, it->d_name, top_fd, name) < 0) {
            int sub = open_dir(dir_fd, it->d_name); /* a folder without write permission cannot be moved */
            if (sub >= 0)
                close(sub);
            if (renameat(dir_fd, it->d_name, top_fd, name) < 0)
                e = errno == EEXIST || errno == ENOTEMPTY ? 0 : errno;
        }
    }
    if (d)
        closedir(d);
    return e ? -e : folders;
}

/* One pass over the folders in top. */
static int pass(int top_fd, unsigned *serial)
{
    int copy = dup(top_fd);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d) {
        int e = errno;
        if (copy >= 0)
            close(copy);
        return e;
    }
    int e = 0;
    rewinddir(d);
    for (struct dirent *it; e == 0 && (it = readdir(d));) {
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0)
            continue;
        int fd = open_dir(top_fd, it->d_name);
        if (fd < 0) {
            e = errno == ENOENT ? 0 : errno;
            continue;
        }
        int n = empty_into(fd, top_fd, serial);
        close(fd);
        if (n < 0)
            e = -n;
        else if (unlinkat(top_fd, it->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY &&
                 errno != EEXIST)
            e = errno;
    }
    closedir(d);
    return e;
}

int remove_tree(int base_fd, const char *name)
{
    int top = open_dir(base_fd, name);
    if (top < 0)
        return errno == ENOENT ? 0 : errno;
    unsigned serial = 0;
    int e = 0;
    for (int i = 0; i < ROUNDS_MAX; i++) {
        int folders = empty_into(top, top, &serial);
        if (folders <= 0) {
            e = -folders;
            break;
        }
        e = pass(top, &serial);
        if (e)
            break;
    }
    close(top);
    if (e == 0 && unlinkat(base_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        e = errno;
    return e;
}
