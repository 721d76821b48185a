#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plugin/elf.h"
#include "plugin/host.h"
#include "plugin/plugin.h"
#include "plugin/process-state.h"

/* The refusals, in their order: name, file, ELF, dlopen, entry, magic, version, sizes, kind, name, required operations,
 * capability bits, host features, init, what init took back. Each check is one function that names what it found, what it expected and what
 * to do. */

#define ENTRY_NAME "mango_plugin_entry"

enum {
    SMALLEST_DESCRIPTOR = offsetof(struct mango_plugin, launcher), /* of minor 0: all but the launcher's table */
    SMALLEST_SANDBOX = offsetof(struct mango_sandbox_ops, detach),
    SMALLEST_LAUNCHER = offsetof(struct mango_launcher_ops, health),
};

static mg_rc check_dir(const char *dir, struct mg_err *err)
{
    struct stat st;
    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return mg_err_set(err, MG_ECONFIG,
                          "the plugin folder %s does not exist; install the plugins or set MANGO_PLUGIN_DIR", dir);
    if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & S_IWOTH))
        return mg_err_set(
            err, MG_ECONFIG,
            "the plugin folder %s can be changed by other users (owner %u, mode %04o); expected: owned by root or by "
            "this user and not writable by others; run chown and chmod o-w on it",
            dir, st.st_uid, st.st_mode & 07777U);
    return MG_OK;
}

static mg_rc check_owner(int fd, struct mg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return mg_err_errno(err, errno, "cannot look at it");
    if (!S_ISREG(st.st_mode))
        return mg_err_set(err, MG_ECONFIG, "it is not a regular file; put the plugin's .so there");
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return mg_err_set(err, MG_ECONFIG,
                          "its owner is user %u; expected root or this user (%u); run chown root on it", st.st_uid,
                          geteuid());
    mode_t bad = geteuid() == 0 ? S_IWGRP | S_IWOTH : S_IWOTH;
    if (st.st_mode & bad)
        return mg_err_set(err, MG_ECONFIG, "its mode %04o lets other users change it; run chmod go-w on it",
                          st.st_mode & 07777U);
    return MG_OK;
}

struct exports {
    bool entry;
    char second[128]; /* another name that looks like an entry, or empty */
};

static void note_export(void *ctx, const char *name)
{
    struct exports *e = ctx;
    if (strcmp(name, ENTRY_NAME) == 0)
        e->entry = true;
    else if (strncmp(name, "mango_plugin_", 13) == 0)
        snprintf(e->second, sizeof(e->second), "%s", name);
}

static mg_rc check_exports(int fd, struct mg_err *err)
{
    struct exports e = {0};
    mg_rc rc = mg_elf_exports(fd, note_export, &e, err);
    if (rc < 0)
        return mg_err_set(err, MG_ECONFIG, "%s; expected a plugin built with cc -shared -fPIC", err->text);
    if (!e.entry)
        return mg_err_set(err, MG_ECONFIG,
                          "it exports no " ENTRY_NAME "; it is not a Mango plugin, or the entry lacks MANGO_EXPORT");
    if (e.second[0])
        return mg_err_set(err, MG_ECONFIG,
                          "it exports two entry points, " ENTRY_NAME " and %s; expected one; rebuild it with "
                          "-fvisibility=hidden and one MANGO_EXPORT",
                          e.second);
    return MG_OK;
}

static mg_rc check_version(const struct mango_plugin *d, struct mg_err *err)
{
    if (d->magic != MANGO_PLUGIN_MAGIC)
        return mg_err_set(err, MG_ECONFIG, "plugin magic 0x%08x, expected 0x%08x; it is not a Mango plugin", d->magic,
                          MANGO_PLUGIN_MAGIC);
    if (d->abi_major != MANGO_ABI_MAJOR || d->abi_minor > MANGO_ABI_MINOR)
        return mg_err_set(err, MG_ECONFIG,
                          "plugin ABI %u.%u, this mangod accepts %d.0 to %d.%d; rebuild the plugin against plugin-api "
                          "%d.x or install "
                          "the matching mangod",
                          d->abi_major, d->abi_minor, MANGO_ABI_MAJOR, MANGO_ABI_MAJOR, MANGO_ABI_MINOR,
                          MANGO_ABI_MAJOR);
    return MG_OK;
}

