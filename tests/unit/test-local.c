/* The backend `local`, loaded as mangod loads it. Field cases 53 to 72 and 75 as far as they are this backend's. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "plugin/plugin.h"
#include "support/plugin-build.h"

#define MS UINT64_C(1000000)
#define SV(z) ((struct mango_sv){(z), strlen(z)})

enum {
    OUT_MAX = 64 * 1024 * 1024,
    QUICK_MS = 8000, /* the cases say 1 s, of a machine that does nothing else; far below what waiting for the wrong
                        thing takes */
};

static char plugins[PLUGIN_PATH_MAX], base[PLUGIN_PATH_MAX + 32];
static struct mg_plugin *local;
static const char label_a[] = "0123456789abcdef0123456789abcdef";
static const char label_b[] = "ffffffffffffffff0123456789abcdef";
static const char owner[] = "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb";

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    (void)ctx;
    (void)plugin;
    return strcmp(name, "base_dir") == 0 && mg_buf_str(out, base) == MG_OK;
}

static const struct mg_plugin_services services = {.setting = setting};

static struct mg_plugin *load(struct mg_err *err)
{
    struct mg_plugin_load l = {.dir = plugins,
                               .name = "local",
                               .variable = "MANGO_SANDBOX",
                               .kind = MANGO_KIND_SANDBOX,
                               .services = &services};
    struct mg_plugin *p = NULL;
    return mg_plugin_open(&l, &p, err) == MG_OK ? p : NULL;
}

static int set_up(void **state)
{
    (void)state;
    struct mg_err err = {0};
    plugin_dir_make(plugins);
    snprintf(base, sizeof(base), "%s/base", plugins);
    if (!plugin_build_local(plugins))
        return -1;
    local = load(&err);
    if (!local)
        fprintf(stderr, "%s\n", err.text);
    return local ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    mg_plugin_close(local);
    plugin_dir_remove(plugins);
    return 0;
}

/* ---- a box and a command ---- */

struct box {
    struct mg_buf id, root, identity;
};

static mango_status open_box(struct mg_plugin *p, const char *label, const char *attach, struct box *ret,
                             struct mg_err *err)
{
    *ret = (struct box){MG_BUF_INIT(1024), MG_BUF_INIT(1024), MG_BUF_INIT(1024)};
    struct mango_call call = mg_plugin_call(0, NULL, err);
    struct mango_sandbox_spec spec = {.struct_size = sizeof(spec), .label = SV(label), .owner = SV(owner)};
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)&ret->id,
                                    .root = (struct mango_buf *)&ret->root,
                                    .identity = (struct mango_buf *)&ret->identity};
    return attach ? p->sandbox->attach(p->ctx, &call, SV(attach), &spec, &ref)
                  : p->sandbox->create(p->ctx, &call, &spec, &ref);
}

static void close_box(struct box *b)
{
    mg_buf_done(&b->id);
    mg_buf_done(&b->root);
    mg_buf_done(&b->identity);
}

static mango_status destroy(const char *label)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    return local->sandbox->destroy(local->ctx, &call, (struct mango_sv){"", 0}, SV(label));
}

static struct box the_box;

static int box_up(void **state)
{
    (void)state;
    struct mg_err err;
    return open_box(local, label_a, NULL, &the_box, &err) == MANGO_OK ? 0 : -1;
}

static int box_down(void **state)
{
    (void)state;
    mango_status s = destroy(label_a);
    close_box(&the_box);
    return s == MANGO_OK ? 0 : -1;
}

struct outcome {
    struct mango_exec_result r;
    struct mg_buf out, err;
    struct mg_err error;
    mango_status status;
    uint64_t ms;
};

static int32_t collect(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct outcome *o = ctx;
    return mg_buf_append(stream == 2 ? &o->err : &o->out, p, n) == MG_OK ? 0 : 1;
}

struct how {
    const char *in, *cwd;
    uint64_t limit_ms, max_output;
    struct mg_cancel *cancel;
    const char *env;
    uint64_t in_len;
};

static struct outcome run_argv(const char *const *argv, struct how how)
{
    struct outcome o = {.out = MG_BUF_INIT(OUT_MAX), .err = MG_BUF_INIT(OUT_MAX), .r.struct_size = sizeof(o.r)};
    struct mango_sv args[16], env = SV(how.env ? how.env : "");
    uint64_t n = 0;
    for (; argv[n]; n++)
        args[n] = SV(argv[n]);
    uint64_t t0 = mg_now_ns();
    struct mango_call call = mg_plugin_call(0, how.cancel, &o.error);
    struct mango_exec_req req = {.struct_size = sizeof(req),
                                 .argv = args,
                                 .n_argv = n,
                                 .sink = collect,
                                 .sink_ctx = &o,
                                 .max_output = how.max_output,
                                 .cwd = SV(how.cwd ? how.cwd : ""),
                                 .env = &env,
                                 .n_env = how.env ? 1 : 0,
                                 .stdin_data = {how.in, how.in_len ? how.in_len
                                                        : how.in   ? strlen(how.in)
                                                                   : 0},
                                 .limit_ns = t0 + (how.limit_ms ? how.limit_ms : 20000) * MS};
    o.status = local->sandbox->exec(local->ctx, &call, (struct mango_sv){the_box.id.ptr, the_box.id.len}, &req, &o.r);
    o.ms = (mg_now_ns() - t0) / MS;
    return o;
}

static struct outcome run(const char *script, struct how how)
{
    return run_argv((const char *const[]){"/bin/sh", "-c", script, NULL}, how);
}

static void done(struct outcome *o)
{
    mg_buf_done(&o->out);
    mg_buf_done(&o->err);
}

static void assert_output(struct outcome *o, const char *out)
{
    assert_int_equal(o->status, MANGO_OK);
    assert_string_equal(o->out.ptr ? o->out.ptr : "", out);
}

