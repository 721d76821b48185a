/* STATE/egress: the key of credentials, and a folder for each unix socket. A folder, not the socket, is what a sandbox
 * gets mounted: the socket of the next process then shows up in it. Nothing is followed; the state folder itself is its
 * owner's alone, so that the sockets can be open to any user of the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "egress/internal.h"

enum { BACKLOG = 64 };

#define SOCKET_NAME "proxy.sock"

/* Opens a folder below at, made when missing. */
static int folder(int at, const char *name, mode_t mode)
{
    if (mkdirat(at, name, mode) < 0 && errno != EEXIST)
        return -1;
    return openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static mg_rc need_dir(struct mg_egress *e, struct mg_err *err)
{
    struct stat st;
    if (e->dir_fd >= 0)
        return MG_OK;
    if (!e->state_dir || !e->state_dir[0])
        return mg_err_set(err, MG_ECONFIG, "the filtering proxy needs a state folder: set MANGO_STATE_DIR");
    mg_autofd int state = folder(AT_FDCWD, e->state_dir, 0700);
    if (state < 0)
        return mg_err_errno(err, errno, "open the state folder for the filtering proxy");
    char *whole = realpath(e->state_dir, NULL); /* sandboxes mount it: it must not depend on our folder */
    if (!whole)
        return mg_err_errno(err, errno, "open the state folder for the filtering proxy");
    free(e->state_dir);
    e->state_dir = whole;
    e->dir_fd = folder(state, "egress", 0700);
    if (e->dir_fd < 0 || fstat(e->dir_fd, &st) < 0)
        return mg_err_errno(err, errno, "make the folder of the filtering proxy in the state folder");
    if (st.st_uid == geteuid() && (st.st_mode & 077) == 0)
        return MG_OK;
    close(e->dir_fd);
    e->dir_fd = -1;
    return mg_err_set(err, MG_ECONFIG, "the folder egress in the state folder is open to other users; remove it");
}

/* Reads the key, or makes it: other processes on this folder must come to the same one. */
static mg_rc need_key(struct mg_egress *e, struct mg_err *err)
{
    uint8_t fresh[sizeof(e->key)];
    char temporary[64];
    mg_rc rc = need_dir(e, err);
    if (rc < 0 || e->have_key)
        return rc;
    mg_autofd int fd = openat(e->dir_fd, "key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        (void)snprintf(temporary, sizeof(temporary), "key.%016llx", (unsigned long long)mg_rng_u64());
        mg_rng_bytes(fresh, sizeof(fresh));
        mg_autofd int out = openat(e->dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        bool written = out >= 0 && write(out, fresh, sizeof(fresh)) == (ssize_t)sizeof(fresh) && fsync(out) == 0;
        if (written)
            (void)!linkat(e->dir_fd, temporary, e->dir_fd, "key", 0); /* whoever is first wins */
        (void)unlinkat(e->dir_fd, temporary, 0);
        mg_wipe(fresh, sizeof(fresh));
        fd = openat(e->dir_fd, "key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0 || read(fd, e->key, sizeof(e->key)) != (ssize_t)sizeof(e->key))
        return mg_err_errno(err, errno ? errno : EIO, "keep the key of the filtering proxy in the state folder");
    e->have_key = true;
    return MG_OK;
}

mg_rc mg_egress_token(struct mg_egress *e, const char *label, char out[MG_EGRESS_LABEL_MAX], struct mg_err *err)
{
    char hex[MG_SHA256_HEX];
    mg_rc rc = need_key(e, err);
    if (rc < 0)
        return rc;
    struct mg_sha256 *h = mg_sha256_new();
    mg_sha256_update(h, "mango-egress-v1", sizeof("mango-egress-v1"));
    mg_sha256_update(h, e->key, sizeof(e->key));
    mg_sha256_update(h, label, strlen(label));
    mg_sha256_final_hex(h, hex);
    (void)snprintf(out, MG_EGRESS_LABEL_MAX, "%.32s", hex);
    mg_wipe(hex, sizeof(hex));
    return MG_OK;
}

/* The path goes through /proc: a socket's own may have 107 bytes only. */
static mg_rc bind_in(int dir, int fd, struct mg_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/" SOCKET_NAME, dir);
    (void)unlinkat(dir, SOCKET_NAME, 0);
    if (bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 || fchmodat(dir, SOCKET_NAME, 0666, 0) < 0 ||
        listen(fd, BACKLOG) < 0)
        return mg_err_errno(err, errno, "listen on a socket of the filtering proxy");
    return MG_OK;
}

mg_rc mg_egress_socket_make(struct mg_egress *e, const char *label, int *ret_fd, struct mg_buf *ret_dir,
                            struct mg_err *err)
{
    mg_rc rc = need_dir(e, err);
    if (rc < 0)
        return rc;
    mg_autofd int dir = folder(e->dir_fd, label, 0755);
    mg_autofd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dir < 0 || fd < 0 || fchmodat(e->dir_fd, label, 0755, 0) < 0) /* whatever the umask is */
        return mg_err_errno(err, errno, "make a socket of the filtering proxy");
    rc = bind_in(dir, fd, err);
    if (rc == MG_OK && mg_buf_printf(ret_dir, "%s/egress/%s", e->state_dir, label) < 0)
        rc = mg_err_set(err, MG_ETOOBIG, "the state folder's path is longer than the plugin's buffer");
    if (rc == MG_OK)
        *ret_fd = mg_steal_fd(&fd);
    return rc;
}

void mg_egress_socket_remove(struct mg_egress *e, const char *label)
{
    struct mg_err err = {0};
    if (!e->state_dir || need_dir(e, &err) < 0)
        return;
    mg_autofd int dir = openat(e->dir_fd, label, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return;
    (void)unlinkat(dir, SOCKET_NAME, 0);
    (void)unlinkat(e->dir_fd, label, AT_REMOVEDIR);
}
