#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "plugin/plugin.h"

enum { NAMES_TEXT_MAX = MG_PLUGIN_LIST_MAX * MG_PLUGIN_NAME_MAX };

bool mg_plugin_name_ok(struct mg_sv name)
{
    if (name.len == 0 || name.len >= MG_PLUGIN_NAME_MAX || name.ptr[0] == '-')
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
            return false;
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void mg_dir_cleanup(DIR **d)
{
    if (*d)
        closedir(*d);
}

struct mg_sv mg_plugin_names(struct mg_arena *a, const char *dir)
{
    mg_auto(dir) DIR *d = opendir(dir);
    char **names = mg_arena_alloc(a, MG_PLUGIN_LIST_MAX * sizeof(*names));
    size_t n = 0;
    for (struct dirent *e; d && n < MG_PLUGIN_LIST_MAX && (e = readdir(d));) {
        struct mg_sv s = mg_sv_of(e->d_name);
        if (s.len <= 3 || strcmp(s.ptr + s.len - 3, ".so") != 0)
            continue;
        s.len -= 3;
        if (mg_plugin_name_ok(s))
            names[n++] = mg_arena_strdup(a, s);
    }
    qsort(names, n, sizeof(*names), by_name);
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(NAMES_TEXT_MAX);
    for (size_t i = 0; i < n; i++)
        (void)mg_buf_printf(&out, "%s%s", i ? " " : "", names[i]);
    return n ? mg_arena_sv(a, mg_buf_view(&out)) : MG_SV("none");
}

#define CAP(bit, text)    \
    {                     \
        MANGO_##bit, text \
    }
const struct mg_plugin_cap mg_plugin_caps[] = {
    CAP(CAP_LIST_OWNED, "list-owned"),
    CAP(CAP_PROC, "proc"),
    CAP(CAP_PAUSE, "pause"),
    CAP(CAP_SNAPSHOT, "snapshot"),
    CAP(CAP_FORK, "fork"),
    CAP(CAP_EGRESS_LIMITED, "limited-egress"),
    CAP(CAP_PACKAGES, "packages"),
    CAP(CAP_MOUNTS_RO, "read-only-mounts"),
    CAP(CAP_ARCHIVES, "archives"),
    CAP(CAP_LIMITS, "resource-limits"),
    CAP(CAP_PTY, "pty"),
    CAP(CAP_KEEP_ALIVE, "keep-alive"),
    CAP(CAP_DURABLE_WORKSPACE, "durable-workspace"),
    CAP(CAP_CONCURRENT_EXEC, "concurrent-exec"),
    CAP(CAP_ISOLATED, "isolated"),
    CAP(CAP_NO_NETWORK, "no-network"),
    CAP(CAP_LAUNCH_LIST, "launch-list"),
    CAP(CAP_LAUNCH_LOGS, "launch-logs"),
    CAP(TRAIT_NO_KILL, "needs-kill-helper"),
    CAP(TRAIT_TEXT_OUTPUT, "text-output"),
    CAP(TRAIT_EXPIRES, "expires"),
    CAP(TRAIT_SNAPSHOT_STOPS, "snapshot-stops"),
    CAP(TRAIT_NO_STREAMS, "one-output-stream"),
    CAP(TRAIT_HOST_NAMES, "host-names"),
    {0, NULL},
};
#undef CAP