static void says(const char *script, const char *out)
{
    struct outcome o = run(script, (struct how){0});
    assert_output(&o, out);
    assert_true(o.r.exited);
    done(&o);
}

/* Processes whose command line holds the marker. */
static int count_marked(const char *marker)
{
    int found = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], text[4096];
        snprintf(path, sizeof(path), "/proc/%.200s/cmdline", e->d_name);
        int fd = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? open(path, O_RDONLY) : -1;
        ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
        if (fd >= 0)
            close(fd);
        found += n > 0 && memmem(text, (size_t)n, marker, strlen(marker)) != NULL;
    }
    if (d)
        closedir(d);
    return found;
}

/* Waits for the count, at most QUICK_MS. */
static bool becomes(const char *marker, int wanted)
{
    for (uint64_t end = mg_now_ns() + QUICK_MS * MS; mg_now_ns() < end; usleep(2000)) {
        if (count_marked(marker) == wanted)
            return true;
    }
    return false;
}

/* ---- files ---- */

static mango_status read_file(struct mango_sv path, uint64_t offset, uint64_t max, struct outcome *o, int32_t *eof)
{
    *o = (struct outcome){.out = MG_BUF_INIT(OUT_MAX), .err = MG_BUF_INIT(OUT_MAX)};
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS, NULL, &o->error);
    struct mango_read_req req = {
        .struct_size = sizeof(req), .path = path, .offset = offset, .max = max, .sink = collect, .sink_ctx = o};
    uint64_t t0 = mg_now_ns();
    mango_status s =
        local->sandbox->read(local->ctx, &call, (struct mango_sv){the_box.id.ptr, the_box.id.len}, &req, eof);
    o->ms = (mg_now_ns() - t0) / MS;
    return s;
}

static mango_status write_file(struct mango_sv path, const char *p, uint64_t n, struct mg_err *err)
{
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS, NULL, err);
    struct mango_write_req req = {.struct_size = sizeof(req), .path = path, .content = {p, n}, .source_len = -1};
    return local->sandbox->write(local->ctx, &call, (struct mango_sv){the_box.id.ptr, the_box.id.len}, &req);
}

static mango_status try_write(const char *path, const char *text)
{
    struct mg_err err;
    return write_file(SV(path), text, strlen(text), &err);
}

static mango_status try_read(const char *path)
{
    struct outcome o;
    int32_t eof;
    mango_status s = read_file(SV(path), 0, 1024, &o, &eof);
    assert_true(o.ms < QUICK_MS);
    done(&o);
    return s;
}

static void holds(const char *path, const char *text)
{
    struct outcome o;
    int32_t eof = 0;
    assert_int_equal(read_file(SV(path), 0, OUT_MAX, &o, &eof), MANGO_OK);
    assert_string_equal(o.out.ptr ? o.out.ptr : "", text);
    assert_int_equal(eof, 1);
    done(&o);
}

static struct mango_stat stat_of(const char *path, mango_status want)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_stat st = {.struct_size = sizeof(st)};
    assert_int_equal(
        local->sandbox->stat(local->ctx, &call, (struct mango_sv){the_box.id.ptr, the_box.id.len}, SV(path), 0, &st),
        want);
    return st;
}

/* ==== lifecycle ==== */

static void create_is_idempotent_and_attach_finds_the_files_after_a_restart(void **state)
{
    (void)state;
    struct mg_err err;
    struct box again, other;
    assert_int_equal(try_write("kept.txt", "kept"), MANGO_OK);
    assert_int_equal(open_box(local, label_a, NULL, &again, &err), MANGO_OK);
    assert_string_equal(again.id.ptr, the_box.id.ptr);
    assert_string_equal(again.identity.ptr, the_box.identity.ptr);
    holds("kept.txt", "kept");
    /* what another process of the server does */
    struct mg_plugin *second = load(&err);
    assert_non_null(second);
    assert_int_equal(open_box(second, label_a, the_box.id.ptr, &other, &err), MANGO_OK);
    assert_string_equal(other.identity.ptr, the_box.identity.ptr);
    assert_string_equal(other.root.ptr, the_box.root.ptr);
    mg_plugin_close(second);
    close_box(&again);
    close_box(&other);
}

static void attach_refuses_foreign_labels_and_never_creates(void **state)
{
    (void)state;
    struct mg_err err;
    struct box b;
    assert_int_equal(open_box(local, label_b, the_box.id.ptr, &b, &err), MANGO_EDENIED);
    close_box(&b);
    assert_int_equal(open_box(local, label_b, "session-ffffffffffffffff0123456789abcdef", &b, &err), MANGO_EGONE);
    close_box(&b);
    assert_int_equal(open_box(local, label_b, "../../etc", &b, &err), MANGO_EDENIED);
    close_box(&b);
}

static void destroy_is_idempotent_and_leaves_nothing(void **state)
{
    (void)state;
    struct mg_err err;
    struct box b;
    char path[PLUGIN_PATH_MAX * 2];
    says("mkdir -p a/b/c && touch a/b/c/f && chmod 000 a/b && ln -s / out && (sleep 4711.25 &) && echo ok", "ok\n");
    /* far deeper than a path may be long */
    says("python3 -c \"import os\nfor i in range(3000):\n  os.mkdir('dddd'); os.chdir('dddd')\n\" 2>&1; echo made",
         "made\n");
    assert_int_equal(destroy(label_a), MANGO_OK);
    assert_int_equal(destroy(label_a), MANGO_OK);
    assert_true(becomes("4711.25", 0));
    snprintf(path, sizeof(path), "ls -A '%s' | grep -q . && exit 1; exit 0", base);
    assert_true(plugin_sh("%s", path));
    assert_int_equal(open_box(local, label_a, the_box.id.ptr, &b, &err), MANGO_EGONE);
    close_box(&b);
}

