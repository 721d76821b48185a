#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"
#include "srt/srt.h"

/* Mode `srt`: the sandbox runtime's own program holds the commands. It is started once for a sandbox, with the runner
 * as its command; the runner's socket is its standard input. It sees the root that mode `direct` shows to commands, so
 * that nothing of what it would let through by default is there, and reads a settings file that is made for the
 * sandbox. */

#define MODULES "node_modules"
#define PACKAGE_CLI "@anthropic-ai/sandbox-runtime/dist/cli.js"

static const char *const places_of_srt[] = {"/usr/local/bin/srt", "/usr/bin/srt"};
static const char *const places_of_node[] = {"/usr/local/bin/node", "/usr/bin/node"};
/* What the program itself runs, from the root that it sees. */
static const char *const needed[] = {"/usr/bin/bwrap", "/usr/bin/bash", "/usr/bin/socat", "/usr/bin/rg"};

/* ---- where it is ---- */

/* The setting, or the first of two usual places; with links resolved, as malloc memory. */
static char *find(const struct srt *s, const char *name, const char *const places[2])
{
    char *asked = setting(s->boxes.host, name), *real = asked ? realpath(asked, NULL) : NULL;
    for (int i = 0; !asked && !real && i < 2; i++)
        real = realpath(places[i], NULL);
    free(asked);
    return real;
}

/* The folder of all packages that the program may load, and the program below it. */
static bool split(struct srt *s, char *program)
{
    char *at = strstr(program, "/" MODULES "/");
    size_t n = strlen(program), tail = sizeof(PACKAGE_CLI) - 1;
    if (!at || n < tail || strcmp(program + n - tail, PACKAGE_CLI) != 0)
        return false;
    s->cli = strdup(at + sizeof("/" MODULES "/") - 1);
    at[sizeof("/" MODULES) - 1] = '\0';
    s->modules = program;
    return s->cli != NULL;
}

mango_status runtime_open(struct srt *s, const struct mango_call *call)
{
    const struct mango_host *h = s->boxes.host;
    if (s->rootfs)
        return fail(h, call, MANGO_EINVALID, "MANGO_SRT_ROOTFS works with MANGO_SRT_MODE=direct only");
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (access(needed[i], X_OK) < 0)
            return fail(h, call, MANGO_EUNSUPPORTED,
                        "MANGO_SRT_MODE=srt: %s is missing; install it (Debian: apt-get install bubblewrap bash socat "
                        "ripgrep)",
                        needed[i]);
    }
    s->node = find(s, "node", places_of_node);
    if (!s->node || access(s->node, X_OK) < 0)
        return fail(
            h, call, MANGO_EUNSUPPORTED,
            "MANGO_SRT_MODE=srt: no Node.js; install version 20.11 or newer, or set MANGO_SRT_NODE to its path");
    char *program = find(s, "program", places_of_srt);
    if (program && split(s, program))
        return MANGO_OK;
    if (s->modules != program)
        free(program);
    return fail(
        h, call, MANGO_EUNSUPPORTED,
        "MANGO_SRT_MODE=srt: the program srt is not there; run npm install -g @anthropic-ai/sandbox-runtime, or "
        "set MANGO_SRT_PROGRAM to the path of srt in a node_modules folder");
}

/* ---- the settings file of one sandbox ---- */

static void add_list(struct text *t, const char *name, const char *const *own, char **list)
{
    const char *comma = "";
    text_printf(t, "\"%s\":[", name);
    for (; own && *own; own++, comma = ",") {
        text_add(t, comma);
        text_jsonz(t, *own);
    }
    for (; list && *list; list++, comma = ",") {
        text_add(t, comma);
        text_jsonz(t, *list);
    }
    text_add(t, "]");
}

static void add_hosts(struct text *t, const struct mango_network *network)
{
    text_add(t, "\"allowedDomains\":[");
    for (uint64_t i = 0; network && network->mode == MANGO_NET_LIMITED && i < network->n_hosts; i++) {
        text_add(t, i ? "," : "");
        text_json(t, network->hosts[i]);
    }
    text_add(t, "]");
}

