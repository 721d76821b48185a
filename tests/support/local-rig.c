#include "support/local-rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit/unit.h"

char local_plugins[PLUGIN_PATH_MAX], local_base[PLUGIN_PATH_MAX + 32];
struct mg_plugin *local_plugin;
const char box_label[] = "0123456789abcdef0123456789abcdef";
const char box_owner[] = "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb";
struct box the_box;

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    (void)ctx;
    (void)plugin;
    return strcmp(name, "base_dir") == 0 && mg_buf_str(out, local_base) == MG_OK;
}

static const struct mg_plugin_services services = {.setting = setting};

struct mg_plugin *local_load(struct mg_err *err)
{
    struct mg_plugin_load l = {.dir = local_plugins,
                               .name = "local",
                               .variable = "MANGO_SANDBOX",
                               .kind = MANGO_KIND_SANDBOX,
                               .services = &services};
    struct mg_plugin *p = NULL;
    return mg_plugin_open(&l, &p, err) == MG_OK ? p : NULL;
}

int local_group_up(void **state)
{
    (void)state;
    struct mg_err err = {0};
    plugin_dir_make(local_plugins);
    snprintf(local_base, sizeof(local_base), "%s/base", local_plugins);
    if (!plugin_build_local(local_plugins))
        return -1;
    local_plugin = local_load(&err);
    if (!local_plugin)
        fprintf(stderr, "%s\n", err.text);
    return local_plugin ? 0 : -1;
}

int local_group_down(void **state)
{
    (void)state;
    mg_plugin_close(local_plugin);
    plugin_dir_remove(local_plugins);
    return 0;
}

/* ---- the box of a test ---- */

mango_status box_open(struct mg_plugin *p, const char *label, const char *attach, struct box *ret, struct mg_err *err)
{
    *ret = (struct box){MG_BUF_INIT(1024), MG_BUF_INIT(1024), MG_BUF_INIT(1024)};
    struct mango_call call = mg_plugin_call(0, NULL, err);
    struct mango_sandbox_spec spec = {
        .struct_size = sizeof(spec), .label = text_sv(label), .owner = text_sv(box_owner)};
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)&ret->id,
                                    .root = (struct mango_buf *)&ret->root,
                                    .identity = (struct mango_buf *)&ret->identity};
    return attach ? p->sandbox->attach(p->ctx, &call, text_sv(attach), &spec, &ref)
                  : p->sandbox->create(p->ctx, &call, &spec, &ref);
}

void box_close(struct box *b)
{
    mg_buf_done(&b->id);
    mg_buf_done(&b->root);
    mg_buf_done(&b->identity);
}

mango_status box_destroy(void)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    return local_plugin->sandbox->destroy(local_plugin->ctx, &call, (struct mango_sv){"", 0}, text_sv(box_label));
}

struct mango_sv box_id(void)
{
    return (struct mango_sv){the_box.id.ptr, the_box.id.len};
}

int box_up(void **state)
{
    (void)state;
    struct mg_err err;
    return box_open(local_plugin, box_label, NULL, &the_box, &err) == MANGO_OK ? 0 : -1;
}

int box_down(void **state)
{
    (void)state;
    mango_status s = box_destroy();
    box_close(&the_box);
    return s == MANGO_OK ? 0 : -1;
}

/* ---- commands in it ---- */

int32_t outcome_collect(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct outcome *o = ctx;
    return mg_buf_append(stream == 2 ? &o->err : &o->out, p, n) == MG_OK ? 0 : 1;
}