static void *destroyer(void *arg)
{
    (void)arg;
    (void)destroy(label_a);
    return NULL;
}

static void case_53_destroy_ends_a_command_that_runs(void **state)
{
    (void)state;
    pthread_t t;
    pthread_create(&t, NULL, destroyer, NULL);
    struct outcome o = run("trap '' TERM INT HUP; sleep 4712.25; sleep 4712.25", (struct how){0});
    pthread_join(t, NULL);
    assert_int_equal(o.status, MANGO_EGONE);
    assert_true(o.ms < QUICK_MS);
    assert_true(becomes("4712.25", 0));
    done(&o);
}

static int32_t count_owned(void *ctx, const struct mango_owned *item)
{
    assert_int_equal(item->label.len, 32);
    (*(int *)ctx)++;
    return 0;
}

static void case_52_only_what_this_deployment_owns_is_listed(void **state)
{
    (void)state;
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    int n = 0;
    assert_int_equal(local->sandbox->list_owned(local->ctx, &call, SV(owner), count_owned, &n), MANGO_OK);
    assert_int_equal(n, 1);
    n = 0;
    assert_int_equal(local->sandbox->list_owned(local->ctx, &call, SV(label_b), count_owned, &n), MANGO_OK);
    assert_int_equal(n, 0);
}

static void case_97_an_unsafe_base_folder_is_refused(void **state)
{
    (void)state;
    struct mg_err err;
    char good[sizeof(base)];
    snprintf(good, sizeof(good), "%s", base);
    assert_true(
        plugin_sh("cd '%s' && mkdir open && chmod 0777 open && ln -s /tmp link && mkdir -m 0700 target", plugins));
    snprintf(base, sizeof(base), "%s/open", plugins);
    assert_null(load(&err));
    assert_non_null(strstr(err.text, "mode 0777"));
    snprintf(base, sizeof(base), "%s/link", plugins);
    assert_null(load(&err));
    assert_non_null(strstr(err.text, "symbolic link"));
    snprintf(base, sizeof(base), "%s/open/below", plugins);
    assert_null(load(&err));
    assert_non_null(strstr(err.text, "above"));
    snprintf(base, sizeof(base), "%s/with space", plugins);
    struct mg_plugin *p = load(&err);
    assert_non_null(p);
    mg_plugin_close(p);
    snprintf(base, sizeof(base), "%s", good);
}

/* ==== commands ==== */

static void case_58_exit_codes_and_signals_are_told_apart(void **state)
{
    (void)state;
    static const int codes[] = {0, 1, 2, 124, 126, 127, 128, 137, 143, 255};
    char script[64];
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        snprintf(script, sizeof(script), "exit %d", codes[i]);
        struct outcome o = run(script, (struct how){0});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.exited && !o.r.timed_out && !o.r.unknown && o.r.signal == 0);
        assert_int_equal(o.r.exit_code, codes[i]);
        done(&o);
    }
    static const struct {
        int sig;
        const char *name;
    } signals[] = {{SIGSEGV, "SEGV"}, {SIGKILL, "KILL"}, {SIGPIPE, "PIPE"}, {SIGTERM, "TERM"}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(script, sizeof(script), "kill -%s $$", signals[i].name);
        struct outcome o = run(script, (struct how){0});
        assert_int_equal(o.r.signal, signals[i].sig);
        assert_false(o.r.exited || o.r.timed_out || o.r.unknown);
        done(&o);
    }
}

static void a_command_that_does_not_exist_is_a_result(void **state)
{
    (void)state;
    struct outcome o = run_argv((const char *const[]){"no-such-program", NULL}, (struct how){0});
    assert_int_equal(o.status, MANGO_OK);
    assert_int_equal(o.r.exit_code, 127);
    assert_non_null(strstr(o.err.ptr, "not found"));
    done(&o);
}

static void both_streams_stdin_cwd_and_variables_arrive(void **state)
{
    (void)state;
    says("mkdir -p 'sub dir' && echo ok", "ok\n");
    struct outcome o = run("cat; pwd >&2; echo $NAME", (struct how){.in = "a\nb", .cwd = "sub dir", .env = "NAME=v v"});
    assert_output(&o, "a\nbv v\n");
    assert_non_null(strstr(o.err.ptr, "workspace/sub dir\n"));
    done(&o);
    o = run("true", (struct how){.cwd = "../.."});
    assert_int_equal(o.status, MANGO_EDENIED);
    done(&o);
}

static void a_large_binary_stdin_arrives_while_output_is_produced(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *in = malloc(n);
    for (size_t i = 0; i < n; i++)
        in[i] = (char)(i * 7);
    struct outcome o =
        run("tee copy | wc -c; cmp copy /dev/stdin </dev/null; wc -c <copy", (struct how){.in = in, .in_len = n});
    assert_non_null(strstr(o.out.ptr, "1048576\n"));
    done(&o);
    o = run("cat", (struct how){.in = in, .in_len = n});
    assert_int_equal(o.out.len, n);
    assert_memory_equal(o.out.ptr, in, n);
    done(&o);
    free(in);
}

static void case_54_a_timeout_kills_everything(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "while :; do :; done # mark4713.25",
        "sleep 4713.25 | sleep 4713.25",
        "trap '' TERM INT HUP; sleep 4713.25; sleep 4713.25",
        "setsid sh -c 'sleep 4713.25 & sleep 4713.25' & sleep 4713.25",
        "(setsid setsid sh -c '(sleep 4713.25 &) ; sleep 4713.25' &) ; sleep 4713.25",
    };
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        struct outcome o = run(scripts[i], (struct how){.limit_ms = 150});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.timed_out && !o.r.exited && !o.r.unknown);
        assert_true(o.ms < QUICK_MS);
        assert_int_equal(count_marked("4713.25"), 0);
        done(&o);
        says("echo next", "next\n");
    }
}

