#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "srt/srt.h"

/* The settings file of the sandbox runtime (setting settings_file). What it allows is taken over where it means the
 * same here; what cannot be kept is refused by name, so that a file never promises more than holds. */

enum {
    FILE_MAX = 256 * 1024,
    PATHS_MAX = 16, /* of one list */
};

static mango_status bad(const struct srt *s, const struct mango_call *call, const char *what, struct mango_sv value)
{
    char name[SHOWN_MAX + 1];
    shown(value, name);
    return fail(s->boxes.host, call, MANGO_EINVALID, "%.200s: %s%s%s", s->policy.file, what, value.len ? ": " : "",
                name);
}

static void list_free(char **list)
{
    for (char **p = list; p && *p; p++)
        free(*p);
    free(list);
}

void policy_free(struct policy *p)
{
    list_free(p->deny_read);
    list_free(p->allow_read);
    list_free(p->allow_write);
    list_free(p->allowed);
    list_free(p->denied);
    free(p->file);
}

/* An array of strings as a list; what is not there is an empty one. */
static mango_status take_list(const struct srt *s, const struct mango_call *call, struct mango_sv object,
                              const char *name, int max, char ***ret)
{
    struct mango_sv array = json_get(object, name), item;
    uint64_t pos = 0;
    int n = 0;
    *ret = calloc((size_t)max + 1, sizeof(**ret));
    if (!*ret)
        return fail(s->boxes.host, call, MANGO_ERETRY, "out of memory");
    if (array.len > 0 && json_kind(array) != '[')
        return bad(s, call, "must be an array of strings", sv_z(name));
    while (array.len > 0 && json_next(array, &pos, NULL, &item)) {
        struct text text_auto t = {0};
        if (n == max)
            return bad(s, call, "has too many entries", sv_z(name));
        if (!json_text(item, &t) || t.len == 0 || strlen(t.ptr) != t.len)
            return bad(s, call, "must be an array of strings", sv_z(name));
        (*ret)[n] = strdup(t.ptr);
        if (!(*ret)[n++])
            return fail(s->boxes.host, call, MANGO_ERETRY, "out of memory");
    }
    return MANGO_OK;
}

static mango_status known_keys(const struct srt *s, const struct mango_call *call, struct mango_sv object,
                               const char *const *keys)
{
    struct mango_sv name, value;
    uint64_t pos = 0;
    if (json_kind(object) != '{')
        return bad(s, call, "an object was expected", (struct mango_sv){"", 0});
    while (json_next(object, &pos, &name, &value)) {
        bool known = false;
        for (const char *const *k = keys; *k && !known; k++)
            known = sv_is(name, *k) || (name.len == strlen(*k) + 2 && memcmp(name.ptr + 1, *k, name.len - 2) == 0);
        if (!known)
            return bad(s, call, "the srt backend does not know the member", name);
    }
    return MANGO_OK;
}

