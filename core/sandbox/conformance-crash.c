#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/conformance-internal.h"

/* Other processes of this program as further clients of the service: several that create at once, and one that is
 * killed in the middle of each operation. What they say on standard output: "ready", then, told to go by the end of
 * their input, "begun" when the operation is under way, and "done STATUS ID". */

enum {
    CHILD_ARGS_MAX = 16, /* arguments before the three of ours */
    LINE_MAX_LEN = CF_REF_MAX + 64,
    START_MS = 60000, /* for another process to have loaded the plugin */
    RACERS = 4,
    CONTENT = 512 * 1024, /* bytes of a file that is written again and again: several turns of any loop */
    FILES = 200,          /* in a workspace that is being destroyed */
    VARIABLES_MAX = 1024, /* of this process that another one gets */
};

static const unsigned delays_us[] = {0, 500, 3000, 20000}; /* from the begin of an operation to the kill */
enum { N_DELAYS = sizeof(delays_us) / sizeof(delays_us[0]) };

/* ---- the parent's side ---- */

struct kid {
    pid_t pid;
    int in, out; /* -1: none */
    char line[LINE_MAX_LEN];
};

/* As the server's own secrets would stand in its environment. */
static const char canary[] = "MANGO_CONFORMANCE_CANARY=x";

static void fill_env(const char *env[VARIABLES_MAX + 2])
{
    int n = 0;
    for (; n < VARIABLES_MAX && environ[n]; n++)
        env[n] = environ[n];
    env[n] = canary;
    env[n + 1] = NULL;
}