static void *firer(void *arg)
{
    usleep(100000); /* the command must be running; nothing is asserted about the time */
    mg_cancel_fire(arg);
    return NULL;
}

static void a_cancel_ends_the_command_within_a_second(void **state)
{
    (void)state;
    pthread_t t;
    struct mg_cancel *c = mg_cancel_new();
    pthread_create(&t, NULL, firer, c);
    struct outcome o = run("sh -c 'sleep 4714.25 | sleep 4714.25' & sleep 4714.25", (struct how){.cancel = c});
    pthread_join(t, NULL);
    assert_int_equal(o.status, MANGO_ECANCELED);
    assert_true(o.r.cancelled && o.ms < QUICK_MS);
    assert_int_equal(count_marked("4714.25"), 0);
    done(&o);
    o = run("touch started", (struct how){.cancel = c}); /* fired before the start */
    assert_int_equal(o.status, MANGO_ECANCELED);
    done(&o);
    assert_int_equal(try_read("started"), MANGO_ENOENT);
    mg_cancel_unref(c);
    says("echo next", "next\n");
}

static void case_64_a_background_child_does_not_delay_the_result(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "sleep 4715.25 & echo done",
        "sleep 4715.25 >/dev/null & echo done",
        "nohup sleep 4715.25 >/dev/null 2>&1 & echo done",
    };
    for (size_t i = 0; i < 3; i++) {
        struct outcome o = run(scripts[i], (struct how){0});
        assert_output(&o, "done\n");
        assert_true(o.r.exited && o.r.exit_code == 0 && o.ms < QUICK_MS);
        done(&o);
    }
    assert_int_equal(count_marked("4715.25"), 3);
    says("echo still", "still\n");
    assert_int_equal(destroy(label_a), MANGO_OK);
    assert_true(becomes("4715.25", 0));
}

static void a_background_child_can_go_on_writing(void **state)
{
    (void)state;
    /* far more than a pipe holds, after the result was taken: neither SIGPIPE nor a full pipe */
    struct outcome o =
        run("(trap 'echo pipe >broken' PIPE; sleep 0.2; seq 100000 && touch finished) & echo done", (struct how){0});
    assert_output(&o, "done\n");
    done(&o);
    struct how how = {0};
    o = run("for i in $(seq 100); do test -e finished -o -e broken && break; sleep 0.05; done; ls finished broken "
            "2>/dev/null",
            how);
    assert_output(&o, "finished\n");
    done(&o);
}

static void case_65_each_call_has_exactly_one_result(void **state)
{
    (void)state;
    struct outcome o = run("setsid sleep 4716.25 & echo OK", (struct how){0});
    assert_output(&o, "OK\n");
    assert_true(o.ms < QUICK_MS);
    done(&o);
    static const char *const scripts[] = {"setsid -w sleep 4716.25", "exec 0<&- 1>&- 2>&-; sleep 4716.25",
                                          "script -qc 'sleep 4716.25' /dev/null 2>/dev/null || sleep 4716.25"};
    for (size_t i = 0; i < 3; i++) {
        o = run(scripts[i], (struct how){.limit_ms = 200});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.timed_out && o.ms < QUICK_MS);
        done(&o);
    }
    assert_int_equal(count_marked("4716.25"), 1); /* the one that was let go on */
}

static void case_66_a_flood_is_drained_and_the_status_is_the_commands(void **state)
{
    (void)state;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    struct outcome o = run("head -c 200000000 /dev/zero; seq 300000 >&2; exit 3",
                           (struct how){.max_output = 65536, .limit_ms = 60000});
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(o.status, MANGO_OK);
    assert_int_equal(o.r.exit_code, 3);
    assert_int_equal(o.out.len, 65536);
    assert_true(o.err.len <= 65536);
    assert_int_equal(o.r.stdout_bytes, 200000000);
    assert_true(after.ru_maxrss - before.ru_maxrss < 4096);
    done(&o);
}

static void case_67_output_is_never_cut_inside_a_character(void **state)
{
    (void)state;
    static const char *const chars[] = {"a", "\303\244", "\342\202\254", "\360\237\245\255"};
    for (size_t c = 0; c < 4; c++) {
        for (uint64_t cap = 1; cap < 14; cap++) {
            char script[128];
            snprintf(script, sizeof(script), "for i in 1 2 3 4 5 6; do printf '%s'; done", chars[c]);
            struct outcome o = run(script, (struct how){.max_output = cap});
            assert_int_equal(o.status, MANGO_OK);
            assert_true(o.out.len <= cap);
            assert_true(mg_utf8_valid(mg_buf_view(&o.out), NULL));
            done(&o);
        }
    }
    struct outcome o = run("printf '\\377\\342\\202'", (struct how){0}); /* what is not UTF-8 comes as it is */
    assert_int_equal(o.out.len, 3);
    done(&o);
}

static void case_69_only_the_documented_environment_and_descriptors(void **state)
{
    (void)state;
    setenv("MANGO_DATABASE_URL", "canary-4717.25", 1);
    setenv("SOME_SECRET", "canary-4717.25", 1);
    int leak = open("/dev/null", O_RDONLY); /* without CLOEXEC, as a library might */
    assert_true(leak >= 0);
    assert_int_equal(destroy(label_a), MANGO_OK);
    close_box(&the_box);
    assert_int_equal(box_up(NULL), 0); /* so that the runner is started now */
    struct outcome o = run("env | sort | cut -d= -f1", (struct how){0});
    assert_output(&o, "HOME\nLANG\nPATH\nPWD\nTERM\nTMPDIR\n");
    done(&o);
    o = run("{ env; set; cat /proc/self/environ /proc/$PPID/environ; tr '\\0' ' ' </proc/$PPID/cmdline; } 2>&1",
            (struct how){0});
    assert_null(memmem(o.out.ptr, o.out.len, "canary", 6));
    done(&o);
    o = run_argv((const char *const[]){"ls", "/proc/self/fd", NULL}, (struct how){0});
    assert_output(&o, "0\n1\n2\n3\n"); /* 3 is the folder that ls reads */
    done(&o);
    close(leak);
    unsetenv("MANGO_DATABASE_URL");
    unsetenv("SOME_SECRET");
}

