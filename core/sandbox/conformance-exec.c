#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/utf8.h"
#include "sandbox/conformance-internal.h"

/* Commands: what goes in, what comes out, how they end. */

enum {
    FLOOD = 100000000,      /* bytes of output */
    FLOOD_KEPT = 64 * 1024, /* of which the sink wants so many */
    FLOOD_MEMORY = 32768,   /* KiB by which this process may grow meanwhile; twice what a careless pipe would take */
    ROUNDS = 2000,          /* lines on each stream */
    ARG_BIG = 120000,       /* bytes of one argument: below the kernel's 131,072 */
    ARG_TOO_BIG = 200000,
    INPUT = 1 << 20,
};

static void exit_codes_0_to_255(struct cf *c)
{
    char script[64];
    for (int code = 0; code <= 255 && !c->failed; code++) {
        snprintf(script, sizeof(script), "exit %d", code);
        (void)cf_says(c, script, code, "");
    }
}

static void case_58_a_death_by_signal_is_no_exit_code(struct cf *c)
{
    static const int signals[] = {6, 9, 11, 13, 15};
    char script[64];
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        snprintf(script, sizeof(script), "ulimit -c 0; kill -%d $$", signals[i]);
        struct cf_exec x = {.script = script};
        cf_exec(c, &x);
        (void)cf_check(c,
                       x.status == MANGO_OK && x.r.signal == signals[i] && !x.r.exited && !x.r.timed_out &&
                           !x.r.cancelled && !x.r.unknown,
                       "death by signal %d: status %d, signal %d, exited %d, code %d", signals[i], (int)x.status,
                       (int)x.r.signal, x.r.exited, (int)x.r.exit_code);
        cf_exec_done(&x);
    }
    (void)cf_says(c, "sh -c 'kill -9 $$'; exit 137", 137, "");
}

static void arguments_arrive_unchanged(struct cf *c)
{
    static const char *const args[] = {"sh", "",  "a b",      "new\nline",        "qu'o\"te", "$HOME `id` \\",
                                       "-n", "*", "\303\251", "\360\237\245\255", NULL};
    struct cf_exec x = {.script = "for a in \"$@\"; do printf '[%s]' \"$a\"; done", .args = args};
    cf_exec(c, &x);
    (void)cf_check(c,
                   mg_sv_eqz(mg_buf_view(&x.out),
                             "[][a b][new\nline][qu'o\"te][$HOME `id` \\][-n][*][\303\251][\360\237\245\255]"),
                   "status %d, they came as '%.*s'", (int)x.status, (int)x.out.len, mg_buf_view(&x.out).ptr);
    cf_exec_done(&x);
}

/* Never cut in silence: it works, or it is refused by name. */
static void case_56_long_arguments_arrive_or_are_refused(struct cf *c)
{
    static const int sizes[] = {ARG_BIG, ARG_TOO_BIG};
    for (int i = 0; i < 2; i++) {
        char *big = malloc((size_t)sizes[i] + 1), want[16];
        if (!big)
            abort();
        memset(big, 'x', (size_t)sizes[i]);
        big[sizes[i]] = '\0';
        const char *const args[] = {"sh", big, NULL};
        struct cf_exec x = {.script = "echo ${#1}", .args = args};
        cf_exec(c, &x);
        snprintf(want, sizeof(want), "%d\n", sizes[i]);
        bool arrived = x.status == MANGO_OK && x.r.exited && mg_sv_eqz(mg_buf_view(&x.out), want);
        bool refused = x.status < 0 && x.error.text[0];
        (void)cf_check(c, arrived || (refused && i == 1), "an argument of %d bytes: status %d, %s", sizes[i],
                       (int)x.status, x.error.text[0] ? x.error.text : "it was cut, or the refusal gives no reason");
        cf_exec_done(&x);
        free(big);
    }
}

static void folder_and_variables(struct cf *c)
{
    char absolute[CF_REF_MAX + 8];
    snprintf(absolute, sizeof(absolute), "%s/sub", c->root.ptr);
    (void)cf_says(c, "mkdir sub", 0, "");
    const char *const folders[] = {"", "sub", absolute};
    const char *const ends[] = {"", "/sub\n", "/sub\n"};
    for (int i = 0; i < 3; i++) {
        struct cf_exec x = {.script = "echo \"$V\" >&2; pwd", .cwd = folders[i], .env = "V=a b\nc='\"$X"};
        cf_exec(c, &x);
        bool there = i == 0 ? mg_sv_starts(mg_buf_view(&x.out), c->root.ptr) : mg_sv_ends(mg_buf_view(&x.out), ends[i]);
        (void)cf_check(c, x.status == MANGO_OK && there, "folder '%s': status %d, it ran in %.*s", folders[i],
                       (int)x.status, (int)x.out.len, mg_buf_view(&x.out).ptr);
        if (!mg_plugin_can(c->p, MANGO_TRAIT_NO_STREAMS))
            (void)cf_check(c, mg_sv_eqz(mg_buf_view(&x.err), "a b\nc='\"$X\n"), "the variable came as '%.*s'",
                           (int)x.err.len, mg_buf_view(&x.err).ptr);
        cf_exec_done(&x);
    }
    struct cf_exec out = {.script = "pwd", .cwd = "../"};
    cf_exec(c, &out);
    (void)cf_check(c, out.status < 0, "a folder outside of the root was accepted");
    cf_exec_done(&out);
}

