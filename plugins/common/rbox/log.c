#include "common/rbox/rbox.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/inside/inside.h"

/* The folders of commands: who watches one, what it has said so far, how it ended. */

enum {
    LOOK_MS = 20,     /* between two looks at a log that another process writes */
    LOCK_TRIES = 150, /* looks at a folder whose lock is not there yet: its maker is between two calls, or dead */
    KILL_LOOKS = 500, /* until the watcher has killed and gone */
    LOG_IDLE_S = 120, /* the log of a command that has ended stays so long */
};

static const char lost[] = "{\"how\":\"" RBOX_LOST "\"}", killed[] = "{\"how\":\"" RBOX_KILLED "\"}";

bool open_root(const char *root)
{
    if (mkdir(root, 0755) < 0 && errno != EEXIST)
        return false;
    ws = (struct confine){root, open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (ws.root_fd < 0 || (mkdirat(ws.root_fd, RBOX_DIR, 0755) < 0 && errno != EEXIST))
        return false;
    run_dir = openat(ws.root_fd, RBOX_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return run_dir >= 0;
}

bool id_ok(const char *id)
{
    size_t n = strlen(id);
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)id[i]) && !(i > 0 && id[i] == '-'))
            return false;
    }
    return n > 0 && n <= RBOX_ID_MAX;
}

static bool put(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        if (w < 0 && errno == EAGAIN)
            (void)poll(&wait, 1, -1);
        else if (w < 0 && errno != EINTR)
            return false;
        p += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
    return true;
}

bool put_frame(int fd, char kind, const void *p, size_t n)
{
    char f[RBOX_HEAD + RBOX_DATA_MAX] = {kind, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
    if (n > RBOX_DATA_MAX)
        return false;
    if (n)
        memcpy(f + RBOX_HEAD, p, n);
    return put(fd, f, RBOX_HEAD + n); /* one write: a watcher that is killed leaves whole frames */
}

void began(void)
{
    (void)put_frame(STDOUT_FILENO, RBOX_BEGAN, NULL, 0);
}

int say_result(const char *result)
{
    return put_frame(STDOUT_FILENO, RBOX_RESULT, result, strlen(result)) ? 0 : 1;
}

int say_errno(int errnum, const char *text)
{
    char result[512];
    snprintf(result, sizeof(result), "{\"how\":\"" RBOX_FAILED "\",\"errno\":%d,\"text\":\"%s\"}", errnum, text);
    return say_result(result);
}

/* ---- the folder ---- */

/* Process id of who holds the lock; 0: nobody. */
static pid_t holder(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK ? l.l_pid : 0;
}

static bool take_lock(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &l) == 0;
}