static void case_61_orphans_are_reaped(void **state)
{
    (void)state;
    says("i=0; while [ $i -lt 2000 ]; do (true &); i=$((i+1)); done; sleep 0.2; "
         "n=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v p=$PPID '$4==p && $3==\"Z\"' | wc -l); [ $n -lt 10 ] && echo "
         "few",
         "few\n");
}

static void case_55_stdin_is_at_its_end(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "cat",   "read x; echo got:$x", "cat <<E\nhi\nE\n", "cat <<E\nhi", "echo 'unbalanced", "echo a\\", "echo a #",
        "true &"};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        struct outcome o = run(scripts[i], (struct how){0});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.exited && o.ms < QUICK_MS);
        done(&o);
    }
}

static void case_56_large_arguments_run_or_are_refused_by_name(void **state)
{
    (void)state;
    char *big = malloc(140001);
    memset(big, 'x', 140000);
    big[140000] = '\0';
    struct outcome o = run_argv((const char *const[]){"/bin/echo", big, NULL}, (struct how){0});
    assert_int_equal(o.status, MANGO_ETOOBIG);
    assert_non_null(strstr(o.error.text, "131071"));
    done(&o);
    big[100000] = '\0'; /* more than one datagram holds */
    o = run_argv((const char *const[]){"/bin/echo", "-n", big, big, NULL}, (struct how){0});
    assert_int_equal(o.out.len, 200001);
    done(&o);
    /* content of any size goes through stdin */
    o = run("wc -c", (struct how){.in = big, .in_len = 100000});
    assert_output(&o, "100000\n");
    done(&o);
    free(big);
}

static void a_killed_runner_is_replaced_and_its_children_do_not_survive(void **state)
{
    (void)state;
    says("sleep 4718.25 & echo ok", "ok\n");
    /* the reaper, then the runner: what they kept must go, the next command must run */
    struct outcome o = run("kill -9 $PPID; sleep 4718.25", (struct how){.limit_ms = 3000});
    assert_int_equal(o.status, MANGO_OK);
    assert_true(o.r.unknown);
    done(&o);
    assert_true(becomes("4718.25", 1));
    o = run("r=$(awk '{print $4}' /proc/$PPID/stat); kill -9 $r; sleep 4718.25", (struct how){.limit_ms = 3000});
    done(&o);
    says("echo again", "again\n");
    assert_true(becomes("4718.25", 0));
}

static void a_command_whose_time_is_over_never_starts_late(void **state)
{
    (void)state;
    char stop[64];
    struct outcome o =
        run("awk '{print $4}' /proc/$PPID/stat", (struct how){0}); /* the runner is the reaper's parent */
    long runner = strtol(o.out.ptr, NULL, 10);
    done(&o);
    assert_true(runner > 1);
    assert_int_equal(kill((pid_t)runner, SIGSTOP), 0);
    o = run("touch late", (struct how){.limit_ms = 100});
    assert_true(o.status == MANGO_OK && o.r.timed_out);
    done(&o);
    assert_int_equal(kill((pid_t)runner, SIGCONT), 0);
    says("echo behind it", "behind it\n");
    assert_int_equal(try_read("late"), MANGO_ENOENT);
    snprintf(stop, sizeof(stop), "kill -STOP %ld", runner);
    (void)plugin_sh("%s", stop);
    assert_int_equal(destroy(label_a), MANGO_OK); /* a stopped runner does not hold up the end */
}

static void *many_execs(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        struct outcome o = run("echo $$; exit 5", (struct how){0});
        if (o.status != MANGO_OK || o.r.exit_code != 5 || o.out.len < 2)
            return (void *)1;
        done(&o);
    }
    return NULL;
}

static void thirty_two_commands_run_at_a_time(void **state)
{
    (void)state;
    pthread_t t[32];
    for (int i = 0; i < 32; i++)
        pthread_create(&t[i], NULL, many_execs, NULL);
    for (int i = 0; i < 32; i++) {
        void *bad = NULL;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
}

/* ==== long-lived processes ==== */

static mango_proc open_shell(void)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_sv argv[] = {SV("/bin/sh")};
    struct mango_exec_req req = {.struct_size = sizeof(req), .argv = argv, .n_argv = 1};
    mango_proc p = 0;
    assert_int_equal(
        local->sandbox->proc_open(local->ctx, &call, (struct mango_sv){the_box.id.ptr, the_box.id.len}, &req, &p),
        MANGO_OK);
    return p;
}

static void tell(mango_proc p, const char *text)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS, NULL, &err);
    assert_int_equal(local->sandbox->proc_write(local->ctx, &call, p, SV(text)), MANGO_OK);
}

/* Reads until the text has come (true) or the process has ended. */
static bool hear(mango_proc p, const char *text, struct mango_exec_result *r)
{
    struct outcome o = {.out = MG_BUF_INIT(OUT_MAX), .err = MG_BUF_INIT(OUT_MAX)};
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS, NULL, &o.error);
    int32_t closed = 0;
    bool found = false;
    while (!closed && !found) {
        assert_int_equal(local->sandbox->proc_read(local->ctx, &call, p, collect, &o, &closed, r), MANGO_OK);
        found = text && o.out.len && strstr(o.out.ptr, text);
    }
    done(&o);
    return found;
}