static mg_rc small(struct mg_err *err, const char *what, uint32_t found, unsigned expected)
{
    return mg_err_set(
        err, MG_ECONFIG,
        "struct %s has struct_size %u, expected at least %u; set struct_size = sizeof(struct %s) and rebuild", what,
        found, expected, what);
}

static mg_rc check_sizes(const struct mango_plugin *d, struct mg_err *err)
{
    bool launcher = d->kind & MANGO_KIND_LAUNCHER;
    unsigned want = launcher ? sizeof(struct mango_plugin) : (unsigned)SMALLEST_DESCRIPTOR;
    if (d->struct_size < want)
        return small(err, "mango_plugin", d->struct_size, want);
    if (!d->name || !d->version || !d->license || !d->summary)
        return mg_err_set(err, MG_ECONFIG, "name, version, license or summary is NULL; expected text in all four");
    if (d->kind == 0 || (d->kind & ~(MANGO_KIND_SANDBOX | MANGO_KIND_LAUNCHER)))
        return mg_err_set(err, MG_ECONFIG, "kind 0x%x, expected MANGO_KIND_SANDBOX, MANGO_KIND_LAUNCHER or both",
                          d->kind);
    if ((d->kind & MANGO_KIND_SANDBOX) && !d->sandbox)
        return mg_err_set(err, MG_ECONFIG, "kind says sandbox but .sandbox is NULL; set the table or clear the bit");
    if (launcher && !d->launcher)
        return mg_err_set(err, MG_ECONFIG, "kind says launcher but .launcher is NULL; set the table or clear the bit");
    if ((d->kind & MANGO_KIND_SANDBOX) && d->sandbox->struct_size < SMALLEST_SANDBOX)
        return small(err, "mango_sandbox_ops", d->sandbox->struct_size, SMALLEST_SANDBOX);
    if (launcher && d->launcher->struct_size < SMALLEST_LAUNCHER)
        return small(err, "mango_launcher_ops", d->launcher->struct_size, SMALLEST_LAUNCHER);
    return MG_OK;
}

static mg_rc check_kind(const struct mango_plugin *d, uint32_t kind, struct mg_err *err)
{
    if ((d->kind & kind) == kind)
        return MG_OK;
    return mg_err_set(err, MG_ECONFIG, "it is no %s; choose another plugin",
                      kind & ~d->kind & MANGO_KIND_SANDBOX ? "sandbox backend" : "launcher");
}

static mg_rc check_name(const struct mango_plugin *d, const char *name, struct mg_err *err)
{
    if (strcmp(d->name, name) == 0)
        return MG_OK;
    return mg_err_set(err, MG_ECONFIG,
                      "the plugin calls itself '%.40s', expected '%s'; the file's name must be the plugin's name",
                      d->name, name);
}

/* A member of an operations table: where it is, whether it must be there, the bit that promises it. */
struct member {
    uint64_t cap;
    const char *name;
    uint16_t off;
    bool required;
};

#define REQ(type, m)                          \
    {                                         \
        0, #m, offsetof(struct type, m), true \
    }
#define OPT(bit, type, m)                        \
    {                                            \
        bit, #m, offsetof(struct type, m), false \
    }
