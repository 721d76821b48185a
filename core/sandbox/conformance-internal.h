/* Shared by the files of the conformance suite only. */
#ifndef MG_SANDBOX_CONFORMANCE_INTERNAL_H
#define MG_SANDBOX_CONFORMANCE_INTERNAL_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "plugin/plugin.h"
#include "sandbox/conformance.h"

enum {
    CF_TEXT_MAX = 16 * 1024,
    CF_OUTPUT_MAX = 16 * 1024 * 1024, /* bytes of one command's output that a case keeps */
    CF_CALL_MS = 120000,
    CF_LABEL_LEN = 33,
};

/* One run. Single-threaded but for what a case starts itself. */
struct cf {
    const struct mg_conformance_opts *opts;
    struct mg_plugin *p;
    char label[CF_LABEL_LEN], other_label[CF_LABEL_LEN], owner[CF_LABEL_LEN];
    struct mg_buf id, root; /* of the present sandbox */
    struct mg_buf why;      /* lines about the present case's failure */
    bool failed;
};

/* Notes a failure of the present case; it goes on. Returns ok. */
bool cf_check(struct cf *c, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A command and what became of it. */
struct cf_exec {
    const char *script; /* for /bin/sh -c */
    struct mg_sv in;
    uint64_t limit_ms, max_output;
    struct mg_cancel *cancel;
    /* out */
    struct mango_exec_result r;
    struct mg_buf out, err;
    struct mg_err error;
    mango_status status;
    uint64_t ms;
};
void cf_exec(struct cf *c, struct cf_exec *x);
void cf_exec_done(struct cf_exec *x);
/* Runs the script and checks status, exit code and exact standard output. */
bool cf_says(struct cf *c, const char *script, int exit_code, const char *out);

mango_status cf_create(struct cf *c, struct mg_plugin *p, const char *label, struct mg_buf *id, struct mg_buf *root);
mango_status cf_attach(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id);
mango_status cf_destroy(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id);
mango_status cf_write(struct cf *c, struct mg_sv path, struct mg_sv content);
mango_status cf_read(struct cf *c, struct mg_sv path, uint64_t offset, uint64_t max, struct mg_buf *out, int32_t *eof);
/* The plugin closed and opened anew, as by a restart of the server, with the sandbox attached. */
bool cf_restart(struct cf *c);

struct cf_case {
    const char *name;
    uint64_t caps; /* run when all are set */
    void (*run)(struct cf *c);
};
extern const struct cf_case cf_core_cases[], cf_option_cases[]; /* end with name NULL */

#endif
