#include "sandbox/conformance.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "plugin/elf.h"
#include "plugin/process-state.h"
#include "sandbox/conformance-internal.h"

/* The run: which cases, in what order, and the report. */

static const struct {
    const char *name;
    const struct cf_case *cases;
    bool optional; /* only what is claimed is run */
} groups[] = {
    {"core", cf_life_cases, false},      {"core", cf_exec_cases, false},     {"core", cf_stop_cases, false},
    {"core", cf_file_cases, false},      {"core", cf_escape_cases, false},   {"core", cf_crash_cases, false},
    {"option", cf_proc_cases, true},     {"option", cf_service_cases, true}, {"option", cf_snapshot_cases, true},
    {"option", cf_boundary_cases, true},
};

void cf_say(const struct cf_report *r, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r->line(r->ctx, text);
}

void cf_say_lines(const struct cf_report *r, const struct mg_buf *text)
{
    for (struct mg_sv s = mg_buf_view(text); s.len > 0;) {
        const char *end = memchr(s.ptr, '\n', s.len);
        size_t n = end ? (size_t)(end - s.ptr) : s.len;
        cf_say(r, "# %.*s", (int)n, s.ptr);
        size_t skip = n + (end ? 1 : 0);
        s = mg_sv_n(s.ptr + skip, s.len - skip);
    }
}

static void begin_case(struct cf *c)
{
    c->failed = c->second = false;
    c->skip[0] = '\0';
    mg_buf_reset(&c->why);
    mg_buf_reset(&c->notes);
    cf_random_label(c->label);
    cf_random_label(c->other_label);
    /* Some months: no other process of this machine is told apart by it. */
    snprintf(c->mark, sizeof(c->mark), "%u", (unsigned)(10000000 + mg_rng_below(80000000)));
    c->id = c->root = MG_BUF_INIT(CF_REF_MAX);
}

/* A fresh sandbox for each case, so that none depends on another. */
static void run_case(struct cf *c, const struct cf_case *t)
{
    struct mg_process_state before;
    begin_case(c);
    mg_process_state_save(&before);
    if (cf_check(c, cf_create(c, c->p, c->label, &c->id, &c->root) == MANGO_OK, "create failed"))
        t->run(c);
    if (c->p) {
        (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "destroy at the end failed");
        if (c->second)
            (void)cf_check(c, cf_destroy(c, c->p, c->other_label, mg_sv_n("", 0)) == MANGO_OK,
                           "destroy of the first sandbox by its label failed");
        (void)cf_check(c, mg_process_state_diff(&before, &c->why) == 0, "the plugin changed the state of the process");
    }
    mg_buf_done(&c->id);
    mg_buf_done(&c->root);
}

static void run_cases(struct cf *c, struct cf_report *r, const struct cf_case *cases, const char *group)
{
    for (const struct cf_case *t = cases; t->name && c->p; t++) {
        if (c->opts->only && !strstr(t->name, c->opts->only))
            continue;
        r->n++;
        if (!mg_plugin_can(c->p, t->caps)) {
            cf_say(r, "ok %d - %s/%s # SKIP the capability is not claimed", r->n, group, t->name);
            r->skipped++;
            continue;
        }
        run_case(c, t);
        if (c->failed)
            cf_say(r, "not ok %d - %s/%s", r->n, group, t->name);
        else
            cf_say(r, "ok %d - %s/%s%s%s", r->n, group, t->name, c->skip[0] ? " # SKIP " : "", c->skip);
        if (c->failed)
            cf_say_lines(r, &c->why);
        cf_say_lines(r, &c->notes);
        r->failed += c->failed;
        r->skipped += !c->failed && c->skip[0];
        c->broken |= c->failed ? t->caps : 0;
    }
}

static void note_export(void *ctx, const char *name)
{
    static const char *const known[] = {"mango_plugin_entry", "_init", "_fini", "__bss_start", "_edata", "_end"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0)
            return;
    }
    (void)mg_buf_printf(ctx, "%s\n", name);
}