static int32_t swallow(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)ctx, (void)stream, (void)p, (void)n;
    return 0;
}

static void a_command_that_is_not_there(struct cf *c)
{
    struct mg_err err;
    struct mango_sv argv[] = {{"/no/such/program", 16}};
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    struct mango_exec_req req = {.struct_size = sizeof(req), .argv = argv, .n_argv = 1, .sink = swallow};
    mango_status s = c->p->sandbox->exec(c->p->ctx, &call, cf_id(c), &req, &r);
    bool told = s == MANGO_OK && r.exited && (r.exit_code == 127 || r.exit_code == 126);
    (void)cf_check(c, told || s == MANGO_ENOENT, "status %d, exited %d, code %d; wanted 127, or MANGO_ENOENT", (int)s,
                   r.exited, (int)r.exit_code);
}

/* ---- output ---- */

static void both_streams_and_their_bytes(struct cf *c)
{
    struct cf_exec x = {.script = "printf 'out\\377\\000\\303'; printf 'err\\200' >&2"};
    cf_exec(c, &x);
    if (mg_plugin_can(c->p, MANGO_TRAIT_NO_STREAMS)) {
        (void)cf_check(c, x.out.len == 10, "of 10 bytes on one stream there came %zu", x.out.len);
    } else {
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&x.out), MG_SV("out\377\0\303")), "standard output is not byte-exact");
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&x.err), MG_SV("err\200")), "standard error is not byte-exact");
        (void)cf_check(c, x.r.stdout_bytes == 6 && x.r.stderr_bytes == 4, "%llu and %llu bytes were counted",
                       (unsigned long long)x.r.stdout_bytes, (unsigned long long)x.r.stderr_bytes);
    }
    cf_exec_done(&x);
}

static void interleaved_streams_keep_their_order(struct cf *c)
{
    struct cf_exec x = {.script = "i=0; while [ $i -lt 2000 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done"};
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(CF_OUTPUT_MAX);
    mg_auto(buf) struct mg_buf err = MG_BUF_INIT(CF_OUTPUT_MAX);
    for (int i = 0; i < ROUNDS; i++) {
        (void)mg_buf_printf(&out, "o%d\n", i);
        (void)mg_buf_printf(&err, "e%d\n", i);
    }
    cf_exec(c, &x);
    if (mg_plugin_can(c->p, MANGO_TRAIT_NO_STREAMS)) {
        (void)cf_check(c, x.out.len + x.err.len == out.len + err.len, "%zu bytes of %zu came", x.out.len + x.err.len,
                       out.len + err.len);
    } else {
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&x.out), mg_buf_view(&out)), "standard output is another");
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&x.err), mg_buf_view(&err)), "standard error is another");
    }
    cf_exec_done(&x);
}

static void case_67_no_piece_cuts_a_character(struct cf *c)
{
    /* 49,152 characters of three bytes, one byte behind the beginning: no buffer's size fits. */
    struct cf_exec x = {.script = "s=$(printf '\\342\\202\\254'); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do"
                                  " s=$s$s; done; printf 'x%s%s%s' $s $s $s"};
    cf_exec(c, &x);
    (void)cf_check(c, x.out.len == 3 * 3 * 16384 + 1 && !x.cut, "%zu bytes, cut inside of a character: %d", x.out.len,
                   x.cut);
    cf_exec_done(&x);
    for (unsigned bound = 4; bound <= 9; bound++) {
        struct cf_exec y = {.script = "for i in 1 2 3 4 5; do printf '\\342\\202\\254'; done", .max_output = bound};
        cf_exec(c, &y);
        (void)cf_check(c, y.out.len <= bound && y.out.len + 3 > bound && mg_utf8_valid(mg_buf_view(&y.out), NULL),
                       "with a bound of %u bytes %zu came", bound, y.out.len);
        cf_exec_done(&y);
    }
}