static bool inside(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Paths are this host's. A command could put a link in a place that it can write to, so nothing below one is named. */
static mango_status check_paths(const struct srt *s, const struct mango_call *call, char **list, bool may_write)
{
    char real[PATH_MAX];
    for (char **p = list; p && *p; p++) {
        if ((*p)[0] != '/' || strpbrk(*p, "*?[") || strcmp(*p, "/") == 0 || inside(*p, SRT_ROOT) ||
            inside(*p, "/proc") || inside(*p, "/dev") || inside(*p, "/tmp") || inside(*p, "/var/tmp"))
            return bad(s, call,
                       "filesystem: the srt backend takes absolute paths of this host, without patterns, and not /, "
                       "/workspace, /tmp, /var/tmp, /proc or /dev",
                       sv_z(*p));
        if (realpath(*p, real)) {
            char *copy = strdup(real);
            if (!copy)
                return fail(s->boxes.host, call, MANGO_ERETRY, "out of memory");
            if (inside(s->boxes.base, copy) || inside(copy, s->boxes.base)) {
                free(copy);
                return bad(s, call, "filesystem: holds the workspaces of all sessions", sv_z(*p));
            }
            free(copy);
        }
        for (char **w = s->policy.allow_write; w && *w; w++) {
            if (w != p && inside(*p, *w))
                return bad(s, call,
                           may_write ? "filesystem.allowWrite: lies inside of another entry"
                                     : "filesystem: lies inside of an entry of allowWrite, and cannot be held there",
                           sv_z(*p));
        }
    }
    return MANGO_OK;
}

/* "." and the workspace itself are always readable and writable. */
static void drop_workspace(char **list)
{
    char **to = list;
    for (char **p = list; *p; p++) {
        if (strcmp(*p, ".") == 0 || strcmp(*p, SRT_ROOT) == 0 || strcmp(*p, "/tmp") == 0)
            free(*p);
        else
            *to++ = *p;
    }
    *to = NULL;
}

static mango_status take_files(struct srt *s, const struct mango_call *call, struct mango_sv fs)
{
    static const char *const keys[] = {"denyRead", "allowRead", "allowWrite", "denyWrite", NULL};
    char **deny_write = NULL;
    if (fs.len == 0)
        return MANGO_OK;
    mango_status st = known_keys(s, call, fs, keys);
    if (st == MANGO_OK)
        st = take_list(s, call, fs, "denyRead", PATHS_MAX, &s->policy.deny_read);
    if (st == MANGO_OK)
        st = take_list(s, call, fs, "allowRead", PATHS_MAX, &s->policy.allow_read);
    if (st == MANGO_OK)
        st = take_list(s, call, fs, "allowWrite", PATHS_MAX, &s->policy.allow_write);
    if (st == MANGO_OK)
        st = take_list(s, call, fs, "denyWrite", PATHS_MAX, &deny_write);
    if (st == MANGO_OK) {
        drop_workspace(s->policy.allow_read);
        drop_workspace(s->policy.allow_write);
        st = check_paths(s, call, s->policy.allow_write, true);
    }
    if (st == MANGO_OK)
        st = check_paths(s, call, s->policy.allow_read, false);
    if (st == MANGO_OK)
        st = check_paths(s, call, s->policy.deny_read, false);
    if (st == MANGO_OK) /* nothing else can be written to anyway */
        st = check_paths(s, call, deny_write, false);
    list_free(deny_write);
    return st;
}

static mango_status take_network(struct srt *s, const struct mango_call *call, struct mango_sv net)
{
    static const char *const keys[] = {"allowedDomains", "deniedDomains", "allowUnixSockets", "allowLocalBinding",
                                       NULL};
    struct mango_sv item;
    uint64_t pos = 0;
    if (net.len == 0)
        return MANGO_OK;
    mango_status st = known_keys(s, call, net, keys);
    if (st == MANGO_OK && json_next(json_get(net, "allowUnixSockets"), &pos, NULL, &item))
        st = bad(s, call, "network.allowUnixSockets is not supported: no socket of this host is shown", item);
    if (st == MANGO_OK)
        st = take_list(s, call, net, "allowedDomains", HOSTS_MAX, &s->policy.allowed);
    if (st == MANGO_OK)
        st = take_list(s, call, net, "deniedDomains", HOSTS_MAX, &s->policy.denied);
    return st;
}

static mango_status read_whole(struct srt *s, const struct mango_call *call, char **ret, uint64_t *ret_len)
{
    int fd = open(s->policy.file, O_RDONLY | O_CLOEXEC);
    char *text = malloc(FILE_MAX + 1);
    ssize_t n = fd >= 0 && text ? read(fd, text, FILE_MAX + 1) : -1;
    int e = errno;
    if (fd >= 0)
        close(fd);
    if (n >= 0 && n <= FILE_MAX) {
        *ret = text;
        *ret_len = (uint64_t)n;
        return MANGO_OK;
    }
    free(text);
    return fail(s->boxes.host, call, MANGO_EINVALID, "MANGO_SRT_SETTINGS_FILE: cannot read %.200s: %s", s->policy.file,
                n > FILE_MAX ? "it has more than 256 KiB" : strerror(e));
}

mango_status policy_load(struct srt *s, const struct mango_call *call)
{
    static const char *const keys[] = {"network", "filesystem", "enableWeakerNestedSandbox", "mandatoryDenySearchDepth",
                                       NULL};
    char *text = NULL;
    uint64_t len = 0;
    s->policy.file = setting(s->boxes.host, "settings_file");
    if (!s->policy.file)
        return MANGO_OK;
    mango_status st = read_whole(s, call, &text, &len);
    if (st < 0)
        return st;
    struct mango_sv all = {text, len};
    if (!json_valid(all))
        st = bad(s, call, "is not JSON", (struct mango_sv){"", 0});
    if (st == MANGO_OK)
        st = known_keys(s, call, all, keys);
    if (st == MANGO_OK && json_true(all, "enableWeakerNestedSandbox"))
        st = bad(s, call, "enableWeakerNestedSandbox is not supported", (struct mango_sv){"", 0});
    if (st == MANGO_OK)
        st = take_files(s, call, json_get(all, "filesystem"));
    if (st == MANGO_OK)
        st = take_network(s, call, json_get(all, "network"));
    free(text);
    return st;
}

/* ---- the network ---- */

/* "host", "host:port", "*.host": the name without the port, and whether it begins with "*.". */
struct name {
    const char *z;
    size_t len;
    bool wild;
    const char *port; /* with its ':', or "" */
    size_t port_len;
};

static struct name name_of(const char *z, size_t n)
{
    struct name r = {.z = z, .len = n, .port = "", .port_len = 0};
    const char *colon = memrchr(z, ':', n);
    if (colon && z[n - 1] != ']') {
        r.len = (size_t)(colon - z);
        r.port = colon;
        r.port_len = n - r.len;
    }
    if (r.len > 2 && z[0] == '*' && z[1] == '.') {
        r.wild = true;
        r.z += 2;
        r.len -= 2;
    }
    return r;
}

static bool ends_with(const struct name *n, const struct name *tail)
{
    return n->len >= tail->len && strncasecmp(n->z + n->len - tail->len, tail->z, tail->len) == 0;
}

/* Everything that b names is named by a. */
static bool covers(const char *pattern, struct mango_sv host)
{
    struct name a = name_of(pattern, strlen(pattern)), b = name_of(host.ptr, host.len);
    if (a.port_len > 0 && (a.port_len != b.port_len || memcmp(a.port, b.port, a.port_len) != 0))
        return false;
    if (strcmp(pattern, "*") == 0)
        return true;
    if (!a.wild)
        return !b.wild && a.len == b.len && ends_with(&b, &a);
    if (!ends_with(&b, &a))
        return false;
    return b.len == a.len ? b.wild : b.z[b.len - a.len - 1] == '.';
}

/* Some name belongs to both, whatever the port. */
static bool touches(const char *denied, struct mango_sv host)
{
    struct name a = name_of(denied, strlen(denied)), b = name_of(host.ptr, host.len);
    if (strcmp(denied, "*") == 0)
        return true;
    if (a.wild && ends_with(&b, &a) && (b.wild || b.len > a.len))
        return true;
    if (b.wild && ends_with(&a, &b))
        return true;
    return !a.wild && !b.wild && a.len == b.len && ends_with(&a, &b);
}

static bool any_covers(char **list, struct mango_sv host)
{
    for (char **p = list; p && *p; p++) {
        if (covers(*p, host))
            return true;
    }
    return false;
}

static mango_status check_host_name(const struct srt *s, const struct mango_call *call, struct mango_sv host)
{
    if (!any_covers(s->policy.allowed, host))
        return bad(s, call, "network.allowedDomains does not allow the environment's host", host);
    for (char **p = s->policy.denied; p && *p; p++) {
        if (touches(*p, host))
            return bad(s, call, "network.deniedDomains names something of the environment's host", host);
    }
    return MANGO_OK;
}

mango_status policy_network(const struct srt *s, const struct mango_call *call, const struct mango_network *asked,
                            struct mango_network *ret, struct mango_sv **ret_hosts)
{
    *ret = *asked;
    *ret_hosts = NULL;
    if (!s->policy.allowed)
        return MANGO_OK;
    mango_status st = MANGO_OK;
    if (asked->mode == MANGO_NET_OPEN) {
        struct mango_sv *hosts = calloc(HOSTS_MAX, sizeof(*hosts));
        uint64_t n = 0;
        if (!hosts)
            return fail(s->boxes.host, call, MANGO_ERETRY, "out of memory");
        for (char **p = s->policy.allowed; *p; p++)
            hosts[n++] = sv_z(*p);
        *ret_hosts = hosts;
        ret->mode = MANGO_NET_LIMITED;
        ret->hosts = hosts;
        ret->n_hosts = n;
    }
    for (uint64_t i = 0; st == MANGO_OK && i < ret->n_hosts; i++)
        st = check_host_name(s, call, ret->hosts[i]);
    return st;
}