/* Names beyond the one entry do no harm (RTLD_LOCAL), but their author should know. */
static void say_exports(const struct cf_report *r, const char *path)
{
    mg_auto(buf) struct mg_buf names = MG_BUF_INIT(CF_TEXT_MAX);
    mg_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct mg_err err;
    if (fd < 0 || mg_elf_exports(fd, note_export, &names, &err) < 0 || names.len == 0)
        return;
    cf_say(r, "# exported beside the entry point (build with -fvisibility=hidden):");
    cf_say_lines(r, &names);
}

/* A bit for which there is a case of its own. */
static bool has_case(uint64_t bit)
{
    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
        for (const struct cf_case *t = groups[g].cases; t->name; t++) {
            if (t->caps & bit)
                return true;
        }
    }
    return false;
}

static void say_capabilities(const struct cf_report *r, const struct cf *c, uint64_t caps)
{
    for (const struct mg_plugin_cap *cap = mg_plugin_caps; cap->name; cap++) {
        if (cap->bit >= MANGO_CAP_LAUNCH_LIST)
            continue; /* a launcher's: it is not run here */
        if (!(caps & cap->bit))
            cf_say(r, "# not claimed: %s", cap->name);
        else if (cap->bit >= MANGO_TRAIT_NO_KILL)
            cf_say(r, "# weakness, met by the core: %s", cap->name);
        else if (c->broken & cap->bit)
            cf_say(r, "# capability: %s, claimed but NOT kept", cap->name);
        else
            cf_say(r, "# capability: %s%s", cap->name,
                   has_case(cap->bit) && !c->opts->only ? ", proved" : ", claimed, not looked at");
    }
}

static void say_end(const struct cf_report *r, const struct cf *c, uint64_t caps)
{
    cf_say(r, "1..%d", r->n);
    say_capabilities(r, c, caps);
    cf_say(r, "# %d run, %d failed, %d skipped", r->n - r->skipped, r->failed, r->skipped);
}

/* A plugin that speaks to a service makes nothing there without being asked to. */
static int run_offline(const struct mg_conformance_opts *opts, struct cf_report *r)
{
    char path[4096];
    const struct mango_plugin *d = NULL;
    struct mg_err err = {0};
    struct cf c = {.opts = opts};
    snprintf(path, sizeof(path), "%s/%s.so", opts->dir, opts->name);
    if (access(path, F_OK) < 0 || mg_plugin_inspect(path, &d, &err) < 0 || d->required_host == 0)
        return -1; /* the real load says what is wrong with it */
    cf_say(r, "# %s %s, %s: %s", d->name, d->version, d->license, d->summary);
    r->n++;
    cf_say(r, "ok %d - the file, its descriptor and its tables are what this server loads", r->n);
    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
        for (const struct cf_case *t = groups[g].cases; t->name; t++) {
            cf_say(r, "ok %d - %s/%s # SKIP it makes sandboxes at a service: add --live", ++r->n, groups[g].name,
                   t->name);
            r->skipped++;
        }
    }
    say_end(r, &c, d->caps);
    say_exports(r, path);
    return 0;
}

int mg_conformance_run(const struct mg_conformance_opts *opts, void (*line)(void *ctx, const char *text), void *ctx)
{
    struct cf c = {.opts = opts, .why = MG_BUF_INIT(CF_TEXT_MAX), .notes = MG_BUF_INIT(CF_TEXT_MAX)};
    struct cf_report r = {.line = line, .ctx = ctx};
    struct mg_err err = {0};
    cf_say(&r, "TAP version 13");
    if (!opts->live && run_offline(opts, &r) == 0)
        return 0;
    if (cf_open_plugin(&c, &err) < 0) {
        cf_say(&r, "Bail out! %s", err.text);
        return -1;
    }
    cf_random_label(c.owner);
    cf_say(&r, "# %s %s, %s: %s", c.p->name, c.p->desc->version, c.p->desc->license, c.p->desc->summary);
    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
        run_cases(&c, &r, groups[g].cases, groups[g].name);
    if (c.p) {
        say_end(&r, &c, c.p->caps);
        say_exports(&r, c.p->path);
    } else {
        cf_say(&r, "Bail out! the plugin did not start again");
        r.failed++;
    }
    mg_plugin_close(c.p);
    mg_buf_done(&c.why);
    mg_buf_done(&c.notes);
    return r.failed;
}
