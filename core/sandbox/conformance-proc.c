#include <pthread.h>
#include <stdlib.h>

#include "sandbox/conformance-internal.h"

/* Long-lived processes, terminals, and several calls on one sandbox at a time. */

enum {
    AT_A_TIME = 32,
    MEET_MS = 15000, /* for that many commands to have started: they wait for one another */
    SILENCE_MS = 200,
    HEAR_MS = 10000,
    ROWS = 33,
    COLS = 77,
};

struct hearing {
    struct mg_buf out;
    struct mango_exec_result r;
    int32_t closed;
};

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    struct hearing *h = ctx;
    return mg_buf_append(&h->out, p, n) == MG_OK ? 0 : 1;
}

static mango_proc open_shell(struct cf *c, const char *script, uint32_t flags)
{
    struct mg_err err;
    char mark[CF_MARK_LEN + sizeof("MARK=")];
    mango_proc proc = 0;
    struct mango_sv argv[] = {{"/bin/sh", 7}, {"-c", 2}, {script, strlen(script)}};
    snprintf(mark, sizeof(mark), "MARK=%s", c->mark);
    const struct mango_sv env[] = {{mark, strlen(mark)}};
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    struct mango_exec_req req = {
        .struct_size = sizeof(req), .flags = flags, .argv = argv, .n_argv = *script ? 3 : 1, .env = env, .n_env = 1};
    mango_status s = c->p->sandbox->proc_open(c->p->ctx, &call, cf_id(c), &req, &proc);
    (void)cf_check(c, s == MANGO_OK && proc != 0, "proc_open: status %d: %s", (int)s, err.text);
    return proc;
}

static mango_status listen_once(struct cf *c, mango_proc proc, uint64_t ms, struct hearing *h)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(ms), NULL, &err);
    h->r = (struct mango_exec_result){.struct_size = sizeof(h->r)};
    return c->p->sandbox->proc_read(c->p->ctx, &call, proc, on_output, h, &h->closed, &h->r);
}

/* Reads until the text has come, or the end. */
static bool hear(struct cf *c, mango_proc proc, const char *text)
{
    struct hearing h = {.out = MG_BUF_INIT(CF_OUTPUT_MAX)};
    bool found = false;
    while (!found && !h.closed && listen_once(c, proc, HEAR_MS, &h) == MANGO_OK)
        found = h.out.len > 0 && strstr(h.out.ptr, text) != NULL;
    (void)cf_check(c, found, "'%.40s' did not come; there came '%.*s'", text, (int)(h.out.len < 200 ? h.out.len : 200),
                   mg_buf_view(&h.out).ptr);
    mg_buf_done(&h.out);
    return found;
}

static bool tell(struct cf *c, mango_proc proc, struct mg_sv text)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(HEAR_MS), NULL, &err);
    mango_status s = c->p->sandbox->proc_write(c->p->ctx, &call, proc, cf_abi(text));
    return cf_check(c, s == MANGO_OK, "proc_write: status %d: %s", (int)s, err.text);
}

static void close_proc(struct cf *c, mango_proc proc)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    mango_status s = proc ? c->p->sandbox->proc_close(c->p->ctx, &call, proc) : MANGO_OK;
    (void)cf_check(c, s == MANGO_OK, "proc_close: status %d", (int)s);
}

static void a_process_keeps_its_state_until_it_is_closed(struct cf *c)
{
    struct hearing h = {.out = MG_BUF_INIT(1024)};
    mango_proc proc = open_shell(c, "", 0);
    if (!proc)
        return;
    (void)tell(c, proc, MG_SV("X=5; mkdir d; cd d\n"));
    (void)tell(c, proc, MG_SV("echo value-$X-${PWD##*/}\n"));
    (void)hear(c, proc, "value-5-d\n");
    mango_status s = listen_once(c, proc, SILENCE_MS, &h);
    (void)cf_check(c, s == MANGO_ETIMEOUT, "reading a silent process: status %d, wanted MANGO_ETIMEOUT", (int)s);
    mg_buf_done(&h.out);
    (void)tell(c, proc, MG_SV("sleep $MARK & echo started\n"));
    (void)hear(c, proc, "started\n");
    close_proc(c, proc);
    (void)cf_nothing_left(c);
}

static void a_process_tells_how_it_ended(struct cf *c)
{
    mango_proc proc = open_shell(c, "sleep $MARK & read x; echo \"got $x\"; exit 7", 0);
    struct hearing h = {.out = MG_BUF_INIT(1024)};
    if (!proc)
        return;
    (void)tell(c, proc, MG_SV("a line\n"));
    mango_status s = MANGO_OK;
    while (s == MANGO_OK && !h.closed)
        s = listen_once(c, proc, HEAR_MS, &h);
    (void)cf_check(c, h.closed && h.r.exited && h.r.exit_code == 7 && mg_sv_eqz(mg_buf_view(&h.out), "got a line\n"),
                   "status %d, closed %d, exited %d, code %d, output '%.*s'", (int)s, (int)h.closed, h.r.exited,
                   (int)h.r.exit_code, (int)h.out.len, mg_buf_view(&h.out).ptr);
    mg_buf_done(&h.out);
    close_proc(c, proc);
    (void)cf_nothing_left(c);
}