static bool spawn_kid(struct cf *c, const char *op, const char *label, struct mg_sv id, struct kid *ret)
{
    const char *argv[CHILD_ARGS_MAX + 4], *env[VARIABLES_MAX + 2];
    char labels[2 * CF_LABEL_LEN], id_z[CF_REF_MAX + 1];
    int in[2], out[2], n = 0;
    for (; n < CHILD_ARGS_MAX && c->opts->child[n]; n++)
        argv[n] = c->opts->child[n];
    snprintf(labels, sizeof(labels), "%s%s", label, c->owner);
    snprintf(id_z, sizeof(id_z), "%.*s", (int)id.len, id.ptr);
    argv[n] = op;
    argv[n + 1] = labels;
    argv[n + 2] = id_z;
    argv[n + 3] = NULL;
    fill_env(env);
    *ret = (struct kid){.in = -1, .out = -1};
    if (pipe2(in, O_CLOEXEC) < 0)
        return cf_check(c, false, "pipe: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) < 0) {
        (void)close(in[0]);
        (void)close(in[1]);
        return cf_check(c, false, "pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&fa, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int e = posix_spawn(&ret->pid, argv[0], &fa, NULL, (char *const *)argv, (char *const *)env);
    posix_spawn_file_actions_destroy(&fa);
    (void)close(in[0]);
    (void)close(out[1]);
    ret->in = in[1];
    ret->out = out[0];
    return cf_check(c, e == 0, "another process could not be started: %s", strerror(e));
}

/* Reads the next line, without its end; false at the end of the output, or when none comes in time. */
static bool kid_line(struct kid *k)
{
    uint64_t end = cf_in_ms(START_MS);
    for (size_t n = 0; n < sizeof(k->line) - 1;) {
        struct pollfd p = {.fd = k->out, .events = POLLIN};
        uint64_t now = mg_now_ns();
        if (now >= end || poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0 || read(k->out, k->line + n, 1) != 1)
            return false;
        if (k->line[n] == '\n') {
            k->line[n] = '\0';
            return true;
        }
        n++;
    }
    return false;
}

static void kid_go(struct kid *k)
{
    if (k->in >= 0)
        (void)close(k->in);
    k->in = -1;
}

static void kid_end(struct kid *k, bool by_force)
{
    kid_go(k);
    if (by_force && k->pid > 0)
        (void)kill(k->pid, SIGKILL);
    while (k->pid > 0 && waitpid(k->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    if (k->out >= 0)
        (void)close(k->out);
    *k = (struct kid){.in = -1, .out = -1};
}

static bool no_child(struct cf *c)
{
    if (c->opts->child)
        return false;
    cf_skip(c, "this program cannot start a second one of itself");
    return true;
}

/* Starts the operation in another process and kills that in the middle of it. */
static bool kill_in(struct cf *c, const char *op, const char *label, struct mg_sv id, unsigned delay_us)
{
    struct kid k;
    bool ok = spawn_kid(c, op, label, id, &k) &&
              cf_check(c, kid_line(&k) && strcmp(k.line, "ready") == 0, "the other process did not start: %s", k.line);
    kid_go(&k);
    ok = ok && cf_check(c, kid_line(&k) && strcmp(k.line, "begun") == 0, "%s did not begin: %s", op, k.line);
    if (ok && delay_us)
        (void)usleep(delay_us);
    kid_end(&k, true);
    return ok;
}

/* ---- cases ---- */

static void several_clients_at_once_make_one_sandbox(struct cf *c)
{
    struct kid k[RACERS];
    char id[CF_REF_MAX + 1] = "";
    if (no_child(c))
        return;
    for (int i = 0; i < RACERS; i++)
        (void)spawn_kid(c, "create", c->other_label, mg_sv_n("", 0), &k[i]);
    for (int i = 0; i < RACERS; i++)
        (void)cf_check(c, kid_line(&k[i]), "client %d did not start", i);
    for (int i = 0; i < RACERS; i++)
        kid_go(&k[i]);
    for (int i = 0; i < RACERS; i++) {
        int status = MANGO_EINTERNAL, at = 0;
        bool told = kid_line(&k[i]); /* "begun" */
        told = told && kid_line(&k[i]);
        told = told && sscanf(k[i].line, "done %d %n", &status, &at) >= 1; /* NOLINT(cert-err34-c): our own line */
        (void)cf_check(c, told && status == MANGO_OK, "client %d: %s", i, k[i].line);
        if (i == 0 && told)
            snprintf(id, sizeof(id), "%.1024s", k[i].line + at);
        (void)cf_check(c, told && strcmp(k[i].line + at, id) == 0, "client %d got another sandbox", i);
        kid_end(&k[i], false);
    }
    c->second = true; /* destroyed by its label at the end */
    (void)cf_check(c, cf_attach(c, c->p, c->other_label, mg_sv_of(id)) == MANGO_OK, "attach from here failed");
    (void)cf_check(c, cf_destroy(c, c->p, c->other_label, mg_sv_of(id)) == MANGO_OK, "destroy failed");
    mango_status s = cf_attach(c, c->p, c->other_label, mg_sv_of(id));
    (void)cf_check(c, s == MANGO_EGONE, "after destroy one was left: status %d", (int)s);
}

static void a_kill_in_create_leaves_at_most_one(struct cf *c)
{
    if (no_child(c))
        return;
    for (int i = 0; i < N_DELAYS && !c->failed; i++) {
        char label[CF_LABEL_LEN];
        mg_auto(buf) struct mg_buf id = MG_BUF_INIT(CF_REF_MAX);
        mg_auto(buf) struct mg_buf root = MG_BUF_INIT(CF_REF_MAX);
        cf_random_label(label);
        (void)kill_in(c, "create", label, mg_sv_n("", 0), delays_us[i]);
        mango_status s = cf_create(c, c->p, label, &id, &root);
        (void)cf_check(c, s == MANGO_OK, "create after the kill: status %d", (int)s);
        s = cf_destroy(c, c->p, label, mg_sv_n("", 0));
        (void)cf_check(c, s == MANGO_OK, "destroy by the label: status %d", (int)s);
        s = cf_attach(c, c->p, label, mg_buf_view(&id));
        (void)cf_check(c, s == MANGO_EGONE, "something was left: status %d", (int)s);
    }
}

/* A file as it was left, a workspace that works, nothing half-made in it. */
static void whole_after(struct cf *c, const char *op)
{
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    if (!cf_check(c, s == MANGO_OK, "attach after a kill in %s: status %d", op, (int)s))
        return;
    (void)cf_holds(c, "kept", "as it was\n");
    (void)cf_says(c, "echo works; ls -A | grep -v -e '^.mango' -e '^kept$' -e '^big$' -e '^begun$'; true", 0,
                  "works\n");
    (void)cf_check(c, cf_write(c, MG_SV("kept"), MG_SV("as it was\n")) == MANGO_OK, "write after a kill in %s failed",
                   op);
}

/* big is one content from end to end, never a mixture and never a part. */
static void one_content(struct cf *c)
{
    char *all = mg_xmalloc(CONTENT + 2);
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(CONTENT + 2);
    int32_t eof = 0;
    mango_status s = cf_read(c, MG_SV("big"), 0, CONTENT + 1, &out, &eof);
    if (cf_check(c, s == MANGO_OK && out.len == CONTENT, "the file has %zu bytes of %d: status %d", out.len, CONTENT,
                 (int)s)) {
        memset(all, out.ptr[0], CONTENT);
        (void)cf_check(c, memcmp(all, out.ptr, CONTENT) == 0, "the file is half of one content and half of another");
    }
    free(all);
}

static void a_kill_in_each_operation_leaves_the_workspace_whole(struct cf *c)
{
    static const char *const ops[] = {"attach", "exec", "read", "write", "write", "write"};
    mg_auto(buf) struct mg_buf big = MG_BUF_INIT(CONTENT + 1);
    if (no_child(c))
        return;
    for (int i = 0; i < CONTENT; i++)
        (void)mg_buf_char(&big, 'o');
    (void)cf_check(c, cf_write(c, MG_SV("kept"), MG_SV("as it was\n")) == MANGO_OK, "write failed");
    (void)cf_check(c, cf_write(c, MG_SV("big"), mg_buf_view(&big)) == MANGO_OK, "write failed");
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && !c->failed; i++) {
        cf_detach(c, mg_buf_view(&c->id)); /* one server at a time has it */
        (void)kill_in(c, ops[i], c->label, mg_buf_view(&c->id), delays_us[i % N_DELAYS]);
        whole_after(c, ops[i]);
        one_content(c);
    }
}

static void a_kill_in_destroy_is_finished_by_the_next(struct cf *c)
{
    if (no_child(c))
        return;
    for (int i = 0; i < N_DELAYS && !c->failed; i++) {
        char script[96];
        snprintf(script, sizeof(script), "i=0; while [ $i -lt %d ]; do echo $i >f$i; i=$((i+1)); done", FILES);
        (void)cf_says(c, script, 0, "");
        cf_detach(c, mg_buf_view(&c->id));
        (void)kill_in(c, "destroy", c->label, mg_buf_view(&c->id), delays_us[i]);
        mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
        (void)cf_check(c, s == MANGO_OK || s == MANGO_EGONE, "attach to what is half destroyed: status %d", (int)s);
        (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "the next destroy failed");
        s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
        (void)cf_check(c, s == MANGO_EGONE, "attach after both: status %d, wanted MANGO_EGONE", (int)s);
        mg_buf_reset(&c->id);
        mg_buf_reset(&c->root);
        (void)cf_check(c, cf_create(c, c->p, c->label, &c->id, &c->root) == MANGO_OK, "the next create failed");
        (void)cf_says(c, "ls", 0, "");
    }
}

/* The other process has a variable that no command may find, by whatever way. */
static void case_69_no_variable_of_the_server_leaks(struct cf *c)
{
    struct kid k;
    if (no_child(c))
        return;
    cf_detach(c, mg_buf_view(&c->id));
    if (spawn_kid(c, "leak", c->label, mg_buf_view(&c->id), &k)) {
        (void)cf_check(c, kid_line(&k), "the other process did not start");
        kid_go(&k);
        (void)cf_check(c, kid_line(&k) && strncmp(k.line, "done 0 ", 7) == 0, "a command sees the variable: %s",
                       k.line);
    }
    kid_end(&k, false);
    (void)cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
}

const struct cf_case cf_crash_cases[] = {
    CF_CASE(0, case_69_no_variable_of_the_server_leaks),
    CF_CASE(0, several_clients_at_once_make_one_sandbox),
    CF_CASE(0, a_kill_in_create_leaves_at_most_one),
    CF_CASE(0, a_kill_in_each_operation_leaves_the_workspace_whole),
    CF_CASE(0, a_kill_in_destroy_is_finished_by_the_next),
    {NULL, 0, NULL},
};

/* ---- the other process ---- */

static void say(const char *text)
{
    (void)printf("%s\n", text);
    (void)fflush(stdout);
}

static int32_t on_first_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    bool *said = ctx;
    (void)stream, (void)p, (void)n;
    if (!*said)
        say("begun");
    *said = true;
    return 0;
}

static mango_status child_create(struct cf *c)
{
    say("begun");
    return cf_create(c, c->p, c->label, &c->id, &c->root);
}

static mango_status child_destroy(struct cf *c)
{
    say("begun");
    return cf_destroy(c, c->p, c->label, mg_buf_view(&c->id));
}

static mango_status child_attach(struct cf *c)
{
    say("begun");
    for (;;) {
        mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
        if (s < 0)
            return s;
        cf_detach(c, mg_buf_view(&c->id));
    }
}

static mango_status child_exec(struct cf *c)
{
    struct mg_err err;
    bool said = false;
    static const char script[] = "echo begun | tee begun; sleep 60";
    struct mango_sv argv[] = {{"/bin/sh", 7}, {"-c", 2}, {script, sizeof(script) - 1}};
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    struct mango_exec_req req = {.struct_size = sizeof(req),
                                 .argv = argv,
                                 .n_argv = 3,
                                 .sink = on_first_output,
                                 .sink_ctx = &said,
                                 .limit_ns = cf_in_ms(CF_CALL_MS)};
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    if (mg_plugin_can(c->p, MANGO_TRAIT_TEXT_OUTPUT)) /* its output may come at the end alone */
        (void)on_first_output(&said, 1, NULL, 0);
    return s < 0 ? s : c->p->sandbox->exec(c->p->ctx, &call, cf_id(c), &req, &r);
}

static mango_status child_leak(struct cf *c)
{
    char script[512];
    /* What /proc shows of the server itself is the server's to clean (core/conf/hide.c), not the plugin's. */
    snprintf(script, sizeof(script),
             "{ env; set; [ $PPID = %d ] || tr '\\0' '\\n' <\"/proc/$PPID/environ\"; tr '\\0' '\\n' "
             "</proc/1/environ; } 2>/dev/null | grep -c 'CONFORMANCE[_]CANARY'; true",
             (int)getpid());
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    if (s < 0)
        return s;
    return cf_says(c, script, 0, "0\n") ? MANGO_OK : MANGO_EDENIED;
}

static mango_status child_read(struct cf *c)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(CONTENT + 2);
    int32_t eof;
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    say("begun");
    while (s == MANGO_OK) {
        mg_buf_reset(&out);
        s = cf_read(c, MG_SV("big"), 0, CONTENT, &out, &eof);
    }
    return s;
}

static mango_status child_write(struct cf *c)
{
    char *content = mg_xmalloc(CONTENT);
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    say("begun");
    for (int i = 0; s == MANGO_OK; i++) {
        memset(content, 'a' + i % 26, CONTENT);
        s = cf_write(c, MG_SV("big"), mg_sv_n(content, CONTENT));
    }
    free(content);
    return s;
}

static const struct {
    const char *name;
    mango_status (*run)(struct cf *c);
} child_ops[] = {
    {"create", child_create}, {"attach", child_attach},   {"exec", child_exec}, {"read", child_read},
    {"write", child_write},   {"destroy", child_destroy}, {"leak", child_leak},
};

static void wait_for_go(void)
{
    char byte;
    say("ready");
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

int mg_conformance_child(const struct mg_conformance_opts *opts, const char *op, const char *labels, const char *id)
{
    struct cf c = {.opts = opts,
                   .why = MG_BUF_INIT(CF_TEXT_MAX),
                   .notes = MG_BUF_INIT(CF_TEXT_MAX),
                   .id = MG_BUF_INIT(CF_REF_MAX),
                   .root = MG_BUF_INIT(CF_REF_MAX)};
    struct mg_err err = {0};
    mango_status s = MANGO_EINVALID;
    if (strlen(labels) != 2 * (CF_LABEL_LEN - 1) || cf_open_plugin(&c, &err) < 0)
        return 1;
    memcpy(c.label, labels, CF_LABEL_LEN - 1);
    memcpy(c.owner, labels + CF_LABEL_LEN - 1, CF_LABEL_LEN - 1);
    (void)mg_buf_str(&c.id, id);
    wait_for_go();
    for (size_t i = 0; i < sizeof(child_ops) / sizeof(child_ops[0]); i++) {
        if (strcmp(op, child_ops[i].name) == 0)
            s = child_ops[i].run(&c);
    }
    (void)printf("done %d %s\n", (int)s, mg_buf_view(&c.id).ptr);
    (void)fflush(stdout);
    mg_plugin_close(c.p);
    mg_buf_done(&c.why);
    mg_buf_done(&c.notes);
    mg_buf_done(&c.id);
    mg_buf_done(&c.root);
    return s < 0 ? 1 : 0;
}
