/* bash: the persistent shell where the sandbox can hold a process, else one shell for each command with its state in a file. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "tools/internal.h"
#include "tools/one-shot.h"
#include "tools/output.h"
#include "tools/result.h"
#include "tools/shell.h"

enum {
    ARG_COMMAND,
    ARG_RESTART,
    ARG_TIMEOUT,
    NOTE_MAX = 512,                /* bytes of the lines below the output */
    COMMAND_MAX = 4 * 1024 * 1024, /* bytes: as much as an answer of a model can carry */
};

static const char LOST[] = "the shell had to be ended: its folder, variables and background jobs are lost, the next "
                           "command starts in a new one";

static const char REPLACED[] =
    "\n[the shell had ended since the last command: this one ran in a new shell, without the folder, variables and "
    "background jobs of before]";

/* Output, then the lines that say how it ended, within the limit of a result. */
static mg_rc finish(struct mg_tool_call *c, const struct mg_output *out, bool is_error, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static mg_rc finish(struct mg_tool_call *c, const struct mg_output *out, bool is_error, const char *fmt, ...)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MG_TOOL_OUTPUT_MAX * 2);
    char note[NOTE_MAX];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(note, sizeof(note), fmt, ap);
    va_end(ap);
    if (mg_output_render(out, &text, MG_TOOL_OUTPUT_MAX - 2 * NOTE_MAX) < 0)
        return MG_EINTERNAL;
    if (text.len && n > 0)
        mg_buf_char(&text, '\n');
    mg_buf_str(&text, note);
    if (c->tools->shell_replaced)
        mg_buf_str(&text, REPLACED);
    c->tools->shell_replaced = false;
    return mg_tool_text(c->ret, is_error, mg_buf_view(&text));
}

/* Shells give 128 + n for a death by signal n; the same number can come from the program itself, so the text says both. */
static const char *signal_hint(int status, char hint[64])
{
    hint[0] = '\0';
    if (status > 128 && status < 128 + 65)
        (void)snprintf(hint, 64, " (128+%d: as after signal %d, SIG%s)", status - 128, status - 128,
                       sigabbrev_np(status - 128) ? sigabbrev_np(status - 128) : "?");
    return hint;
}

static mg_rc report_status(struct mg_tool_call *c, const struct mg_output *out, int status)
{
    char hint[64];

    if (status == 0)
        return finish(c, out, false, "%s", "");
    return finish(c, out, true, "exit %d%s", status, signal_hint(status, hint));
}

static mg_rc report(struct mg_tool_call *c, const struct mg_output *out, const struct mg_shell_end *end,
                    int64_t timeout_ms)
{
    char hint[64];

    switch (end->how) {
    case MG_SHELL_DONE:
        return report_status(c, out, end->status);
    case MG_SHELL_TIMEOUT:
        return finish(c, out, true, "timed out after %lld ms: what the command had started was ended; %s",
                      (long long)timeout_ms,
                      end->lost ? LOST : "the shell is kept with its folder, variables and background jobs");
    case MG_SHELL_EXITED:
        if (end->status < 0)
            return finish(c, out, true,
                          "the shell was killed before it said how the command ended (unknown status); "
                          "folder, variables and background jobs are lost, the next command starts in a new one");
        return finish(c, out, end->status != 0,
                      "exit %d%s\nthe command ended the shell itself (exit, exec or set -e): folder, variables and "
                      "background jobs are lost, "
                      "the next command starts in a new one",
                      end->status, signal_hint(end->status, hint));
    }
    return MG_EINTERNAL;
}

static void drop_shell(struct mg_tools *t)
{
    mg_shell_close(t->shell);
    t->shell = NULL;
}

/* Opens the shell if there is none. */
static mg_rc run_in_shell(struct mg_tool_call *c, struct mg_sv command, int64_t timeout_ms, struct mg_output *out,
                          struct mg_shell_end *end)
{
    struct mg_tools *t = c->tools;
    mg_rc rc = MG_OK;

    if (!t->shell)
        rc = mg_shell_open(t->ops, t->box, c->cancel, &t->shell, c->err);
    if (rc < 0)
        return rc;
    uint64_t deadline = mg_now_ns() + (uint64_t)timeout_ms * 1000000;
    rc = mg_shell_run(t->shell, command, deadline, c->cancel, out, end, c->err);
    if (end->lost || (rc < 0 && rc != MG_ECANCELED))
        drop_shell(t);
    return rc;
}