static const struct member sandbox_members[] = {
    REQ(mango_sandbox_ops, create),
    REQ(mango_sandbox_ops, attach),
    REQ(mango_sandbox_ops, exec),
    REQ(mango_sandbox_ops, read),
    REQ(mango_sandbox_ops, write),
    REQ(mango_sandbox_ops, stat),
    REQ(mango_sandbox_ops, destroy),
    REQ(mango_sandbox_ops, health),
    OPT(MANGO_CAP_LIST_OWNED, mango_sandbox_ops, list_owned),
    OPT(MANGO_CAP_PROC, mango_sandbox_ops, proc_open),
    OPT(MANGO_CAP_PROC, mango_sandbox_ops, proc_write),
    OPT(MANGO_CAP_PROC, mango_sandbox_ops, proc_read),
    OPT(MANGO_CAP_PROC, mango_sandbox_ops, proc_close),
    OPT(MANGO_CAP_PTY, mango_sandbox_ops, proc_open),
    OPT(MANGO_CAP_PTY, mango_sandbox_ops, proc_resize),
    OPT(MANGO_CAP_PAUSE, mango_sandbox_ops, pause),
    OPT(MANGO_CAP_PAUSE, mango_sandbox_ops, resume),
    OPT(MANGO_CAP_SNAPSHOT, mango_sandbox_ops, snapshot),
    OPT(MANGO_CAP_SNAPSHOT, mango_sandbox_ops, snapshot_delete),
    OPT(MANGO_CAP_FORK, mango_sandbox_ops, fork),
    OPT(MANGO_CAP_EGRESS_LIMITED, mango_sandbox_ops, set_network),
    OPT(MANGO_CAP_PACKAGES, mango_sandbox_ops, packages),
    OPT(MANGO_CAP_ARCHIVES, mango_sandbox_ops, archive_in),
    OPT(MANGO_CAP_ARCHIVES, mango_sandbox_ops, archive_out),
    OPT(MANGO_CAP_KEEP_ALIVE, mango_sandbox_ops, keep_alive),
};
static const struct member launcher_members[] = {
    REQ(mango_launcher_ops, launch),
    REQ(mango_launcher_ops, watch),
    REQ(mango_launcher_ops, stop),
    REQ(mango_launcher_ops, persists),
    OPT(MANGO_CAP_LAUNCH_LIST, mango_launcher_ops, list_owned),
    OPT(MANGO_CAP_LAUNCH_LOGS, mango_launcher_ops, logs),
};
#undef REQ
#undef OPT

static bool has_member(const void *ops, uint32_t struct_size, const struct member *m)
{
    void (*fn)(void) = NULL;
    if (struct_size < m->off + sizeof(fn))
        return false;
    memcpy(&fn, (const char *)ops + m->off, sizeof(fn));
    return fn != NULL;
}

static const char *cap_name(uint64_t bit)
{
    for (const struct mg_plugin_cap *c = mg_plugin_caps; c->name; c++) {
        if (c->bit == bit)
            return c->name;
    }
    return "?";
}

static mg_rc check_members(const struct mango_plugin *d, const void *ops, uint32_t size, const struct member *m,
                           size_t n, const char *table, struct mg_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (m[i].required && !has_member(ops, size, &m[i]))
            return mg_err_set(err, MG_ECONFIG, "required operation %s.%s is NULL; the plugin must provide it", table,
                              m[i].name);
    }
    for (size_t i = 0; i < n; i++) {
        if ((d->caps & m[i].cap) && !has_member(ops, size, &m[i]))
            return mg_err_set(err, MG_ECONFIG, "capability '%s' is set but %s.%s is NULL; provide it or clear the bit",
                              cap_name(m[i].cap), table, m[i].name);
    }
    return MG_OK;
}

static mg_rc check_ops(const struct mango_plugin *d, struct mg_err *err)
{
    uint64_t known = (d->kind & MANGO_KIND_SANDBOX ? MANGO_CAP_KNOWN : 0) |
                     (d->kind & MANGO_KIND_LAUNCHER ? MANGO_CAP_LAUNCH_KNOWN : 0);
    mg_rc rc = MG_OK;
    if (d->kind & MANGO_KIND_SANDBOX)
        rc = check_members(d, d->sandbox, d->sandbox->struct_size, sandbox_members,
                           sizeof(sandbox_members) / sizeof(sandbox_members[0]), "sandbox", err);
    if (rc == MG_OK && (d->kind & MANGO_KIND_LAUNCHER))
        rc = check_members(d, d->launcher, d->launcher->struct_size, launcher_members,
                           sizeof(launcher_members) / sizeof(launcher_members[0]), "launcher", err);
    if (rc < 0)
        return rc;
    if (!d->init || !d->fini)
        return mg_err_set(err, MG_ECONFIG, "required function %s is NULL; the plugin must provide it",
                          d->init ? "fini" : "init");
    if (d->caps & ~known)
        return mg_err_set(
            err, MG_ECONFIG,
            "unknown capability bits 0x%llx; this mangod knows 0x%llx; clear them or install a newer mangod",
            (unsigned long long)(d->caps & ~known), (unsigned long long)known);
    return MG_OK;
}