struct outcome box_run_argv(const char *const *argv, struct how how)
{
    struct outcome o = {.out = MG_BUF_INIT(OUT_MAX), .err = MG_BUF_INIT(OUT_MAX), .r.struct_size = sizeof(o.r)};
    struct mango_sv args[16], env = text_sv(how.env ? how.env : "");
    uint64_t n = 0;
    for (; argv[n]; n++)
        args[n] = text_sv(argv[n]);
    uint64_t t0 = mg_now_ns();
    struct mango_call call = mg_plugin_call(0, how.cancel, &o.error);
    struct mango_exec_req req = {.struct_size = sizeof(req),
                                 .argv = args,
                                 .n_argv = n,
                                 .sink = outcome_collect,
                                 .sink_ctx = &o,
                                 .max_output = how.max_output,
                                 .cwd = text_sv(how.cwd ? how.cwd : ""),
                                 .env = &env,
                                 .n_env = how.env ? 1 : 0,
                                 .stdin_data = {how.in, how.in_len ? how.in_len
                                                        : how.in   ? strlen(how.in)
                                                                   : 0},
                                 .limit_ns = t0 + (how.limit_ms ? how.limit_ms : 20000) * MS_NS};
    o.status = local_plugin->sandbox->exec(local_plugin->ctx, &call, box_id(), &req, &o.r);
    o.ms = (mg_now_ns() - t0) / MS_NS;
    return o;
}

struct outcome box_run(const char *script, struct how how)
{
    return box_run_argv((const char *const[]){"/bin/sh", "-c", script, NULL}, how);
}

void outcome_done(struct outcome *o)
{
    mg_buf_done(&o->out);
    mg_buf_done(&o->err);
}

void outcome_is(struct outcome *o, const char *out)
{
    assert_int_equal(o->status, MANGO_OK);
    assert_string_equal(o->out.ptr ? o->out.ptr : "", out);
}

void box_says(const char *script, const char *out)
{
    struct outcome o = box_run(script, (struct how){0});
    outcome_is(&o, out);
    assert_true(o.r.exited);
    outcome_done(&o);
}

int marked_count(const char *marker)
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

bool marked_becomes(const char *marker, int wanted)
{
    for (uint64_t end = mg_now_ns() + QUICK_MS * MS_NS; mg_now_ns() < end; usleep(2000)) {
        if (marked_count(marker) == wanted)
            return true;
    }
    return false;
}

/* ---- files in it ---- */

mango_status box_read(struct mango_sv path, uint64_t offset, uint64_t max, struct outcome *o, int32_t *eof)
{
    *o = (struct outcome){.out = MG_BUF_INIT(OUT_MAX), .err = MG_BUF_INIT(OUT_MAX)};
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS_NS, NULL, &o->error);
    struct mango_read_req req = {
        .struct_size = sizeof(req), .path = path, .offset = offset, .max = max, .sink = outcome_collect, .sink_ctx = o};
    uint64_t t0 = mg_now_ns();
    mango_status s = local_plugin->sandbox->read(local_plugin->ctx, &call, box_id(), &req, eof);
    o->ms = (mg_now_ns() - t0) / MS_NS;
    return s;
}

mango_status box_write(struct mango_sv path, const char *p, uint64_t n, struct mg_err *err)
{
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS_NS, NULL, err);
    struct mango_write_req req = {.struct_size = sizeof(req), .path = path, .content = {p, n}, .source_len = -1};
    return local_plugin->sandbox->write(local_plugin->ctx, &call, box_id(), &req);
}

mango_status box_try_write(const char *path, const char *text)
{
    struct mg_err err;
    return box_write(text_sv(path), text, strlen(text), &err);
}

mango_status box_try_read(const char *path)
{
    struct outcome o;
    int32_t eof;
    mango_status s = box_read(text_sv(path), 0, 1024, &o, &eof);
    assert_true(o.ms < QUICK_MS);
    outcome_done(&o);
    return s;
}

void box_holds(const char *path, const char *text)
{
    struct outcome o;
    int32_t eof = 0;
    assert_int_equal(box_read(text_sv(path), 0, OUT_MAX, &o, &eof), MANGO_OK);
    assert_string_equal(o.out.ptr ? o.out.ptr : "", text);
    assert_int_equal(eof, 1);
    outcome_done(&o);
}

struct mango_stat box_stat(const char *path, mango_status want)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_stat st = {.struct_size = sizeof(st)};
    assert_int_equal(local_plugin->sandbox->stat(local_plugin->ctx, &call, box_id(), text_sv(path), 0, &st), want);
    return st;
}