static void close_shell(mango_proc p)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    assert_int_equal(local->sandbox->proc_close(local->ctx, &call, p), MANGO_OK);
}

static void a_shell_keeps_its_folder_and_its_children_until_it_is_closed(void **state)
{
    (void)state;
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    mango_proc p = open_shell();
    tell(p, "mkdir d; cd d; X=5\n");
    tell(p, "echo $X in ${PWD##*/}\n");
    assert_true(hear(p, "5 in d\n", &r));
    tell(p, "setsid sleep 4719.25 & setsid sh -c 'sleep 4719.25' & echo started\n");
    assert_true(hear(p, "started\n", &r));
    says("echo beside", "beside\n");
    close_shell(p);
    assert_int_equal(count_marked("4719.25"), 0);
}

static void the_end_of_a_shell_is_seen_though_a_child_holds_its_pipes(void **state)
{
    (void)state;
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    mango_proc p = open_shell();
    tell(p, "sleep 4720.25 & exit 9\n");
    assert_false(hear(p, NULL, &r));
    assert_true(r.exited);
    assert_int_equal(r.exit_code, 9);
    struct mg_err err;
    struct mango_call call = mg_plugin_call(mg_now_ns() + 1000 * MS, NULL, &err);
    /* writing to what has gone is an error and no SIGPIPE */
    mango_status s = MANGO_OK;
    for (uint64_t end = mg_now_ns() + 3000 * MS; s == MANGO_OK && mg_now_ns() < end;)
        s = local->sandbox->proc_write(local->ctx, &call, p, SV("x\n"));
    assert_true(s < 0);
    close_shell(p);
    assert_int_equal(count_marked("4720.25"), 0);
}

static void reading_a_silent_process_ends_at_the_deadline(void **state)
{
    (void)state;
    struct outcome o = {.out = MG_BUF_INIT(1024), .err = MG_BUF_INIT(1024)};
    mango_proc p = open_shell();
    int32_t closed = 0;
    struct mango_call call = mg_plugin_call(mg_now_ns() + 50 * MS, NULL, &o.error);
    assert_int_equal(local->sandbox->proc_read(local->ctx, &call, p, collect, &o, &closed, &o.r), MANGO_ETIMEOUT);
    struct mg_cancel *c = mg_cancel_new();
    mg_cancel_fire(c);
    call = mg_plugin_call(0, c, &o.error);
    assert_int_equal(local->sandbox->proc_read(local->ctx, &call, p, collect, &o, &closed, &o.r), MANGO_ECANCELED);
    mg_cancel_unref(c);
    assert_int_equal(destroy(label_a), MANGO_OK); /* under an open process */
    call = mg_plugin_call(mg_now_ns() + 5000 * MS, NULL, &o.error);
    assert_int_equal(local->sandbox->proc_read(local->ctx, &call, p, collect, &o, &closed, &o.r), MANGO_OK);
    assert_true(closed && o.r.unknown);
    close_shell(p);
}

/* ==== files ==== */

static void files_of_all_sizes_come_back_as_they_were(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 95 * 1024, 200 * 1024, 5 * 1024 * 1024, OUT_MAX - 1};
    char *p = malloc(OUT_MAX);
    for (size_t i = 0; i < OUT_MAX; i++)
        p[i] = (char)(i * 31 >> 3);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct mg_err err;
        struct outcome o;
        int32_t eof = 0;
        assert_int_equal(write_file(SV("deep/er/file.bin"), p, sizes[i], &err), MANGO_OK);
        assert_int_equal(stat_of("deep/er/file.bin", MANGO_OK).size, sizes[i]);
        assert_int_equal(read_file(SV("deep/er/file.bin"), 0, OUT_MAX, &o, &eof), MANGO_OK);
        assert_int_equal(o.out.len, sizes[i]);
        assert_true(eof);
        if (sizes[i])
            assert_memory_equal(o.out.ptr, p, sizes[i]);
        done(&o);
    }
    free(p);
    struct outcome o;
    int32_t eof = 1;
    assert_int_equal(read_file(SV("deep/er/file.bin"), 10, 5, &o, &eof), MANGO_OK);
    assert_int_equal(o.out.len, 5);
    assert_false(eof);
    done(&o);
    assert_int_equal(read_file(SV("deep/er/file.bin"), UINT64_C(1) << 40, 5, &o, &eof), MANGO_OK);
    assert_true(eof && o.out.len == 0);
    done(&o);
    assert_int_equal(stat_of("deep", MANGO_OK).kind, 'd');
    (void)stat_of("nothing", MANGO_ENOENT);
}

static void case_70_no_path_leads_out_of_the_workspace(void **state)
{
    (void)state;
    says("ln -s /etc escape; ln -s ../../.. up; ln -s /proc/self/cwd magic; ln -s escape again; mkdir in; ln -s "
         "in/../../x y; echo ok",
         "ok\n");
    static const char *const out[] = {"../escape", "escape/passwd", "/etc/passwd", "up/x",
                                      "a/../../b", "again/passwd",  "y",           "in/../../../etc/passwd"};
    for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
        mango_status r = try_read(out[i]), w = try_write(out[i], "x");
        assert_true(r == MANGO_EDENIED || r == MANGO_ENOENT);
        assert_true(w == MANGO_EDENIED || w == MANGO_ENOENT || w == MANGO_EINVALID);
    }
    assert_true(try_read("magic/passwd") < 0);
    assert_true(plugin_sh("test ! -e '%s'/../escape && test ! -e '%s/x'", the_box.root.ptr, base));
    assert_int_equal(stat_of("escape", MANGO_OK).kind, 'l');
}

