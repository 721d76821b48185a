#include "tools/one-shot.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tools/shell.h"

enum {
    SCRIPT_MAX = 17 * 1024 * 1024 /* bytes: a command of 4 MiB, all of it quotes, and the frame */,
    FORGET_MS = 5000
};

static const char SHELL[] = "if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc; else exec sh; fi";

/* bash prints what it can read back; other shells have `set` and `export -p` for that, without functions. Read-only variables of the shell fail
 * to load, which nobody needs to see. */
static const char BEFORE[] =
    "exec 2>&1\n"
    "mango_state=${TMPDIR:-/tmp}/%s\n"
    "[ ! -f \"$mango_state\" ] || . \"$mango_state\" 2>/dev/null\n"
    "mango_save() {\n"
    "  if [ -n \"$BASH_VERSION\" ]; then declare -p | command sed 's/^declare -\\([^ ]*\\)r/declare -\\1/'; declare "
    "-f\n"
    "  else set; export -p; fi\n"
    "  command printf 'cd -- \"$PWD\"\\n'\n"
    "}\n"
    "trap 'mango_rc=$?; set +aeuxvn; (umask 077; mango_save >\"$mango_state\" 2>/dev/null); exit $mango_rc' EXIT\n"
    "command eval ";
static const char AFTER[] = " </dev/null 1>&2 2>&1\nexit $?\n";

static bool to_output(void *ctx, int stream, const char *p, size_t n)
{
    (void)stream;
    mg_output_feed(ctx, p, n);
    return true;
}

mg_rc mg_one_shot_run(struct mg_tools *t, struct mg_sv command, uint64_t deadline_ns, struct mg_cancel *cancel,
                      struct mg_output *out, struct mg_exec_status *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf script = MG_BUF_INIT(SCRIPT_MAX);
    static const char *const ARGV[] = {"/bin/sh", "-c", SHELL, NULL}, *const ENV[] = {"TERM=dumb", NULL};

    if (!t->state_name[0])
        (void)snprintf(t->state_name, sizeof(t->state_name), ".mango-%016llx", (unsigned long long)mg_rng_u64());
    mg_buf_printf(&script, BEFORE, t->state_name);
    mg_shell_quote(&script, command);
    mg_buf_str(&script, AFTER);
    if (!mg_buf_ok(&script))
        return mg_err_set(err, MG_ETOOBIG, "the command has more than %d bytes: write it to a file and run that",
                          SCRIPT_MAX);
    struct mg_exec_req req = {.argv = ARGV,
                              .env = ENV,
                              .stdin_data = mg_buf_view(&script),
                              .deadline_ns = deadline_ns,
                              .cancel = cancel,
                              .sink = to_output,
                              .sink_ctx = out};
    return t->ops->exec(t->box, &req, ret, err);
}

void mg_one_shot_forget(struct mg_tools *t)
{
    if (!t->state_name[0])
        return;
    const char *argv[] = {"/bin/sh", "-c", "rm -f -- \"${TMPDIR:-/tmp}/$1\"", "mango-forget", t->state_name, NULL};
    struct mg_exec_status st = {0};
    struct mg_exec_req req = {.argv = argv, .deadline_ns = mg_now_ns() + (uint64_t)FORGET_MS * 1000000};
    (void)t->ops->exec(t->box, &req, &st, NULL);
    t->state_name[0] = '\0';
}
