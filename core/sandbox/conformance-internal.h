/* Shared by the files of the conformance suite only. */
#ifndef MG_SANDBOX_CONFORMANCE_INTERNAL_H
#define MG_SANDBOX_CONFORMANCE_INTERNAL_H

#include <pthread.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "plugin/plugin.h"
#include "sandbox/conformance.h"

enum {
    CF_TEXT_MAX = 16 * 1024,
    CF_OUTPUT_MAX = 16 * 1024 * 1024, /* bytes of one command's output that a case keeps */
    CF_CALL_MS = 120000,
    CF_SLOW_MS = 600000, /* snapshots and packages may take minutes */
    CF_LABEL_LEN = 33,
    CF_REF_MAX = 1024, /* bytes of an id, as the manager takes them */
    CF_MARK_LEN = 16,
    CF_SKIP_MAX = 200,
    CF_GONE_TRIES = 10, /* looks, 0.3 s apart, for a killed process to have gone: case 54 asks for 3 s */
};

/* One run. Single-threaded but for what a case starts itself. */
struct cf {
    const struct mg_conformance_opts *opts;
    uint32_t kind; /* MANGO_KIND_* of the half that is looked at; 0: the sandbox */
    struct mg_plugin *p;
    char label[CF_LABEL_LEN], other_label[CF_LABEL_LEN], owner[CF_LABEL_LEN];
    char mark[CF_MARK_LEN]; /* of this case: seconds that no other process sleeps. Commands have it as $MARK */
    struct mg_buf id, root; /* of the present sandbox */
    uint64_t expires_s;     /* as the last create or attach said */
    bool second;            /* the present sandbox is a second one: cf_second */
    struct mg_buf why;      /* lines about the present case's failure */
    struct mg_buf notes;    /* lines that are no failure */
    bool failed;
    char skip[CF_SKIP_MAX]; /* why the case could not be run here, or empty */
    uint64_t broken;        /* capabilities of which a case has failed */
};

/* Notes a failure of the present case; it goes on. Returns ok. */
bool cf_check(struct cf *c, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A line in the report, no failure. */
void cf_note(struct cf *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The case cannot be run here, through no fault of the plugin. */
void cf_skip(struct cf *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A command and what became of it. Commands have MARK in their environment. */
struct cf_exec {
    const char *script;      /* for /bin/sh -c */
    const char *const *args; /* $0 and up, NULL-terminated, or NULL */
    const char *env;         /* one more "NAME=value", or NULL */
    const char *cwd;
    struct mg_sv in;
    mango_source_fn *source; /* streamed input instead */
    void *source_ctx;
    uint64_t limit_ms, max_output;
    struct mg_cancel *cancel;
    /* out */
    struct mango_exec_result r;
    struct mg_buf out, err;
    struct mg_err error;
    mango_status status;
    uint64_t ms;
    bool cut; /* a piece of output began or ended inside of a character */
};
void cf_exec(struct cf *c, struct cf_exec *x);
void cf_exec_done(struct cf_exec *x);
/* As the function of a thread beside the case; arg is one of these. It notes nothing about the case. */
struct cf_beside {
    struct cf *c;
    struct cf_exec x;
};
void *cf_exec_beside(void *arg);
void cf_thread(pthread_t *ret, void *(*fn)(void *), void *arg);
/* Runs the script and checks status, exit code and exact standard output. */
bool cf_says(struct cf *c, const char *script, int exit_code, const char *out);
/* No process that the sandbox can see sleeps for $MARK, soon. */
bool cf_nothing_left(struct cf *c);
/* Waits until the script prints exactly out; false after five seconds. */
bool cf_until(struct cf *c, const char *script, const char *out);

mango_status cf_create(struct cf *c, struct mg_plugin *p, const char *label, struct mg_buf *id, struct mg_buf *root);
/* base: what the sandbox shall be; label and owner are put in. */
mango_status cf_create_as(struct cf *c, const struct mango_sandbox_spec *base, const char *label, struct mg_buf *id,
                          struct mg_buf *root);
mango_status cf_attach(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id);
mango_status cf_destroy(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id);
void cf_detach(struct cf *c, struct mg_sv id);
/* Makes a second sandbox and makes it the present one, to the end of the case. base may be NULL. */
bool cf_second(struct cf *c, const struct mango_sandbox_spec *base);
mango_status cf_write(struct cf *c, struct mg_sv path, struct mg_sv content);
mango_status cf_write_from(struct cf *c, struct mg_sv path, mango_source_fn *source, void *ctx, int64_t len);
mango_status cf_read(struct cf *c, struct mg_sv path, uint64_t offset, uint64_t max, struct mg_buf *out, int32_t *eof);
mango_status cf_read_to(struct cf *c, struct mg_sv path, uint64_t offset, uint64_t max, mango_sink_fn *sink, void *ctx,
                        int32_t *eof);
mango_status cf_stat(struct cf *c, struct mg_sv path, uint32_t flags, struct mango_stat *ret);
/* The file is there and holds exactly this. */
bool cf_holds(struct cf *c, const char *path, const char *content);
/* The plugin closed and opened anew, as by a restart of the server, with the sandbox attached. */
bool cf_restart(struct cf *c);
mg_rc cf_open_plugin(struct cf *c, struct mg_err *err);
void cf_random_label(char out[CF_LABEL_LEN]);

static inline struct mango_sv cf_abi(struct mg_sv s)
{
    return (struct mango_sv){s.ptr, s.len};
}
static inline struct mango_sv cf_id(const struct cf *c)
{
    return cf_abi(mg_buf_view(&c->id));
}
static inline uint64_t cf_in_ms(uint64_t ms)
{
    return mg_now_ns() + ms * UINT64_C(1000000);
}
/* Of a call that may take minutes. */
static inline struct mango_call cf_slow_call(struct mg_err *err)
{
    return mg_plugin_call(cf_in_ms(CF_SLOW_MS), NULL, err);
}

struct cf_report {
    void (*line)(void *ctx, const char *text);
    void *ctx;
    int n, failed, skipped;
};
void cf_say(const struct cf_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Text as TAP diagnostics, a line each. */
void cf_say_lines(const struct cf_report *r, const struct mg_buf *text);

struct cf_case {
    const char *name;
    uint64_t caps; /* run when all are set */
    void (*run)(struct cf *c);
};
/* Each ends with name NULL. */
extern const struct cf_case cf_life_cases[], cf_exec_cases[], cf_stop_cases[], cf_file_cases[], cf_escape_cases[],
    cf_crash_cases[], cf_proc_cases[], cf_service_cases[], cf_snapshot_cases[], cf_boundary_cases[];

#define CF_CASE(caps, f) \
    {                    \
#f, caps, f      \
    }

#endif
