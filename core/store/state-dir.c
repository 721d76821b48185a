/* Opening the state folder without trusting what others may have put in its place. */
#include "store/state-dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/sv.h"

static mg_rc refuse(struct mg_err *err, const char *path, const char *why)
{
    return mg_err_set(err, MG_ECONFIG, "state folder %s: %s", path, why);
}

static mg_rc refuse_errno(struct mg_err *err, const char *path, const char *what)
{
    return mg_err_set(err, MG_ECONFIG, "state folder %s: %s: %s", path, what, strerror(errno));
}

/* Absolute, without trailing slashes. */
static mg_rc absolute(const char *path, char out[PATH_MAX], struct mg_err *err)
{
    char cwd[PATH_MAX] = "";
    if (!*path)
        return mg_err_set(err, MG_ECONFIG, "state folder: no path is set; set MANGO_STATE_DIR");
    if (*path != '/' && !getcwd(cwd, sizeof(cwd)))
        return refuse_errno(err, path, "the working folder is not known");
    int n = snprintf(out, PATH_MAX, "%s%s%s", cwd, *cwd ? "/" : "", path);
    if (n < 0 || n >= PATH_MAX)
        return mg_err_set(err, MG_ECONFIG, "state folder: the path is longer than %d bytes", PATH_MAX - 1);
    while (n > 1 && out[n - 1] == '/')
        out[--n] = '\0';
    const char *last = strrchr(out, '/') + 1;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return refuse(err, out, "name the folder itself, without . or .. at the end");
    return MG_OK;
}

/* A link on the way is fine when nobody but root or this user can have made it. */
static mg_rc check_links(char *parent, const char *path, struct mg_err *err)
{
    for (char *slash = parent; slash; slash = strchr(slash + 1, '/')) {
        char *end = strchr(slash + 1, '/');
        if (end)
            *end = '\0';
        struct stat st;
        int k = lstat(parent, &st);
        int saved = errno;
        if (end)
            *end = '/';
        if (k < 0)
            return mg_err_set(err, MG_ECONFIG, "state folder %s: its parent cannot be used (%s): create it first", path,
                              strerror(saved));
        if (S_ISLNK(st.st_mode) && st.st_uid != 0 && st.st_uid != geteuid())
            return refuse(err, path, "the path goes through a symbolic link of another user: name the real folder");
    }
    return MG_OK;
}

static mg_rc check_parent(int fd, const char *path, struct mg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return refuse_errno(err, path, "its parents cannot be looked at");
    if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
        return refuse(err, path,
                      "it lies in a folder that everybody may write: anybody could replace it; choose another place");
    return MG_OK;
}

/* Walks a path that realpath made, one component at a time; *ret_fd is the last folder. */
static mg_rc open_parents(char *real, const char *path, int *ret_fd, struct mg_err *err)
{
    mg_autofd int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct mg_sv rest = mg_sv_of(real);
    mg_rc rc = fd < 0 ? refuse_errno(err, path, "cannot be opened") : check_parent(fd, path, err);
    while (rc == 0 && rest.len > 0) {
        struct mg_sv part = mg_sv_split(&rest, '/');
        if (part.len == 0)
            continue;
        char name[NAME_MAX + 1];
        snprintf(name, sizeof(name), "%.*s", MG_SV_ARG(part));
        int next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return refuse_errno(err, path, "cannot be opened");
        close(fd);
        fd = next;
        rc = check_parent(fd, path, err);
    }
    if (rc == 0)
        *ret_fd = mg_steal_fd(&fd);
    return rc;
}

static mg_rc open_itself(int parent, const char *name, const char *path, int *ret_fd, struct mg_err *err)
{
    struct stat st;
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return refuse_errno(err, path, "cannot be made");
    mg_autofd int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR)) {
        bool link = fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
        return refuse(err, path, link ? "it is a symbolic link: name the real folder" : "it is not a folder");
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse_errno(err, path, "cannot be opened");
    if (st.st_uid != geteuid())
        return mg_err_set(
            err, MG_ECONFIG,
            "state folder %s: it belongs to user %u, this server runs as user %u: chown it, or choose another", path,
            (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return refuse(err, path, "other users may write it: chmod go-w");
    *ret_fd = mg_steal_fd(&fd);
    return MG_OK;
}

static mg_rc in_use(int fd, const char *path, struct mg_err *err)
{
    char pid[16] = "";
    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
    if (n > 0)
        pid[strspn(pid, "0123456789")] = '\0';
    return mg_err_code(err, MG_ECONFLICT, "state_in_use",
                       "state folder %s: another mangod uses it (process %s): stop that one, or choose another folder",
                       path, *pid ? pid : "unknown");
}

static mg_rc take_lock(int dir, const char *path, int *ret_fd, struct mg_err *err)
{
    mg_autofd int fd = openat(dir, "mangod.pid", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 && errno == ELOOP)
        return refuse(err, path, "mangod.pid in it is a symbolic link: remove it");
    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse_errno(err, path, "mangod.pid cannot be written");
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        return refuse(err, path, "mangod.pid in it is not a plain file of this user: remove it");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? in_use(fd, path, err) : refuse_errno(err, path, "mangod.pid cannot be locked");

    char text[16];
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return refuse_errno(err, path, "mangod.pid cannot be written");
    *ret_fd = mg_steal_fd(&fd);
    return MG_OK;
}

mg_rc mg_state_dir_open(const char *path, struct mg_state_dir *ret, struct mg_err *err)
{
    char full[PATH_MAX], parent[PATH_MAX], real[PATH_MAX];
    mg_rc rc = absolute(path, full, err);
    if (rc < 0)
        return rc;
    const char *name = strrchr(full, '/') + 1;
    snprintf(parent, sizeof(parent), "%.*s", name - full > 1 ? (int)(name - full - 1) : 1, full);
    rc = check_links(parent, full, err);
    if (rc < 0)
        return rc;
    if (!realpath(parent, real))
        return refuse_errno(err, full, "its parent cannot be used");

    mg_autofd int up = -1, fd = -1, lock = -1;
    rc = open_parents(real, full, &up, err);
    if (rc == 0)
        rc = open_itself(up, name, full, &fd, err);
    if (rc == 0)
        rc = take_lock(fd, full, &lock, err);
    if (rc < 0)
        return rc;
    char *whole = NULL;
    if (asprintf(&whole, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name) < 0)
        return mg_err_set(err, MG_EINTERNAL, "no memory");
    *ret = (struct mg_state_dir){.path = whole, .fd = mg_steal_fd(&fd), .lock = mg_steal_fd(&lock)};
    return MG_OK;
}

void mg_state_dir_close(struct mg_state_dir *d)
{
    if (!d->path)
        return;
    (void)!ftruncate(d->lock, 0);
    close(d->lock);
    close(d->fd);
    free(d->path);
    *d = (struct mg_state_dir){.fd = -1, .lock = -1};
}