static void a_process_takes_any_bytes(struct cf *c)
{
    mango_proc proc = open_shell(c, "head -c 70000 | cksum", 0), same = open_shell(c, "echo other; read x", 0);
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(70001);
    if (!proc || !same)
        return;
    for (int i = 0; i < 70000; i++)
        (void)mg_buf_char(&in, (char)(i * 13));
    (void)tell(c, proc, mg_buf_view(&in));
    (void)hear(c, same, "other\n"); /* two at a time do not meet */
    (void)cf_check(c, cf_write(c, MG_SV("in"), mg_buf_view(&in)) == MANGO_OK, "write failed");
    struct cf_exec x = {.script = "cksum <in"};
    cf_exec(c, &x);
    if (cf_check(c, x.out.len > 0, "cksum printed nothing"))
        (void)hear(c, proc, x.out.ptr);
    cf_exec_done(&x);
    close_proc(c, proc);
    close_proc(c, same);
}

static void a_terminal_has_a_size(struct cf *c)
{
    struct mg_err err;
    mango_proc proc =
        open_shell(c, "test -t 0 && test -t 1 && echo terminal; read x; stty size; read x", MANGO_PROC_PTY);
    if (!proc)
        return;
    if (!hear(c, proc, "terminal")) {
        close_proc(c, proc);
        return;
    }
    struct mango_call call = mg_plugin_call(cf_in_ms(HEAR_MS), NULL, &err);
    mango_status s = c->p->sandbox->proc_resize(c->p->ctx, &call, proc, ROWS, COLS);
    (void)cf_check(c, s == MANGO_OK, "proc_resize: status %d: %s", (int)s, err.text);
    (void)tell(c, proc, MG_SV("\n"));
    (void)hear(c, proc, "33 77");
    close_proc(c, proc);
}

/* ---- concurrency ---- */

/* Ends only when all have started: a backend that runs one after the other does not get there. */
static const char meet[] = "mkdir -p met; : >met/$$; while :; do set -- met/*; [ $# -ge 32 ] && break;"
                           " sleep 0.1; done; echo $((6*7)); exit 5";

static void many_commands_at_a_time(struct cf *c)
{
    struct cf_beside w[AT_A_TIME];
    pthread_t t[AT_A_TIME];
    (void)cf_says(c, "mkdir met", 0, "");
    for (int i = 0; i < AT_A_TIME; i++) {
        w[i] = (struct cf_beside){.c = c, .x = {.script = meet, .limit_ms = MEET_MS}};
        cf_thread(&t[i], cf_exec_beside, &w[i]);
    }
    for (int i = 0; i < AT_A_TIME; i++) {
        struct cf_exec *x = &w[i].x;
        pthread_join(t[i], NULL);
        (void)cf_check(
            c, x->status == MANGO_OK && x->r.exited && x->r.exit_code == 5 && mg_sv_eqz(mg_buf_view(&x->out), "42\n"),
            "command %d of %d at a time: status %d, code %d, timed_out %d, '%.*s'", i, AT_A_TIME, (int)x->status,
            (int)x->r.exit_code, x->r.timed_out, (int)(x->out.len < 40 ? x->out.len : 40), mg_buf_view(&x->out).ptr);
        cf_exec_done(x);
    }
}

static void files_beside_a_command(struct cf *c)
{
    struct cf_beside w = {
        .c = c,
        .x = {.script = "echo begun >begun; while [ ! -e go ]; do sleep 0.1; done; cat go", .limit_ms = MEET_MS}};
    pthread_t t;
    struct mango_stat st;
    bool begun = false;
    cf_thread(&t, cf_exec_beside, &w);
    for (uint64_t end = cf_in_ms(MEET_MS / 2); !begun && mg_now_ns() < end;)
        begun = cf_stat(c, MG_SV("begun"), 0, &st) == MANGO_OK;
    (void)cf_check(c, begun, "the command's file is not seen while it runs");
    (void)cf_check(c, cf_write(c, MG_SV("go"), MG_SV("on\n")) == MANGO_OK, "write beside a command failed");
    (void)cf_holds(c, "go", "on\n");
    pthread_join(t, NULL);
    (void)cf_check(c, w.x.r.exited && mg_sv_eqz(mg_buf_view(&w.x.out), "on\n"),
                   "the command did not see the file: status %d, timed_out %d", (int)w.x.status, w.x.r.timed_out);
    cf_exec_done(&w.x);
}

const struct cf_case cf_proc_cases[] = {
    CF_CASE(MANGO_CAP_PROC, a_process_keeps_its_state_until_it_is_closed),
    CF_CASE(MANGO_CAP_PROC, a_process_tells_how_it_ended),
    CF_CASE(MANGO_CAP_PROC, a_process_takes_any_bytes),
    CF_CASE(MANGO_CAP_PTY, a_terminal_has_a_size),
    CF_CASE(MANGO_CAP_CONCURRENT_EXEC, many_commands_at_a_time),
    CF_CASE(MANGO_CAP_CONCURRENT_EXEC, files_beside_a_command),
    {NULL, 0, NULL},
};