static void links_that_stay_inside_are_followed(void **state)
{
    (void)state;
    says("mkdir -p real/deep && echo text >real/deep/f && ln -s real/deep rel && ln -s \"$PWD/real\" abs && ln -s "
         "abs/deep/f chain && "
         "ln -s new-target dangling && ln -s loop loop && echo ok",
         "ok\n");
    holds("rel/f", "text\n");
    holds("abs/deep/f", "text\n");
    holds("chain", "text\n");
    char path[PLUGIN_PATH_MAX * 2];
    snprintf(path, sizeof(path), "%s/abs/deep/f", the_box.root.ptr);
    holds(path, "text\n");
    assert_int_equal(try_write("chain", "changed"), MANGO_OK);
    holds("real/deep/f", "changed");
    assert_int_equal(try_write("abs/made/below", "new"), MANGO_OK);
    holds("real/made/below", "new");
    assert_int_equal(try_write("dangling", "born"), MANGO_OK);
    holds("new-target", "born");
    says("test -L chain -a -L dangling && echo links", "links\n");
    assert_int_equal(try_read("loop"), MANGO_EINVALID);
    assert_int_equal(try_write("loop", "x"), MANGO_EINVALID);
}

static _Atomic bool stop_swapping;

static void *swapper(void *arg)
{
    (void)arg;
    char dir[PLUGIN_PATH_MAX * 2], aside[PLUGIN_PATH_MAX * 2], link_path[PLUGIN_PATH_MAX * 2],
        link_aside[PLUGIN_PATH_MAX * 2];
    snprintf(dir, sizeof(dir), "%s/swap", the_box.root.ptr);
    snprintf(aside, sizeof(aside), "%s/swap-dir", the_box.root.ptr);
    snprintf(link_path, sizeof(link_path), "%s/swap-link", the_box.root.ptr);
    snprintf(link_aside, sizeof(link_aside), "%s/victim", plugins);
    (void)!symlink(link_aside, link_path);
    while (!stop_swapping) {
        (void)rename(dir, aside);
        (void)rename(link_path, dir);
        (void)rename(dir, link_path);
        (void)rename(aside, dir);
    }
    return NULL;
}

static void case_70_a_race_with_links_never_leads_out(void **state)
{
    (void)state;
    pthread_t t;
    assert_true(plugin_sh("mkdir -p '%s/victim' '%s/swap' && echo canary >'%s/victim/file'", plugins, the_box.root.ptr,
                          plugins));
    stop_swapping = false;
    pthread_create(&t, NULL, swapper, NULL);
    for (int i = 0; i < 5000; i++) {
        struct outcome o;
        int32_t eof;
        if (read_file(SV("swap/file"), 0, 100, &o, &eof) == MANGO_OK)
            assert_null(memmem(o.out.ptr ? o.out.ptr : "", o.out.len, "canary", 6));
        done(&o);
        (void)try_write("swap/file", "inside");
        (void)try_write("swap/new", "inside");
    }
    stop_swapping = true;
    pthread_join(t, NULL);
    assert_true(
        plugin_sh("test \"$(cat '%s/victim/file')\" = canary && test \"$(ls '%s/victim')\" = file", plugins, plugins));
}

static void case_71_special_files_are_refused_at_once(void **state)
{
    (void)state;
    says("mkfifo fifo; mkdir dir; ln -s /dev/zero zero; truncate -s 1T sparse; touch secret; chmod 000 secret; echo ok",
         "ok\n");
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    char cwd[PLUGIN_PATH_MAX];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir(the_box.root.ptr), 0);
    snprintf(sun.sun_path, sizeof(sun.sun_path), "socket");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sun, sizeof(sun)), 0);
    assert_int_equal(chdir(cwd), 0);
    close(s);
    static const char *const names[] = {"fifo", "socket", "dir"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(try_read(names[i]), MANGO_EINVALID);
        assert_int_equal(try_write(names[i], "x"), MANGO_EINVALID);
    }
    assert_int_equal(try_read("zero"), MANGO_EDENIED);
    char device[PLUGIN_PATH_MAX * 2];
    snprintf(device, sizeof(device), "%s/device", the_box.root.ptr);
    if (geteuid() == 0 && mknod(device, S_IFCHR | 0600, makedev(1, 5)) == 0)
        assert_int_equal(try_read("device"), MANGO_EINVALID);
    struct outcome o;
    int32_t eof;
    assert_int_equal(read_file(SV("sparse"), 0, 1 << 20, &o, &eof), MANGO_OK);
    assert_int_equal(o.out.len, 1 << 20);
    done(&o);
    if (geteuid() != 0)
        assert_int_equal(try_read("secret"), MANGO_EDENIED);
    char name[300];
    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    assert_int_equal(try_write(name, "x"), MANGO_EINVALID);
    assert_int_equal(try_read(name), MANGO_EINVALID);
    assert_int_equal(try_write("", "x"), MANGO_EINVALID);
    assert_int_equal(try_write("dir/", "x"), MANGO_EINVALID);
}

static void case_72_strange_names_hit_exactly_their_file(void **state)
{
    (void)state;
    char long_name[256];
    memset(long_name, 'l', 255);
    long_name[255] = '\0';
    const char *const names[] = {
        "a b", "new\nline",        "t\tab",     "qu'o\"te", "back\\slash", "x:12:y",         "-rf",
        "*",   "\360\237\245\255", "e\314\201", "\303\251", "\377\376",    "$(touch pwned)", long_name};
    struct mg_err err;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[8];
        snprintf(text, sizeof(text), "%zu", i);
        assert_int_equal(write_file(SV(names[i]), text, strlen(text), &err), MANGO_OK);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[8];
        snprintf(text, sizeof(text), "%zu", i);
        holds(names[i], text);
    }
    says("ls -A1q | wc -l", "14\n");
    assert_int_equal(write_file((struct mango_sv){"a\0b", 3}, "x", 1, &err), MANGO_EINVALID);
}