static mg_rc check_host(const struct mango_plugin *d, uint64_t features, struct mg_err *err)
{
    uint64_t missing = d->required_host & ~features;
    if (missing == 0)
        return MG_OK;
    return mg_err_set(err, MG_ECONFIG,
                      "it needs host features 0x%llx, this mangod has 0x%llx; install a mangod that has them",
                      (unsigned long long)d->required_host, (unsigned long long)features);
}

/* Everything up to the descriptor's own consistency. The texts lack the file's name. */
static mg_rc open_file(const char *path, const char *name, const struct mango_plugin **ret, struct mg_err *err)
{
    mg_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return mg_err_set(err, MG_ECONFIG, "cannot open it: %s", strerror(errno));
    mg_rc rc = check_owner(fd, err);
    if (rc == MG_OK)
        rc = check_exports(fd, err);
    if (rc < 0)
        return rc;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!so)
        return mg_err_set(err, MG_ECONFIG, "the loader refused it: %.400s; install what it needs", dlerror());
    mango_plugin_entry_fn *entry = NULL;
    void *sym = dlsym(so, ENTRY_NAME);
    memcpy(&entry, &sym, sizeof(entry));
    const struct mango_plugin *d = entry ? entry() : NULL;
    if (!d)
        return mg_err_set(err, MG_ECONFIG,
                          ENTRY_NAME " gave no descriptor; expected a static const struct mango_plugin");
    rc = check_version(d, err);
    if (rc == MG_OK)
        rc = check_sizes(d, err);
    if (rc == MG_OK)
        rc = check_name(d, name, err);
    if (rc == MG_OK)
        rc = check_ops(d, err);
    if (rc == MG_OK)
        *ret = d;
    return rc;
}

/* "MANGO_SANDBOX=name: path: " before what the check said. */
static mg_rc refuse(const struct mg_plugin_load *l, const char *path, struct mg_err *err)
{
    err->rc = MG_ECONFIG;
    return mg_err_wrap(err, MG_ECONFIG, "%s=%s: %s", l->variable, l->name, path);
}

static mg_rc refuse_name(const struct mg_plugin_load *l, bool bad, struct mg_err *err)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_sv names = mg_plugin_names(a, l->dir);
    const char *none = l->kind & MANGO_KIND_SANDBOX ? "no such sandbox" : "no such launcher";
    mg_rc rc = mg_err_set(err, MG_ECONFIG, "%s=%.64s: %s; available in %s: %.*s", l->variable, l->name,
                          bad ? "not a plugin name ([a-z0-9][a-z0-9-]{0,31})" : none, l->dir, MG_SV_ARG(names));
    mg_arena_free(a);
    return rc;
}

static mg_rc run_init(struct mg_plugin *p, const struct mg_plugin_load *l, struct mg_err *err)
{
    struct mg_process_state before;
    struct mg_err own = {0};
    struct mango_call call = mg_plugin_call(mg_now_ns() + MG_PLUGIN_INIT_MS * UINT64_C(1000000), NULL, &own);
    struct mango_sv config = {l->config.len ? l->config.ptr : "{}", l->config.len ? l->config.len : 2};
    mg_process_state_save(&before);
    mango_status status = p->desc->init(p->host, &call, config, &p->ctx);
    mg_process_state_restore(&before, p->name);
    if (status >= 0)
        return MG_OK;
    (void)mg_plugin_rc(p, MG_OP_HEALTH, status, &own);
    return mg_err_set(err, MG_ECONFIG, "its start failed: %s", own.text);
}

