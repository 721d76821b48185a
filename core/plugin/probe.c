#include "plugin/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "json/json.h"
#include "json/write.h"

enum {
    PROBE_TEXT_MAX = 16 * 1024, /* bytes of one report */
    PROBE_ALL_MAX = MG_PLUGIN_LIST_MAX * PROBE_TEXT_MAX,
    PROBE_MS = 10000, /* for one file: constructors of libraries may be slow */
    PROBE_ARGS_MAX = 16,
};

static void write_ok(struct mg_jw *w, const struct mango_plugin *d)
{
    char abi[16];
    snprintf(abi, sizeof(abi), "%u.%u", d->abi_major, d->abi_minor);
    mg_jw_kbool(w, "ok", true);
    mg_jw_kstrz(w, "name", d->name);
    mg_jw_kstrz(w, "version", d->version);
    mg_jw_kstrz(w, "license", d->license);
    mg_jw_kstrz(w, "summary", d->summary);
    mg_jw_kstrz(w, "abi", abi);
    mg_jw_key(w, "kinds");
    mg_jw_arr(w);
    if (d->kind & MANGO_KIND_SANDBOX)
        mg_jw_strz(w, "sandbox");
    if (d->kind & MANGO_KIND_LAUNCHER)
        mg_jw_strz(w, "launcher");
    mg_jw_arr_end(w);
    mg_jw_key(w, "capabilities");
    mg_jw_arr(w);
    for (const struct mg_plugin_cap *c = mg_plugin_caps; c->name; c++) {
        if (d->caps & c->bit)
            mg_jw_strz(w, c->name);
    }
    mg_jw_arr_end(w);
}

static void write_report(struct mg_buf *out, const char *path, const struct mango_plugin *d, const char *error)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "path", path);
    if (d) {
        write_ok(&w, d);
    } else {
        mg_jw_kbool(&w, "ok", false);
        mg_jw_kstrz(&w, "error", error);
    }
    mg_jw_obj_end(&w);
}

int mg_plugin_probe_main(const char *path)
{
    const struct mango_plugin *d = NULL;
    struct mg_err err = {0};
    mg_rc rc = mg_plugin_inspect(path, &d, &err);
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(PROBE_TEXT_MAX);
    write_report(&out, path, rc == MG_OK ? d : NULL, err.text);
    (void)mg_buf_char(&out, '\n');
    if (!mg_buf_ok(&out) || write(STDOUT_FILENO, out.ptr, out.len) != (ssize_t)out.len)
        return 1;
    return rc == MG_OK ? 0 : 1;
}

/* Starts the child with its output in a pipe. Returns the read end, or -1. */
static int start(const char *const *argv, const char *path, pid_t *ret_pid)
{
    const char *args[PROBE_ARGS_MAX + 2];
    size_t n = 0;
    for (; n < PROBE_ARGS_MAX && argv[n]; n++)
        args[n] = argv[n];
    args[n] = path;
    args[n + 1] = NULL;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, fds[1], STDOUT_FILENO);
    int e = posix_spawnp(ret_pid, args[0], &fa, NULL, (char *const *)args, environ);
    posix_spawn_file_actions_destroy(&fa);
    close(fds[1]);
    if (e == 0)
        return fds[0];
    close(fds[0]);
    return -1;
}

/* Reads until the child closes its end; false when it took too long or wrote too much. */
static bool collect(int fd, struct mg_buf *out)
{
    uint64_t end = mg_now_ns() + PROBE_MS * UINT64_C(1000000);
    for (char chunk[4096];;) {
        uint64_t now = mg_now_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (now >= end || poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0)
            return false;
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0)
            return false;
        if (n == 0)
            return true;
        if (mg_buf_append(out, chunk, (size_t)n) < 0)
            return false;
    }
}

struct mg_sv mg_plugin_probe(struct mg_arena *a, const char *const *argv, const char *path)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(PROBE_TEXT_MAX);
    pid_t pid = 0;
    mg_autofd int fd = start(argv, path, &pid);
    bool whole = fd >= 0 && collect(fd, &out);
    int status = 0;
    if (fd >= 0) {
        if (!whole)
            (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    }
    while (out.len > 0 && out.ptr[out.len - 1] == '\n')
        out.len--;
    if (whole && mg_json_check(mg_buf_view(&out), 8, NULL) == MG_OK)
        return mg_arena_sv(a, mg_buf_view(&out));
    mg_buf_reset(&out);
    const char *why = fd < 0                ? "the probing process could not be started"
                      : !whole              ? "loading it took longer than 10 s; the probing process was ended"
                      : WIFSIGNALED(status) ? "loading it killed the probing process"
                                            : "the probing process wrote no report";
    write_report(&out, path, NULL, why);
    return mg_arena_sv(a, mg_buf_view(&out));
}

struct mg_sv mg_plugin_probe_all(struct mg_arena *a, const char *const *argv, const char *dir)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(PROBE_ALL_MAX);
    struct mg_jw w = mg_jw_to(&out);
    struct mg_sv names = mg_plugin_names(a, dir);
    mg_jw_arr(&w);
    while (names.len > 0 && !mg_sv_eqz(names, "none")) {
        const char *blank = memchr(names.ptr, ' ', names.len);
        size_t n = blank ? (size_t)(blank - names.ptr) : names.len;
        struct mg_sv path = mg_arena_printf(a, "%s/%.*s.so", dir, (int)n, names.ptr);
        mg_jw_raw(&w, mg_plugin_probe(a, argv, path.ptr));
        names = mg_sv_n(names.ptr + n + (blank ? 1 : 0), names.len - n - (blank ? 1 : 0));
    }
    mg_jw_arr_end(&w);
    return mg_arena_sv(a, mg_buf_view(&out));
}