/* KiB; 0: not measured, a sanitizer's memory tells nothing. */
static long peak_kib(bool reset)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#endif
    char line[256];
    long kib = 0;
    int fd = reset ? open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)!write(fd, "5", 1);
        (void)close(fd);
    }
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) /* NOLINT(cert-err34-c): the kernel writes it */
            break;
    }
    if (f)
        (void)fclose(f);
    return kib;
}

static void case_66_a_flood_is_bounded_and_drained(struct cf *c)
{
    struct cf_exec x = {.script = "head -c 100000000 /dev/zero | tr '\\0' x;"
                                  " head -c 1000000 /dev/zero | tr '\\0' y >&2; exit 3",
                        .max_output = FLOOD_KEPT};
    long before = peak_kib(true);
    cf_exec(c, &x);
    long grown = peak_kib(false) - before;
    (void)cf_check(c, x.status == MANGO_OK && x.r.exited && x.r.exit_code == 3, "status %d, code %d, wanted 3: %s",
                   (int)x.status, (int)x.r.exit_code, x.error.text);
    (void)cf_check(c, x.out.len == FLOOD_KEPT, "the sink got %zu bytes of output, wanted %d", x.out.len, FLOOD_KEPT);
    if (!mg_plugin_can(c->p, MANGO_TRAIT_NO_STREAMS))
        (void)cf_check(c, x.err.len == FLOOD_KEPT && x.r.stdout_bytes == FLOOD,
                       "the sink got %zu bytes of errors, wanted %d; %llu bytes of output were counted, wanted %d",
                       x.err.len, FLOOD_KEPT, (unsigned long long)x.r.stdout_bytes, FLOOD);
    (void)cf_check(c, grown <= FLOOD_MEMORY, "this process grew by %ld KiB", grown);
    cf_exec_done(&x);
    (void)cf_says(c, "echo next", 0, "next\n");
}

/* ---- input ---- */

struct input {
    uint64_t at, size;
};

static int64_t give_input(void *ctx, char *p, uint64_t n)
{
    struct input *in = ctx;
    uint64_t take = in->size - in->at < n ? in->size - in->at : n;
    for (uint64_t i = 0; i < take; i++)
        p[i] = (char)((in->at + i) * 7 >> 2);
    in->at += take;
    return (int64_t)take;
}

static void stdin_arrives_unchanged(struct cf *c)
{
    struct input all = {.size = INPUT}, again = {.size = INPUT};
    char *in = malloc(INPUT);
    if (!in)
        abort();
    (void)give_input(&all, in, INPUT);
    struct cf_exec whole = {.script = "cat", .in = {in, INPUT}};
    cf_exec(c, &whole);
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&whole.out), whole.in), "1 MiB of input came back as %zu bytes or others",
                   whole.out.len);
    cf_exec_done(&whole);
    struct cf_exec streamed = {.script = "cat", .source = give_input, .source_ctx = &again};
    cf_exec(c, &streamed);
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&streamed.out), mg_sv_n(in, INPUT)),
                   "1 MiB of streamed input: status %d, it came back as %zu bytes or others", (int)streamed.status,
                   streamed.out.len);
    cf_exec_done(&streamed);
    struct cf_exec unread = {.script = "exit 6", .in = {in, INPUT}};
    cf_exec(c, &unread);
    (void)cf_check(c, unread.status == MANGO_OK && unread.r.exit_code == 6,
                   "a command that does not read its input: status %d", (int)unread.status);
    cf_exec_done(&unread);
    free(in);
    (void)cf_says(c, "cat; read x; echo \"[$x]\"", 0, "[]\n");
}

static void case_69_a_command_has_three_descriptors(struct cf *c)
{
    (void)cf_says(c, "ls /proc/$$/fd; true", 0, "0\n1\n2\n");
}

const struct cf_case cf_exec_cases[] = {
    CF_CASE(0, exit_codes_0_to_255),
    CF_CASE(0, case_58_a_death_by_signal_is_no_exit_code),
    CF_CASE(0, arguments_arrive_unchanged),
    CF_CASE(0, case_56_long_arguments_arrive_or_are_refused),
    CF_CASE(0, folder_and_variables),
    CF_CASE(0, a_command_that_is_not_there),
    CF_CASE(0, both_streams_and_their_bytes),
    CF_CASE(0, interleaved_streams_keep_their_order),
    CF_CASE(0, case_67_no_piece_cuts_a_character),
    CF_CASE(0, case_66_a_flood_is_bounded_and_drained),
    CF_CASE(0, stdin_arrives_unchanged),
    CF_CASE(0, case_69_a_command_has_three_descriptors),
    {NULL, 0, NULL},
};