static int open_parts(const char *id, struct folder *ret)
{
    ret->dir = openat(run_dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (ret->dir < 0)
        return errno;
    ret->lock = openat(ret->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    ret->log = openat(ret->dir, "log", O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    return ret->lock < 0 || ret->log < 0 ? errno : 0;
}

int folder_make(const char *id, struct folder *ret)
{
    *ret = (struct folder){-1, -1, -1};
    if (mkdirat(run_dir, id, 0700) < 0)
        return errno;
    int e = open_parts(id, ret);
    /* Who was faster with the lock has found the folder without a watcher and given it up. */
    return e ? e : take_lock(ret->lock) ? 0 : EEXIST;
}

int folder_open(const char *id, struct folder *ret)
{
    *ret = (struct folder){-1, -1, -1};
    struct stat st;
    if (fstatat(run_dir, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    return open_parts(id, ret);
}

static bool is_done(const struct folder *f)
{
    struct stat st;
    return fstatat(f->dir, "done", &st, AT_SYMLINK_NOFOLLOW) == 0;
}

void folder_end(const struct folder *f, const char *result)
{
    (void)put_frame(f->log, RBOX_RESULT, result, strlen(result));
    int fd = openat(f->dir, "done", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

bool log_send(const struct folder *f, uint64_t *at)
{
    char piece[RBOX_DATA_MAX];
    for (;;) {
        ssize_t n = pread(f->log, piece, sizeof(piece), (off_t)*at);
        if (n <= 0)
            return true;
        ssize_t w = write(STDOUT_FILENO, piece, (size_t)n);
        if (w < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (w < 0)
            return false;
        *at += (uint64_t)w;
    }
}

static void pause_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

/* True when the log is whole. One whose watcher is gone is made whole here: how the command ended is not known. */
static bool settled(const struct folder *f)
{
    if (is_done(f))
        return true;
    if (!take_lock(f->lock))
        return false;
    if (!is_done(f))
        folder_end(f, lost);
    return true;
}

/* Its maker has taken the lock, or will not any more. */
static void await_watcher(const struct folder *f)
{
    for (int i = 0; i < LOCK_TRIES && !is_done(f) && holder(f->lock) == 0; i++)
        pause_ms(LOOK_MS);
}

int follow(const char *id, uint64_t offset)
{
    struct folder f;
    int e = folder_open(id, &f);
    if (e)
        return say_errno(e, "the command's folder cannot be opened");
    await_watcher(&f);
    for (bool whole = false; !whole; pause_ms(whole ? 0 : LOOK_MS)) {
        whole = settled(&f); /* before the look at the log: what stands in it then is all */
        if (!log_send(&f, &offset))
            return 1;
    }
    return 0;
}

/* ---- kill ---- */

/* Ends with the command's own result when that was faster. */
int kill_main(const char *id)
{
    struct folder f;
    int e = folder_make(id, &f);
    if (e == 0) /* it has not arrived: when it does, it finds itself killed */
        folder_end(&f, killed);
    else if (e == EEXIST && (e = folder_open(id, &f)) == 0)
        await_watcher(&f);
    began();
    if (e)
        return say_errno(e, "the command's folder cannot be opened");
    for (int i = 0; i < KILL_LOOKS && !is_done(&f); i++) {
        pid_t pid = holder(f.lock);
        if (pid > 0 && i % 50 == 0)
            (void)kill(pid, SIGTERM);
        else if (pid == 0)
            break;
        pause_ms(i < 50 ? 2 : LOOK_MS);
    }
    if (!is_done(&f)) { /* who watched it is gone, or does not answer */
        kill_marked(id);
        (void)settled(&f);
    }
    struct stat st;
    char tail[1024];
    size_t n = fstat(f.log, &st) == 0 && (size_t)st.st_size < sizeof(tail) ? (size_t)st.st_size : sizeof(tail);
    ssize_t got = pread(f.log, tail, n, st.st_size - (off_t)n);
    /* The last frame: the result is the only JSON object of ours at the very end. */
    for (ssize_t i = got - RBOX_HEAD; i >= 0; i--) {
        size_t len = (size_t)(unsigned char)tail[i + 3] << 8 | (unsigned char)tail[i + 4];
        if (tail[i] == RBOX_RESULT && tail[i + 1] == 0 && tail[i + 2] == 0 && i + RBOX_HEAD + (ssize_t)len == got)
            return put(STDOUT_FILENO, tail + i, (size_t)(got - i)) ? 0 : 1;
    }
    return say_result(lost);
}

/* ---- what is left behind ---- */

static void remove_folder(const char *name)
{
    static const char *const parts[] = {"log", "done", "lock"};
    int dir = openat(run_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        (void)unlinkat(dir, parts[i], 0);
    close(dir);
    (void)unlinkat(run_dir, name, AT_REMOVEDIR);
}

/* The folder itself stays for RBOX_KEEP_S: it says that the command was started. */
static void thin_out(const char *name, time_t now)
{
    struct stat st;
    char path[RBOX_ID_MAX + 8];
    snprintf(path, sizeof(path), "%.64s/done", name);
    if (fstatat(run_dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || now - st.st_mtime < LOG_IDLE_S)
        return;
    snprintf(path, sizeof(path), "%.64s/log", name);
    if (fstatat(run_dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0)
        (void)unlinkat(run_dir, path, 0);
    if (now - st.st_mtime > RBOX_KEEP_S)
        remove_folder(name);
}

/* Files count from when they got their name here: content on its way out may be a second name of an old file. */
void sweep(void)
{
    time_t now = time(NULL);
    int fd = openat(run_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(run_dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISDIR(st.st_mode) && id_ok(e->d_name))
            thin_out(e->d_name, now);
        else if (S_ISREG(st.st_mode) && strncmp(e->d_name, "box-", 4) != 0 && now - st.st_ctime > RBOX_KEEP_S)
            (void)unlinkat(run_dir, e->d_name, 0);
    }
    if (d)
        closedir(d);
}