static void write_settings(const struct srt *s, const struct mango_network *network, struct text *t)
{
    static const char *const hidden[] = {"/etc/resolv.conf", NULL}; /* for the program's proxy alone */
    static const char *const writable[] = {SRT_ROOT, "/tmp", NULL};
    text_add(t, "{\"network\":{");
    add_hosts(t, network);
    text_add(t, ",");
    add_list(t, "deniedDomains", NULL, s->policy.denied);
    text_add(t, "},\"filesystem\":{");
    add_list(t, "denyRead", hidden, s->policy.deny_read);
    text_add(t, ",");
    add_list(t, "allowRead", NULL, s->policy.allow_read);
    text_add(t, ",");
    add_list(t, "allowWrite", writable, s->policy.allow_write);
    text_add(t, ",\"denyWrite\":[]}}\n");
}

/* Old or new, never a part: a program may be reading it. 0 or errno. */
static int put_file(int dir_fd, const char *name, struct mango_sv content)
{
    char fresh[32], digits[17];
    random_hex(digits, 16);
    snprintf(fresh, sizeof(fresh), ".new-%s", digits);
    int fd = openat(dir_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int e = write(fd, content.ptr, content.len) == (ssize_t)content.len && fchmod(fd, 0644) == 0 ? 0 : ENOSPC;
    close(fd);
    if (e == 0 && renameat(dir_fd, fresh, dir_fd, name) < 0)
        e = errno;
    if (e)
        (void)unlinkat(dir_fd, fresh, 0);
    return e;
}

/* The program takes names with a dot, and localhost: what it would refuse is refused before. */
mango_status runtime_check_names(const struct srt *s, const struct mango_call *call, const struct mango_network *n)
{
    if (n->mode == MANGO_NET_OPEN)
        return fail(s->boxes.host, call, MANGO_EUNSUPPORTED,
                    "the sandbox runtime has no network without a list: use an environment with limited networking, "
                    "network.allowedDomains in MANGO_SRT_SETTINGS_FILE, or MANGO_SRT_MODE=direct");
    for (uint64_t i = 0; n->mode == MANGO_NET_LIMITED && i < n->n_hosts; i++) {
        struct mango_sv h = n->hosts[i];
        const char *first = memchr(h.ptr, '.', h.len);
        bool wild = h.len > 2 && h.ptr[0] == '*' && h.ptr[1] == '.';
        bool dots = first && (!wild || memchr(h.ptr + 2, '.', h.len - 2));
        if (!dots && !(h.len >= 9 && memcmp(h.ptr, "localhost", 9) == 0) && !(h.len > 0 && h.ptr[0] == '[')) {
            char name[SHOWN_MAX + 1];
            shown(h, name);
            return fail(
                s->boxes.host, call, MANGO_EUNSUPPORTED,
                "the sandbox runtime does not take the host '%s': a name needs a dot, one behind '*.' two parts", name);
        }
    }
    return MANGO_OK;
}

mango_status runtime_network(const struct box *b, const struct mango_call *call, const struct mango_network *asked)
{
    const struct srt *s = b->all->own;
    static const struct mango_network none = {.struct_size = sizeof(none), .mode = MANGO_NET_NONE};
    struct text text_auto t = {0};
    struct mango_network allowed = none;
    struct mango_sv *hosts = NULL;
    mango_status st = asked ? policy_network(s, call, asked, &allowed, &hosts) : MANGO_OK;
    if (st == MANGO_OK)
        st = runtime_check_names(s, call, &allowed);
    if (st == MANGO_OK) {
        write_settings(s, &allowed, &t);
        int e = t.bad ? ENOMEM : put_file(b->home_fd, RUNTIME_SETTINGS, text_view(&t));
        if (e)
            st = fail(s->boxes.host, call, e == ENOSPC ? MANGO_EQUOTA : MANGO_EINTERNAL,
                      "cannot write the sandbox's settings: %s", strerror(e));
    }
    free(hosts);
    return st;
}

bool runtime_check_settings(const struct srt *s)
{
    struct text text_auto t = {0};
    write_settings(s, NULL, &t);
    return !t.bad && put_file(s->boxes.base_fd, ".etc/" RUNTIME_SETTINGS, text_view(&t)) == 0;
}