/* What the running plugin can do is what its descriptor says, or less by name. */
static mg_rc check_live(struct mg_plugin *p, struct mg_err *err)
{
    uint64_t without = mg_host_without(p->host), extra = without & ~p->desc->caps;
    p->caps = p->desc->caps & ~without;
    if (extra == 0)
        return MG_OK;
    return mg_err_set(err, MG_ECONFIG,
                      "its start takes back capability '%s' (bits 0x%llx), which its descriptor does not have; declare "
                      "what it takes back and rebuild",
                      cap_name(extra & -extra), (unsigned long long)extra);
}

void mg_plugin_close(struct mg_plugin *p)
{
    if (!p)
        return;
    if (p->sandbox || p->launcher) /* set only once init has succeeded */
        p->desc->fini(p->ctx);
    mg_host_free(p->host);
    free(p->path);
    free(p);
}

static void mg_plugin_cleanup(struct mg_plugin **p)
{
    mg_plugin_close(*p);
}

mg_rc mg_plugin_open(const struct mg_plugin_load *l, struct mg_plugin **ret, struct mg_err *err)
{
    struct mg_err own = {0};
    if (!err)
        err = &own;
    if (!mg_plugin_name_ok(mg_sv_of(l->name)))
        return refuse_name(l, true, err);
    mg_rc rc = check_dir(l->dir, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "%s=%s", l->variable, l->name);
    mg_auto(plugin) struct mg_plugin *p = mg_xcalloc(1, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "%s", l->name);
    /* Absolute: a plugin looks for its helper programs beside itself, and starts them from the folders of sandboxes. */
    mg_autofree char *absolute = realpath(l->dir, NULL);
    const char *dir = absolute ? absolute : l->dir;
    size_t n = strlen(dir) + strlen(l->name) + sizeof("/.so");
    p->path = mg_xmalloc(n);
    snprintf(p->path, n, "%s/%s.so", dir, l->name);
    if (access(p->path, F_OK) < 0)
        return refuse_name(l, false, err);

    p->host = mg_host_new(p->name, l->services);
    rc = open_file(p->path, p->name, &p->desc, err);
    if (rc == MG_OK)
        rc = check_kind(p->desc, l->kind, err);
    if (rc == MG_OK)
        rc = check_host(p->desc, p->host->features, err);
    if (rc == MG_OK)
        rc = run_init(p, l, err);
    if (rc < 0)
        return refuse(l, p->path, err);
    p->sandbox = p->desc->kind & MANGO_KIND_SANDBOX ? p->desc->sandbox : NULL;
    p->launcher = p->desc->kind & MANGO_KIND_LAUNCHER ? p->desc->launcher : NULL;
    rc = check_live(p, err);
    if (rc < 0)
        return refuse(l, p->path, err);
    *ret = mg_steal(&p);
    return MG_OK;
}

mg_rc mg_plugin_inspect(const char *path, const struct mango_plugin **ret, struct mg_err *err)
{
    mg_autofree char *copy = mg_xstrdup(path);
    mg_autofree char *full = realpath(path, NULL);
    char *base = basename(copy);
    size_t len = strlen(base);
    if (len > 3 && strcmp(base + len - 3, ".so") == 0)
        base[len - 3] = '\0';
    if (!full)
        return mg_err_set(err, MG_ECONFIG, "%s: %s", path, strerror(errno));
    mg_rc rc =
        mg_plugin_name_ok(mg_sv_of(base))
            ? open_file(full, base, ret, err)
            : mg_err_set(err, MG_ECONFIG, "'%.40s' is not a plugin name; expected [a-z0-9][a-z0-9-]{0,31}.so", base);
    return rc < 0 ? mg_err_wrap(err, rc, "%s", path) : MG_OK;
}
