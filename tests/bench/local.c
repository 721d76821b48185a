/* Two costs of the sandbox interface. Rows 18 and 27.
 *
 *   local command PLUGIN_DIR FOLDER ROUNDS
 *       a command by posix_spawn of `sh -c`, its output read, its end waited for, against the same command through the backend
 *       `local` as mangod loads it; alternating: {"spawn_p50", "local_p50"} in ms
 *   local call PLUGIN_DIR NAME ROUNDS
 *       exec of a plugin that does nothing, through the table, a call structure and the guard, against a direct C call of a
 *       function that does as little: {"direct_ns", "plugin_ns"} */
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/client.h"
#include "plugin/plugin.h"

#define SV(z) ((struct mango_sv){(z), strlen(z)})

static const char *const shell[] = {"/bin/sh", "-c", "echo ready", NULL};
static const char *folder;

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    (void)ctx;
    (void)plugin;
    return folder && strcmp(name, "base_dir") == 0 && mg_buf_str(out, folder) == MG_OK;
}

static struct mg_plugin *load(const char *dir, const char *name)
{
    static const struct mg_plugin_services services = {.setting = setting};
    const struct mg_plugin_load l = {
        .dir = dir, .name = name, .variable = "MANGO_SANDBOX", .kind = MANGO_KIND_SANDBOX, .services = &services};
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    if (mg_plugin_open(&l, &p, &err) < 0)
        die("%s", err.text);
    return p;
}

/* ---- a command ---- */

static uint64_t by_spawn(void)
{
    posix_spawn_file_actions_t actions;
    char out[64];
    int fds[2], status;
    pid_t pid;
    uint64_t start = now_ns();
    if (pipe2(fds, O_CLOEXEC) < 0)
        die("pipe2");
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    if (posix_spawn(&pid, shell[0], &actions, NULL, (char *const *)(uintptr_t)shell, environ) != 0)
        die("posix_spawn");
    (void)close(fds[1]);
    while (read(fds[0], out, sizeof(out)) > 0)
        ;
    (void)close(fds[0]);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        die("the command failed");
    (void)posix_spawn_file_actions_destroy(&actions);
    return now_ns() - start;
}

static int32_t sink(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    (void)p;
    *(uint64_t *)ctx += n;
    return 0;
}

static uint64_t by_plugin(struct mg_plugin *p, struct mango_sv id)
{
    struct mg_err err;
    struct mango_exec_result result = {.struct_size = sizeof(result)};
    struct mango_sv argv[3] = {SV(shell[0]), SV(shell[1]), SV(shell[2])};
    uint64_t bytes = 0, start = now_ns();
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    const struct mango_exec_req req = {.struct_size = sizeof(req),
                                       .argv = argv,
                                       .n_argv = 3,
                                       .sink = sink,
                                       .sink_ctx = &bytes,
                                       .limit_ns = start + 20 * UINT64_C(1000000000)};
    struct mg_guard g = mg_guard_enter(p, MG_OP_EXEC);
    mango_status s = mg_guard_leave(&g, p->sandbox->exec(p->ctx, &call, id, &req, &result));
    if (s < 0 || !result.exited || bytes == 0)
        die("exec: status %d, %s", (int)s, err.text);
    return now_ns() - start;
}

static void make_box(struct mg_plugin *p, struct mg_buf *id)
{
    static const char label[] = "0123456789abcdef0123456789abcdef";
    struct mg_buf root = MG_BUF_INIT(1024), identity = MG_BUF_INIT(1024);
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    const struct mango_sandbox_spec spec = {.struct_size = sizeof(spec), .label = SV(label), .owner = SV(label)};
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)id,
                                    .root = (struct mango_buf *)&root,
                                    .identity = (struct mango_buf *)&identity};
    if (p->sandbox->create(p->ctx, &call, &spec, &ref) < 0)
        die("create: %s", err.text);
    mg_buf_done(&root);
    mg_buf_done(&identity);
}

static void compare_commands(struct mg_plugin *p, long rounds)
{
    struct mg_buf id = MG_BUF_INIT(1024);
    struct sample spawned = {0}, local = {0};
    struct mg_err err;
    make_box(p, &id);
    struct mango_sv box = {id.ptr, id.len};
    (void)by_plugin(p, box);
    for (long i = 0; i < rounds; i++) {
        sample_add(&spawned, by_spawn());
        sample_add(&local, by_plugin(p, box));
    }
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    (void)p->sandbox->destroy(p->ctx, &call, box, SV("0123456789abcdef0123456789abcdef"));
    mg_buf_done(&id);
    printf("{\"spawn_p50\":%.3f,\"local_p50\":%.3f}\n", sample_ms(&spawned, 0.5), sample_ms(&local, 0.5));
}

/* ---- a call ---- */

__attribute__((noinline)) static mango_status direct(const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    (void)req->sink(req->sink_ctx, 1, "hello\n", 6);
    ret->exited = 1;
    return MANGO_OK;
}

static double ns_per_call(struct mg_plugin *p, long rounds)
{
    struct mg_err err;
    uint64_t bytes = 0;
    struct mango_exec_result result = {.struct_size = sizeof(result)};
    const struct mango_exec_req req = {.struct_size = sizeof(req), .sink = sink, .sink_ctx = &bytes};
    uint64_t start = now_ns();
    for (long i = 0; i < rounds; i++) {
        if (!p) {
            (void)direct(&req, &result);
            continue;
        }
        struct mango_call call = mg_plugin_call(0, NULL, &err);
        struct mg_guard g = mg_guard_enter(p, MG_OP_EXEC);
        (void)mg_guard_leave(&g, p->sandbox->exec(p->ctx, &call, SV("box"), &req, &result));
    }
    double ns = (double)(now_ns() - start) / (double)rounds;
    return bytes == 6 * (uint64_t)rounds ? ns : -1;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        die("usage: local command PLUGIN_DIR FOLDER ROUNDS | local call PLUGIN_DIR NAME ROUNDS");
    long rounds = strtol(argv[4], NULL, 10);
    if (strcmp(argv[1], "command") == 0) {
        folder = argv[3];
        struct mg_plugin *p = load(argv[2], "local");
        compare_commands(p, rounds);
        mg_plugin_close(p);
    } else {
        struct mg_plugin *p = load(argv[2], argv[3]);
        double plain = ns_per_call(NULL, rounds), through = ns_per_call(p, rounds);
        printf("{\"direct_ns\":%.1f,\"plugin_ns\":%.1f}\n", plain, through);
        mg_plugin_close(p);
    }
    return 0;
}
