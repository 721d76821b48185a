#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/runner/relay.h"
#include "srt/srt.h"

/* The arguments of bubblewrap. Nothing of a command is among them. */

/* System folders; where the host has a link (/bin -> usr/bin), so has the sandbox. */
static const char *const system_dirs[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"};

/* Of /etc: what programs need to start, to find certificates and to know the time zone. No key, no password, no
 * address. */
static const char *const etc_files[] = {
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/services",
    "/etc/protocols",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/bash.bashrc",
    "/etc/ca-certificates.conf",
};

/* Parts of the shown folders that hold what an operator configures. */
static const char *const hidden_dirs[] = {"/usr/local/etc", "/usr/local/var"};
static const char *const proc_dirs[] = {"/proc/acpi", "/proc/asound", "/proc/scsi"};
static const char *const proc_files[] = {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"};

/* Of a configured root: made by us instead. */
static const char *const own_entries[] = {"proc", "dev", "sys", "tmp", "workspace", "run", "var", "mnt"};

static const char made_files[][2][160] = {
    {"passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\nmango:x:1000:1000::" SRT_ROOT ":/bin/sh\n"
               "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"group", "root:x:0:\nmango:x:1000:\nnogroup:x:65534:\n"},
    {"hosts", "127.0.0.1 localhost\n::1 localhost\n"},
    {"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
};

#define SHM_BYTES "67108864" /* of /dev/shm: memory that no file limit counts */

/* A string that lives as long as the plugin. */
static const char *keep(struct srt *s, const char *a, const char *b, const char *c)
{
    size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *z = s->n_strings < STRINGS_MAX ? malloc(n) : NULL;
    if (!z)
        return NULL;
    snprintf(z, n, "%s%s%s", a, b, c);
    s->strings[s->n_strings++] = z;
    return z;
}

/* False when one of them is NULL: out of memory. */
static bool words3(struct words *w, const char *a, const char *b, const char *c)
{
    word(w, a);
    word(w, b);
    word(w, c);
    return a && b && c;
}

/* The folders above path: bubblewrap would make them for its own user alone. */
static bool parents(struct srt *s, const char *path)
{
    char up[PATH_MAX];
    for (const char *slash = path; (slash = strchr(slash + 1, '/'));) {
        snprintf(up, sizeof(up), "%.*s", (int)(slash - path), path);
        bool there = false;
        for (int i = 1; i < s->before.n && !there; i++)
            there = strcmp(s->before.v[i - 1], "--dir") == 0 && strcmp(s->before.v[i], up) == 0;
        const char *dir = there ? NULL : keep(s, up, "", "");
        if (!there && !dir)
            return false;
        if (dir) {
            word(&s->before, "--dir");
            word(&s->before, dir);
        }
    }
    return true;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* One entry of the root: a link as a link, the rest read-only. */
static bool show_entry(struct srt *s, const char *dir, const char *name)
{
    char target[PATH_MAX];
    struct stat st;
    const char *from = keep(s, dir, "/", name), *to = keep(s, "/", name, "");
    if (!from || !to)
        return false;
    if (lstat(from, &st) < 0)
        return true;
    if (!S_ISLNK(st.st_mode))
        return words3(&s->before, "--ro-bind", from, to);
    ssize_t n = readlink(from, target, sizeof(target) - 1);
    if (n <= 0)
        return true;
    target[n] = '\0';
    return words3(&s->before, "--symlink", keep(s, target, "", ""), to);
}

static bool made_by_us(const char *name)
{
    for (size_t i = 0; i < sizeof(own_entries) / sizeof(own_entries[0]); i++) {
        if (strcmp(name, own_entries[i]) == 0)
            return true;
    }
    return name[0] == '.';
}

static bool show_rootfs(struct srt *s)
{
    DIR *d = opendir(s->rootfs);
    bool ok = d != NULL;
    for (struct dirent *e; ok && (e = readdir(d));)
        ok = made_by_us(e->d_name) || show_entry(s, s->rootfs, e->d_name);
    if (d)
        closedir(d);
    return ok;
}

static bool write_made(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f) != 0)
        ok = false;
    return ok && chmod(path, 0644) == 0;
}

static bool show_host(struct srt *s)
{
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof(system_dirs) / sizeof(system_dirs[0]); i++)
        ok = show_entry(s, "", system_dirs[i]);
    for (size_t i = 0; ok && i < sizeof(etc_files) / sizeof(etc_files[0]); i++)
        ok = access(etc_files[i], F_OK) < 0 ||
             (parents(s, etc_files[i]) && words3(&s->before, "--ro-bind", etc_files[i], etc_files[i]));
    const char *dir = keep(s, s->boxes.base, "/.etc", "");
    if (!dir)
        return false;
    (void)mkdir(dir, 0700);
    for (size_t i = 0; ok && i < sizeof(made_files) / sizeof(made_files[0]); i++) {
        const char *from = keep(s, dir, "/", made_files[i][0]), *to = keep(s, "/etc/", made_files[i][0], "");
        ok = from && to && write_made(from, made_files[i][1]) && parents(s, to) &&
             words3(&s->before, "--ro-bind", from, to);
    }
    for (size_t i = 0; ok && i < sizeof(hidden_dirs) / sizeof(hidden_dirs[0]); i++) {
        if (is_dir(hidden_dirs[i])) {
            word(&s->before, "--tmpfs");
            word(&s->before, hidden_dirs[i]);
        }
    }
    return ok;
}

static void proc_and_dev(struct srt *s)
{
    struct words *w = &s->before;
    /* The program mounts a /proc of its own for commands, which the kernel allows only where nothing of this one is
     * covered. */
    (void)words3(w, s->runtime ? "--bind" : "--proc", "/proc", s->runtime ? "/proc" : "--dev");
    if (s->runtime)
        word(w, "--dev");
    word(w, "/dev");
    for (size_t i = 0; !s->runtime && i < sizeof(proc_dirs) / sizeof(proc_dirs[0]); i++) {
        if (is_dir(proc_dirs[i])) {
            word(w, "--tmpfs");
            word(w, proc_dirs[i]);
        }
    }
    for (size_t i = 0; !s->runtime && i < sizeof(proc_files) / sizeof(proc_files[0]); i++) {
        if (access(proc_files[i], F_OK) == 0)
            (void)words3(w, "--ro-bind", "/dev/null", proc_files[i]);
    }
    (void)words3(w, "--perms", "1777", "--size");
    (void)words3(w, SHM_BYTES, "--tmpfs", "/dev/shm");
    (void)words3(w, "--remount-ro", "/dev", "--dir");
    (void)words3(w, "/run", "--dir", "/var");
    (void)words3(w, "--symlink", "/tmp", "/var/tmp");
}

/* Denied first, so that what is allowed below it is seen. */
static bool policy_words(struct srt *s)
{
    bool ok = true;
    struct stat st;
    for (char **p = s->policy.deny_read; ok && p && *p; p++) {
        bool dir = stat(*p, &st) == 0 && S_ISDIR(st.st_mode);
        if (dir) {
            word(&s->before, "--tmpfs");
            word(&s->before, *p);
        } else if (access(*p, F_OK) == 0) {
            ok = words3(&s->before, "--ro-bind", "/dev/null", *p);
        }
    }
    for (char **p = s->policy.allow_read; ok && p && *p; p++)
        ok = parents(s, *p) && words3(&s->before, "--ro-bind-try", *p, *p);
    for (char **p = s->policy.allow_write; ok && p && *p; p++)
        ok = parents(s, *p) && words3(&s->before, "--bind-try", *p, *p);
    return ok;
}

static void namespaces(struct srt *s)
{
    /* The runtime's program makes these itself; its proxy needs the host's network. */
    static const char *const ours[] = {"--unshare-pid", "--unshare-net", "--as-pid-1"};
    static const char *const all[] = {"--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--new-session",
                                      "--hostname",    "mango",         "--cap-drop",           "ALL"};
    static const char *const as_root[] = {"--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"};
    static const char *const as_user[] = {"--unshare-user", "--uid", "1000", "--gid", "1000"};
    word(&s->before, s->bwrap);
    for (size_t i = 0; !s->runtime && i < sizeof(ours) / sizeof(ours[0]); i++)
        word(&s->before, ours[i]);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        word(&s->before, all[i]);
    for (size_t i = 0; s->root && i < sizeof(as_root) / sizeof(as_root[0]); i++)
        word(&s->before, as_root[i]);
    for (size_t i = 0; !s->root && i < sizeof(as_user) / sizeof(as_user[0]); i++)
        word(&s->before, as_user[i]);
    if (!s->root && !s->runtime)
        word(&s->before, "--disable-userns");
}

/* Mode srt: the program, its packages, a folder to run in, and the names of the host's resolver for its proxy. */
static void runtime_words(struct srt *s)
{
    struct words *w = &s->before;
    (void)words3(w, "--dir", RUNTIME_DIR, "--ro-bind");
    (void)words3(w, s->modules, RUNTIME_DIR "/node_modules", "--ro-bind");
    (void)words3(w, s->node, RUNTIME_DIR "/node", "--perms");
    (void)words3(w, "1777", "--size", SHM_BYTES);
    (void)words3(w, "--tmpfs", RUNTIME_DIR "/run", "--ro-bind-try");
    word(w, "/etc/resolv.conf");
    word(w, "/etc/resolv.conf");
}

/* What the sandbox's own folders are followed by. */
static bool runtime_command(struct srt *s)
{
    struct words *w = &s->after;
    s->runtime_cli = keep(s, RUNTIME_DIR "/node_modules/", s->cli, "");
    s->check_settings = keep(s, s->boxes.base, "/.etc/", RUNTIME_SETTINGS);
    (void)words3(w, "--chdir", RUNTIME_DIR "/run", "--");
    return s->runtime_cli && s->check_settings && runtime_check_settings(s);
}

bool root_words(struct srt *s)
{
    namespaces(s);
    bool ok = s->rootfs ? show_rootfs(s) : show_host(s);
    proc_and_dev(s);
    ok = ok && policy_words(s);
    struct words *w = &s->after;
    if (s->runtime)
        runtime_words(s);
    (void)words3(w, "--ro-bind", s->boxes.runner, SRT_RUNNER);
    (void)words3(w, "--perms", "0755", "--dir");
    word(w, "/mnt");
    (void)words3(w, "--symlink", SRT_ROOT "/.session", "/mnt/session"); /* what the server mounts for the session */
    (void)words3(w, "--symlink", SRT_ROOT "/.session/memory", "/mnt/memory");
    word(w, "--remount-ro");
    word(w, "/");
    if (s->runtime)
        ok = runtime_command(s) && ok;
    else
        (void)words3(w, "--chdir", "/", "--"); /* the workspace is closed to the user that the runner still is */
    word(w, SRT_RUNNER);
    return ok && s->before.n < WORDS_MAX - 64;
}

/* ---- one sandbox ---- */

static void append(struct words *to, const struct words *from)
{
    for (int i = 0; i < from->n; i++)
        word(to, from->v[i]);
}

/* What the runner is told; in mode srt there are two of it, and the program between them. */
static void runner_words(const struct srt *s, struct words *argv, const char *what, const char *user,
                         const struct srt_limits *l, bool network)
{
    if (s->runtime) {
        (void)words3(argv, "outside", user, RUNTIME_DIR "/node");
        (void)words3(argv, s->runtime_cli, "-s", RUNTIME_DIR "/" RUNTIME_SETTINGS);
        (void)words3(argv, "--", SRT_RUNNER, what);
        word(argv, network ? "inside-with-proxy" : "inside");
    } else {
        word(argv, what);
        word(argv, user);
    }
    (void)words3(argv, l->processes, l->memory, l->file_size);
}

void srt_command(const struct box *b, struct words *argv)
{
    const struct srt *s = b->all->own;
    const struct srt_box *own = b->own;
    if (!own)
        return; /* never attached */
    if (!limits_words(b, argv))
        return;
    append(argv, &s->before);
    (void)words3(argv, "--bind", own->workspace, SRT_ROOT);
    (void)words3(argv, "--bind", own->scratch, "/tmp");
    if (own->door)
        (void)words3(argv, "--ro-bind", own->door, EGRESS_DIR);
    if (s->runtime)
        (void)words3(argv, "--ro-bind", own->settings, RUNTIME_DIR "/" RUNTIME_SETTINGS);
    append(argv, &s->after);
    runner_words(s, argv, "serve", own->user, &own->limits, own->network);
}

void check_command(const struct srt *s, const char *user, struct words *argv)
{
    append(argv, &s->before);
    (void)words3(argv, "--dir", SRT_ROOT, "--dir");
    word(argv, "/tmp");
    if (s->runtime)
        (void)words3(argv, "--ro-bind", s->check_settings, RUNTIME_DIR "/" RUNTIME_SETTINGS);
    append(argv, &s->after);
    runner_words(s, argv, "check", user, &s->limits, false);
}