static void case_75_a_write_is_whole_or_not_at_all(void **state)
{
    (void)state;
    char path[PLUGIN_PATH_MAX * 2];
    snprintf(path, sizeof(path), "%s/tool", the_box.root.ptr);
    assert_int_equal(try_write("tool", "#!/bin/sh\n"), MANGO_OK);
    assert_int_equal(stat_of("tool", MANGO_OK).mode, 0644);
    assert_int_equal(chmod(path, 0755), 0);
    bool has_xattr = setxattr(path, "user.note", "kept", 4, 0) == 0;
    assert_int_equal(try_write("tool", "new"), MANGO_OK);
    assert_int_equal(stat_of("tool", MANGO_OK).mode, 0755);
    char value[8];
    if (has_xattr)
        assert_int_equal(getxattr(path, "user.note", value, sizeof(value)), 4);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(try_write("tool", "no"), MANGO_EDENIED);
    holds("tool", "new");
    assert_int_equal(try_write("tool/below", "x"), MANGO_EINVALID);
    assert_int_equal(try_write("empty", ""), MANGO_OK);
    assert_int_equal(stat_of("empty", MANGO_OK).size, 0);
    /* a file size limit stands for a full disk */
    assert_int_equal(try_write("full", "old"), MANGO_OK);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    char big[4000];
    memset(big, 'x', sizeof(big));
    struct mg_err err;
    mango_status s = write_file(SV("full"), big, sizeof(big), &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(s, MANGO_EQUOTA);
    holds("full", "old");
    says("ls -A", "empty\nfull\ntool\n");
    assert_true(plugin_sh("test -z \"$(ls -A '%s/%s/staging')\"", base, the_box.id.ptr));
}

static int64_t broken_source(void *ctx, char *p, uint64_t n)
{
    int *calls = ctx;
    memset(p, 'x', n);
    return (*calls)++ < 3 ? (int64_t)n : MANGO_ECANCELED;
}

static void a_source_that_gives_up_changes_nothing(void **state)
{
    (void)state;
    struct mg_err err;
    int calls = 0;
    assert_int_equal(try_write("f", "old"), MANGO_OK);
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_write_req req = {
        .struct_size = sizeof(req), .path = SV("f"), .source = broken_source, .source_ctx = &calls, .source_len = -1};
    assert_int_equal(local->sandbox->write(local->ctx, &call, (struct mango_sv){the_box.id.ptr, the_box.id.len}, &req),
                     MANGO_ECANCELED);
    holds("f", "old");
}

static void staged_files_of_a_crash_are_removed_at_attach(void **state)
{
    (void)state;
    struct mg_err err;
    struct box b;
    assert_true(plugin_sh("touch '%s/%s/staging/.mango-write-4194303-left'", base, the_box.id.ptr));
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    assert_int_equal(local->sandbox->detach(local->ctx, &call, (struct mango_sv){the_box.id.ptr, the_box.id.len}),
                     MANGO_OK);
    assert_int_equal(open_box(local, label_a, the_box.id.ptr, &b, &err), MANGO_OK);
    assert_true(plugin_sh("test -z \"$(ls -A '%s/%s/staging')\"", base, the_box.id.ptr));
    close_box(&b);
}

#define BOX(f) cmocka_unit_test_setup_teardown(f, box_up, box_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOX(create_is_idempotent_and_attach_finds_the_files_after_a_restart),
        BOX(attach_refuses_foreign_labels_and_never_creates),
        BOX(destroy_is_idempotent_and_leaves_nothing),
        BOX(case_53_destroy_ends_a_command_that_runs),
        BOX(case_52_only_what_this_deployment_owns_is_listed),
        cmocka_unit_test(case_97_an_unsafe_base_folder_is_refused),
        BOX(case_58_exit_codes_and_signals_are_told_apart),
        BOX(a_command_that_does_not_exist_is_a_result),
        BOX(both_streams_stdin_cwd_and_variables_arrive),
        BOX(a_large_binary_stdin_arrives_while_output_is_produced),
        BOX(case_54_a_timeout_kills_everything),
        BOX(a_cancel_ends_the_command_within_a_second),
        BOX(case_64_a_background_child_does_not_delay_the_result),
        BOX(a_background_child_can_go_on_writing),
        BOX(case_65_each_call_has_exactly_one_result),
        BOX(case_66_a_flood_is_drained_and_the_status_is_the_commands),
        BOX(case_67_output_is_never_cut_inside_a_character),
        BOX(case_69_only_the_documented_environment_and_descriptors),
        BOX(case_61_orphans_are_reaped),
        BOX(case_55_stdin_is_at_its_end),
        BOX(case_56_large_arguments_run_or_are_refused_by_name),
        BOX(a_killed_runner_is_replaced_and_its_children_do_not_survive),
        BOX(a_command_whose_time_is_over_never_starts_late),
        BOX(thirty_two_commands_run_at_a_time),
        BOX(a_shell_keeps_its_folder_and_its_children_until_it_is_closed),
        BOX(the_end_of_a_shell_is_seen_though_a_child_holds_its_pipes),
        BOX(reading_a_silent_process_ends_at_the_deadline),
        BOX(files_of_all_sizes_come_back_as_they_were),
        BOX(case_70_no_path_leads_out_of_the_workspace),
        BOX(links_that_stay_inside_are_followed),
        BOX(case_70_a_race_with_links_never_leads_out),
        BOX(case_71_special_files_are_refused_at_once),
        BOX(case_72_strange_names_hit_exactly_their_file),
        BOX(case_75_a_write_is_whole_or_not_at_all),
        BOX(a_source_that_gives_up_changes_nothing),
        BOX(staged_files_of_a_crash_are_removed_at_attach),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