static mg_rc run_persistent(struct mg_tool_call *c, struct mg_sv command, int64_t timeout_ms)
{
    mg_auto(output) struct mg_output out;
    struct mg_shell_end end = {0};

    mg_output_init(&out, MG_TOOL_OUTPUT_MAX);
    mg_rc rc = run_in_shell(c, command, timeout_ms, &out, &end);
    if (rc == MG_OK && end.unsent) { /* killed from inside between two calls; nothing of this one has run */
        c->tools->shell_replaced = true;
        rc = run_in_shell(c, command, timeout_ms, &out, &end);
    }
    return rc == MG_OK ? report(c, &out, &end, timeout_ms) : mg_tool_failed(c->ret, rc, c->err, "bash", MG_SV(""));
}

static mg_rc report_one_shot(struct mg_tool_call *c, const struct mg_output *out, const struct mg_exec_status *st,
                             int64_t timeout_ms)
{
    if (st->timed_out)
        return finish(c, out, true,
                      "timed out after %lld ms: the command was ended; folder and variables are as they were before it",
                      (long long)timeout_ms);
    if (st->oom)
        return finish(c, out, true,
                      "the command was ended for want of memory; folder and variables are as they were before it");
    if (st->exited && !st->unknown)
        return report_status(c, out, st->exit_code);
    if (st->signal > 0)
        return finish(c, out, true, "the command's shell was ended by signal %d (SIG%s)", st->signal,
                      sigabbrev_np(st->signal) ? sigabbrev_np(st->signal) : "?");
    return finish(
        c, out, true,
        "unknown status: the sandbox did not say how the command ended. It may have run, in whole or in part; "
        "look before you run it again");
}

static mg_rc run_one_shot(struct mg_tool_call *c, struct mg_sv command, int64_t timeout_ms)
{
    mg_auto(output) struct mg_output out;
    struct mg_exec_status st = {0};

    mg_output_init(&out, MG_TOOL_OUTPUT_MAX);
    mg_rc rc =
        mg_one_shot_run(c->tools, command, mg_now_ns() + (uint64_t)timeout_ms * 1000000, c->cancel, &out, &st, c->err);
    return rc == MG_OK ? report_one_shot(c, &out, &st, timeout_ms)
                       : mg_tool_failed(c->ret, rc, c->err, "bash", MG_SV(""));
}

static mg_rc restart(struct mg_tool_call *c)
{
    drop_shell(c->tools);
    mg_one_shot_forget(c->tools);
    return mg_tool_text(
        c->ret, false,
        MG_SV("The shell was restarted: it starts in the working folder, without variables and background jobs."));
}

mg_rc mg_tool_bash(struct mg_tool_call *c)
{
    bool again = c->arg[ARG_RESTART] && c->arg[ARG_RESTART]->boolean;
    int64_t timeout_ms = 0;

    if (!c->arg[ARG_COMMAND])
        return again ? restart(c)
                     : mg_tool_text(c->ret, true, MG_SV("command is required (or restart: true, to get a new shell)"));
    struct mg_sv command = mg_json_str(c->arena, c->arg[ARG_COMMAND]);
    if (mg_sv_find(command, '\0') < command.len)
        return mg_tool_text(c->ret, true,
                            MG_SV("command contains a NUL character, which no shell can take: write the bytes to a "
                                  "file with printf '\\0'"));
    if (command.len > COMMAND_MAX)
        return mg_tool_textf(c->ret, true,
                             "command has %zu bytes, at most %d are allowed: write it to a file and run that",
                             command.len, COMMAND_MAX);
    if (again)
        (void)restart(c);
    if (c->arg[ARG_TIMEOUT])
        (void)mg_json_i64(c->arg[ARG_TIMEOUT], &timeout_ms);
    if (timeout_ms == 0)
        timeout_ms = MG_TOOL_DEFAULT_MS;
    return c->tools->ops->proc_open ? run_persistent(c, command, timeout_ms) : run_one_shot(c, command, timeout_ms);
}
