#include "common/hostbox/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup"
#define FILE_MAX (PATH_MAX + 64) /* of a path and a name of the kernel's or ours */

enum {
    TEXT_MAX_BYTES = 64 * 1024, /* of a file of the kernel's */
    PERIOD_US = 100000,         /* of the CPU limit: the kernel's default */
    ROUNDS = 500,               /* until all in a group are dead and gone, 10 ms each */
    ROUND_US = 10000,
    TRIES = 8,
    PIDS_MAX = 4096, /* read at a time */
};

static const char *const controllers[CGROUP_KINDS] = {"pids", "memory", "cpu"};

/* ---- small files ---- */

/* The file's text, cut to the buffer. False: it cannot be read. */
static bool slurp(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    for (ssize_t got; fd >= 0 && n < size - 1 && (got = read(fd, out + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    out[n] = '\0';
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* 0 or errno. */
static int put(const char *dir, const char *name, const char *text)
{
    char path[FILE_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int e = write(fd, text, strlen(text)) < 0 ? errno : 0;
    close(fd);
    return e;
}

static bool exists(const char *dir, const char *name)
{
    char path[FILE_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* word stands in text, between blanks, commas or ends. */
static bool names(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n) {
        if ((at == text || strchr(" ,\n", at[-1])) && (at[n] == '\0' || strchr(" ,\n", at[n])))
            return true;
    }
    return false;
}

static char *join(const char *a, const char *b, const char *c)
{
    char *z = NULL;
    return asprintf(&z, "%s/%s%s%s", a, b, *c ? "/" : "", c) < 0 ? NULL : z;
}

static int make_dir(const char *path)
{
    return mkdir(path, 0755) < 0 && errno != EEXIST ? errno : 0;
}

/* ---- version 2 ---- */

static bool delegated(const char *dir)
{
    char value[2] = "";
    return (getxattr(dir, "user.delegate", value, 1) == 1 && value[0] == '1') ||
           (getxattr(dir, "trusted.delegate", value, 1) == 1 && value[0] == '1');
}

static bool has_all(const char *dir, const char *file)
{
    char path[FILE_MAX], text[1024];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    if (!slurp(path, text, sizeof(text)))
        return false;
    for (int i = 0; i < CGROUP_KINDS; i++) {
        if (!names(text, controllers[i]))
            return false;
    }
    return true;
}

static int hand_down(const char *dir)
{
    return has_all(dir, "cgroup.subtree_control") ? 0 : put(dir, "cgroup.subtree_control", "+pids +memory +cpu");
}

/* A group hands its controllers down only when it has no process of its own: the server's go one level down. */
static void move_down(const char *dir)
{
    char path[FILE_MAX], to[FILE_MAX], *text = malloc(TEXT_MAX_BYTES);
    snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
    snprintf(to, sizeof(to), "%s/server", dir);
    if (text && make_dir(to) == 0 && slurp(path, text, TEXT_MAX_BYTES)) {
        char *at = text, *line;
        while ((line = strsep(&at, "\n")))
            (void)(*line ? put(to, "cgroup.procs", line) : 0);
    }
    free(text);
}

/* The server's group; one that an earlier start moved itself into counts as the one above. */
static bool own_v2(char out[PATH_MAX])
{
    static const char tail[] = "/server";
    char text[4096];
    if (!slurp("/proc/self/cgroup", text, sizeof(text)))
        return false;
    char *at = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!at)
        return false;
    at = strstr(at, "0::") + 3;
    at[strcspn(at, "\n")] = '\0';
    size_t n = strlen(at);
    if (n >= sizeof(tail) - 1 && strcmp(at + n - (sizeof(tail) - 1), tail) == 0)
        at[n - (sizeof(tail) - 1)] = '\0';
    return snprintf(out, PATH_MAX, "%s%s", MOUNT, strcmp(at, "/") == 0 ? "" : at) < PATH_MAX;
}

static bool open_v2(struct cgroups *c, const char *configured, const char *name, char why[CGROUP_WHY_MAX])
{
    char dir[PATH_MAX];
    if (configured)
        snprintf(dir, sizeof(dir), "%s", configured);
    else if (!own_v2(dir))
        return snprintf(why, CGROUP_WHY_MAX, "the server's own group is not known"), false;
    bool top = !exists(dir, "cgroup.type"); /* the kernel's topmost one */
    if (!has_all(dir, "cgroup.controllers"))
        return snprintf(why, CGROUP_WHY_MAX, "%.200s has not all of pids, memory and cpu", dir), false;
    if (!configured && !top && !delegated(dir) && !has_all(dir, "cgroup.subtree_control"))
        return snprintf(why, CGROUP_WHY_MAX, "%.200s is not handed over to this server (Delegate=yes in its unit)",
                        dir),
               false;
    if (!configured && !top && !has_all(dir, "cgroup.subtree_control"))
        move_down(dir);
    int e = hand_down(dir);
    char *parent = e ? NULL : join(dir, name, "");
    if (parent)
        e = make_dir(parent);
    if (parent && e == 0)
        e = hand_down(parent);
    if (!parent || e) {
        free(parent);
        return snprintf(why, CGROUP_WHY_MAX, "no group can be made below %.200s: %s", dir, strerror(e ? e : ENOMEM)),
               false;
    }
    for (int i = 0; i < CGROUP_KINDS; i++)
        c->parent[i] = i == 0 ? parent : strdup(parent);
    return c->parent[1] && c->parent[2];
}

/* ---- version 1 ---- */

/* The server's group of one controller, as a path below its mount. */
static bool own_v1(const char *controller, char out[PATH_MAX])
{
    char text[4096], *rest = text, *line;
    if (!slurp("/proc/self/cgroup", text, sizeof(text)))
        return false;
    while ((line = strsep(&rest, "\n"))) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path = '\0';
        if (names(list + 1, controller))
            return snprintf(out, PATH_MAX, "%s/%s%s", MOUNT, controller, strcmp(path + 1, "/") == 0 ? "" : path + 1) <
                   PATH_MAX;
    }
    return false;
}

static bool open_v1(struct cgroups *c, const char *name, char why[CGROUP_WHY_MAX])
{
    for (int i = 0; i < CGROUP_KINDS; i++) {
        char dir[PATH_MAX];
        if (!own_v1(controllers[i], dir))
            return snprintf(why, CGROUP_WHY_MAX, "the controller %s is not mounted", controllers[i]), false;
        c->parent[i] = join(dir, name, "");
        int e = c->parent[i] ? make_dir(c->parent[i]) : ENOMEM;
        if (e)
            return snprintf(why, CGROUP_WHY_MAX, "no group can be made below %.200s: %s", dir, strerror(e)), false;
    }
    return true;
}

/* ---- both ---- */

bool cgroups_open(struct cgroups *c, const char *configured, const char *name, char why[CGROUP_WHY_MAX])
{
    bool v2 = configured || exists(MOUNT, "cgroup.controllers");
    *c = (struct cgroups){.version = v2 ? 2 : 1};
    why[0] = '\0';
    if (v2 ? open_v2(c, configured, name, why) : open_v1(c, name, why))
        return true;
    cgroups_close(c);
    return false;
}

void cgroups_close(struct cgroups *c)
{
    for (int i = 0; i < CGROUP_KINDS; i++) {
        if (c->parent[i])
            (void)rmdir(c->parent[i]); /* when nothing is in it */
        free(c->parent[i]);
    }
    *c = (struct cgroups){0};
}

static void number(char out[32], uint64_t n, const char *none)
{
    if (n == 0)
        snprintf(out, 32, "%s", none);
    else
        snprintf(out, 32, "%" PRIu64, n);
}

static int limit_memory(const struct cgroups *c, const char *dir, uint64_t bytes)
{
    char text[32];
    number(text, bytes, c->version == 2 ? "max" : "-1");
    if (c->version == 2) {
        int e = put(dir, "memory.max", text);
        (void)(e == 0 && bytes ? put(dir, "memory.swap.max", "0") : 0); /* not there without swap */
        return e;
    }
    /* memory and swap together are never below memory: the order depends on what stood there. */
    int e = put(dir, "memory.limit_in_bytes", text);
    (void)put(dir, "memory.memsw.limit_in_bytes", text);
    return e ? put(dir, "memory.limit_in_bytes", text) : 0;
}

static int limit_cpu(const struct cgroups *c, const char *dir, uint32_t millis)
{
    char text[64];
    if (c->version == 2) {
        if (millis)
            snprintf(text, sizeof(text), "%" PRIu64 " %d", (uint64_t)millis * PERIOD_US / 1000, PERIOD_US);
        return put(dir, "cpu.max", millis ? text : "max");
    }
    number(text, (uint64_t)millis * PERIOD_US / 1000, "-1");
    int e = put(dir, "cpu.cfs_period_us", "100000");
    return e ? e : put(dir, "cpu.cfs_quota_us", text);
}

int cgroup_make(const struct cgroups *c, const char *id, const struct cgroup_limits *l)
{
    char pids[32];
    number(pids, l->processes, "max");
    int e = 0;
    for (int i = 0; i < CGROUP_KINDS && e == 0; i++) {
        char *dir = join(c->parent[i], id, "");
        e = dir ? make_dir(dir) : ENOMEM;
        /* Another server took our empty folder away. */
        for (int t = 0; t < TRIES && e == ENOENT && make_dir(c->parent[i]) == 0; t++)
            e = make_dir(dir);
        if (e == 0 && c->version == 2 && i == 0)
            e = hand_down(c->parent[0]);
        if (e == 0)
            e = i == 0   ? put(dir, "pids.max", pids)
                : i == 1 ? limit_memory(c, dir, l->memory)
                         : limit_cpu(c, dir, l->cpu_millis);
        free(dir);
    }
    return e;
}

char *cgroup_procs(const struct cgroups *c, int kind, const char *id)
{
    return kind > 0 && c->version == 2 ? NULL : join(c->parent[kind], id, "cgroup.procs");
}

uint64_t cgroup_oom_kills(const struct cgroups *c, const char *id)
{
    char text[1024],
        *path = c->version ? join(c->parent[1], id, c->version == 2 ? "memory.events" : "memory.oom_control") : NULL;
    uint64_t n = 0;
    if (path && slurp(path, text, sizeof(text))) {
        const char *at = strstr(text, "oom_kill ");
        n = at ? strtoull(at + strlen("oom_kill "), NULL, 10) : 0;
    }
    free(path);
    return n;
}

/* True when the group is gone. */
static bool end_group(const char *dir)
{
    char path[FILE_MAX], text[PIDS_MAX * 8];
    for (int i = 0; i < ROUNDS; i++) {
        if (rmdir(dir) == 0 || errno == ENOENT)
            return true;
        if (put(dir, "cgroup.kill", "1") != 0) { /* before Linux 5.14, and version 1 */
            snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
            char *at = slurp(path, text, sizeof(text)) ? text : NULL, *line;
            while (at && (line = strsep(&at, "\n"))) {
                if (*line)
                    (void)kill((pid_t)strtol(line, NULL, 10), SIGKILL);
            }
        }
        (void)usleep(ROUND_US);
    }
    return false;
}

void cgroup_remove(const struct cgroups *c, const char *id)
{
    for (int i = 0; c->version && i < (c->version == 2 ? 1 : CGROUP_KINDS); i++) {
        char *dir = join(c->parent[i], id, "");
        if (dir)
            (void)end_group(dir);
        free(dir);
    }
}

/* Folders of servers that are gone: the kernel removes what has no group in it, and a server makes its own anew. */
static void sweep_beside(const char *parent)
{
    char up[PATH_MAX];
    const char *name = strrchr(parent, '/') + 1, *dash = strrchr(name, '-');
    size_t prefix = dash ? (size_t)(dash - name) + 1 : 0;
    snprintf(up, sizeof(up), "%.*s", (int)(name - parent), parent);
    DIR *d = prefix ? opendir(up) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, name, prefix) == 0 && strcmp(e->d_name, name) != 0)
            (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    }
    if (d)
        closedir(d);
}

void cgroups_sweep(const struct cgroups *c, bool (*keep)(void *ctx, const char *id), void *ctx)
{
    for (int i = 0; c->version && i < CGROUP_KINDS; i++)
        sweep_beside(c->parent[i]);
    DIR *d = c->version ? opendir(c->parent[0]) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.' && e->d_type == DT_DIR && !keep(ctx, e->d_name))
            cgroup_remove(c, e->d_name);
    }
    if (d)
        closedir(d);
}
