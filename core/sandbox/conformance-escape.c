#include "sandbox/conformance-internal.h"

/* No path and no link leads out of the root, and no special file holds a call. */

enum {
    RACE_MS = 1500,        /* for reads and writes against a shell that swaps a folder and a link */
    SPECIAL_MS = 10000,    /* a refusal that waits for nothing, on a loaded machine */
    GROWING_MAX = 1 << 20, /* bytes asked of a file without an end */
};

/* A path that is known to be there: the compiler reads mg_sv_of as if it might not. */
static struct mg_sv path_of(const char *z)
{
    return mg_sv_n(z, strlen(z));
}

static void refused(struct cf *c, const char *path)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4096);
    struct mango_stat st;
    int32_t eof;
    (void)cf_check(c, cf_read(c, path_of(path), 0, 4000, &out, &eof) < 0 && out.len == 0, "read of %s succeeded", path);
    (void)cf_check(c, cf_write(c, path_of(path), MG_SV("x")) < 0, "write of %s succeeded", path);
    /* A link that leads out may be shown as what it is. */
    (void)cf_check(c, cf_stat(c, path_of(path), 0, &st) < 0 || st.kind == 'l', "stat of %s succeeded", path);
}

static void no_path_leads_out(struct cf *c)
{
    static const char *const paths[] = {"../escape",           "a/../../escape", "/etc/passwd", "/etc/../etc/passwd",
                                        "../../../etc/passwd", "./../escape",    "/",           "/proc/self/environ"};
    (void)cf_says(c, "mkdir a", 0, "");
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        refused(c, paths[i]);
}

static void case_70_no_link_leads_out(struct cf *c)
{
    static const char *const paths[] = {"link/passwd", "file",  "up/../../escape",
                                        "up/up/x",     "chain", "deep/one/passwd"};
    (void)cf_says(c,
                  "ln -s /etc link; ln -s /etc/passwd file; ln -s .. up; ln -s file middle; ln -s middle chain;"
                  " mkdir deep; ln -s ../../../../../../../../../etc deep/one; echo ok",
                  0, "ok\n");
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        refused(c, paths[i]);
    (void)cf_says(c, "mkdir here; echo in >here/f; ln -s here within; ln -s loop loop", 0, "");
    (void)cf_holds(c, "within/f", "in\n"); /* a link that stays inside is an ordinary path */
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
    int32_t eof;
    (void)cf_check(c, cf_read(c, MG_SV("loop"), 0, 10, &out, &eof) < 0, "a link to itself was read");
}

/* "swap" is a folder with a file "f" and, in turns, a link to a folder outside with a file of that name. */
static void case_70_links_planted_during_the_call(struct cf *c)
{
    static const char *const script =
        "o=/tmp/mango-$MARK; mkdir -p $o real && echo outside >$o/f && echo inside >real/f && ln -s $o link && "
        "mv real swap && echo $o >where || exit 1; (n=0; while [ ! -e stop ] && [ $n -lt 20000 ]; do "
        "mv swap real; mv link swap; mv swap link; mv real swap; n=$((n+1)); done; echo $n >rounds) "
        ">/dev/null 2>&1 & echo begun";
    if (!cf_says(c, script, 0, "begun\n"))
        return;
    unsigned in = 0, none = 0;
    for (uint64_t end = cf_in_ms(RACE_MS); mg_now_ns() < end && !c->failed;) {
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
        int32_t eof;
        bool got = cf_read(c, MG_SV("swap/f"), 0, 60, &out, &eof) == MANGO_OK;
        (void)cf_check(c, !got || !mg_sv_eqz(mg_buf_view(&out), "outside\n"), "a read came out through a link");
        (void)cf_write(c, MG_SV("swap/f"), MG_SV("inside\n"));
        (void)cf_write(c, MG_SV("swap/new"), MG_SV("new\n"));
        in += got;
        none += !got;
    }
    (void)cf_says(c,
                  "touch stop; n=0; while [ ! -e rounds ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done;"
                  " o=/tmp/mango-$MARK; echo $(ls $o) $(cat $o/f)",
                  0, "f outside\n");
    (void)cf_says(c, "rm -rf /tmp/mango-$MARK", 0, "");
    cf_note(c, "%u reads inside, %u refused", in, none);
}

static void case_71_special_files_are_refused_at_once(struct cf *c)
{
    static const char *const paths[] = {"fifo", "dir", "zero", "linked"};
    (void)cf_says(c, "mkfifo fifo && mkdir dir && ln -s /dev/zero zero && ln -s fifo linked && echo ok", 0, "ok\n");
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4096);
        int32_t eof;
        uint64_t start = mg_now_ns();
        (void)cf_check(c, cf_read(c, path_of(paths[i]), 0, 4000, &out, &eof) < 0, "read of %s succeeded", paths[i]);
        (void)cf_check(c, cf_write(c, path_of(paths[i]), MG_SV("x")) < 0, "write of %s succeeded", paths[i]);
        (void)cf_check(c, mg_now_ns() - start < SPECIAL_MS * UINT64_C(1000000), "%s took longer than %d ms", paths[i],
                       SPECIAL_MS);
    }
    (void)cf_says(c, "test -p fifo && test -d dir && test -L zero && echo still", 0, "still\n");
}

static void case_71_files_without_an_end_stop_at_the_limit(struct cf *c)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(GROWING_MAX + 4096);
    int32_t eof = 1;
    (void)cf_says(c,
                  "dd if=/dev/zero of=sparse bs=1 count=1 seek=1099511627775 2>/dev/null; (n=0; while [ ! -e stop ] && "
                  "[ $n -lt 3000 ]; do head -c 100000 /dev/zero >>growing; n=$((n+1)); done) >/dev/null 2>&1 & echo ok",
                  0, "ok\n");
    (void)cf_until(c, "test -s growing && echo yes", "yes\n");
    static const char *const paths[] = {"sparse", "growing"};
    for (int i = 0; i < 2; i++) {
        struct mango_stat st;
        mg_buf_reset(&out);
        if (i == 0 && (cf_stat(c, path_of(paths[i]), 0, &st) < 0 || st.size < GROWING_MAX))
            continue; /* a file system without files of that size */
        mango_status s = cf_read(c, path_of(paths[i]), 0, GROWING_MAX, &out, &eof);
        (void)cf_check(c, s == MANGO_OK && out.len <= GROWING_MAX, "%s: status %d, %zu bytes", paths[i], (int)s,
                       out.len);
    }
    (void)cf_says(c, "touch stop; rm -f sparse", 0, "");
}

const struct cf_case cf_escape_cases[] = {
    CF_CASE(0, no_path_leads_out),
    CF_CASE(0, case_70_no_link_leads_out),
    CF_CASE(0, case_70_links_planted_during_the_call),
    CF_CASE(0, case_71_special_files_are_refused_at_once),
    CF_CASE(0, case_71_files_without_an_end_stop_at_the_limit),
    {NULL, 0, NULL},
};
