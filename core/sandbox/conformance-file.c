#include "sandbox/conformance-internal.h"

/* Files as the tools read and write them. */

enum {
    BIG = 64 * 1024 * 1024,
    NAME_LONGEST = 255, /* bytes of one name, on every file system that is used */
};

/* ---- content of any size, made and checked as it passes ---- */

struct content {
    uint64_t size, at, fail_at; /* fail_at > 0: the source gives up there */
    bool wrong;
};

static char byte_at(uint64_t i)
{
    return (char)(i * 31 >> 3 ^ i >> 14);
}

static int64_t give(void *ctx, char *p, uint64_t n)
{
    struct content *t = ctx;
    uint64_t take = t->size - t->at < n ? t->size - t->at : n;
    if (t->fail_at && t->at >= t->fail_at)
        return MANGO_EINTERNAL;
    for (uint64_t i = 0; i < take; i++)
        p[i] = byte_at(t->at + i);
    t->at += take;
    return (int64_t)take;
}

static int32_t take(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct content *t = ctx;
    (void)stream;
    for (uint64_t i = 0; i < n; i++)
        t->wrong |= p[i] != byte_at(t->at + i);
    t->at += n;
    return 0;
}

static void size_passes(struct cf *c, uint64_t size, int64_t told)
{
    struct content in = {.size = size}, out = {.size = size};
    char want[32];
    int32_t eof = 0;
    mango_status s = cf_write_from(c, MG_SV("deep/er/f"), give, &in, told);
    (void)cf_check(c, s == MANGO_OK, "write of %llu bytes: status %d", (unsigned long long)size, (int)s);
    snprintf(want, sizeof(want), "%llu\n", (unsigned long long)size);
    (void)cf_says(c, "wc -c <deep/er/f | tr -d ' '", 0, want);
    s = cf_read_to(c, MG_SV("deep/er/f"), 0, size + 1, take, &out, &eof);
    (void)cf_check(c, s == MANGO_OK && eof == 1 && out.at == size && !out.wrong,
                   "read of %llu bytes: status %d, end %d, %llu bytes came, other content: %d",
                   (unsigned long long)size, (int)s, (int)eof, (unsigned long long)out.at, out.wrong);
}

static void files_of_0_bytes_to_64_mib(struct cf *c)
{
    static const uint64_t sizes[] = {0, 1, 4096, 95 * 1024, 200 * 1024, 5 * 1024 * 1024, BIG};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_passes(c, sizes[i], (int64_t)sizes[i]);
        if (sizes[i] < BIG)
            size_passes(c, sizes[i], -1);
    }
}

static void whole_content_at_once(struct cf *c)
{
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(CF_OUTPUT_MAX);
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(CF_OUTPUT_MAX);
    int32_t eof = 0;
    for (size_t n = 0; n < CF_OUTPUT_MAX / 2; n++)
        (void)mg_buf_char(&in, byte_at(n));
    (void)cf_check(c, cf_write(c, MG_SV("f"), mg_buf_view(&in)) == MANGO_OK, "write of 8 MiB failed");
    (void)cf_check(c, cf_read(c, MG_SV("f"), 0, CF_OUTPUT_MAX - 1, &out, &eof) == MANGO_OK && eof == 1, "read failed");
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&in), mg_buf_view(&out)), "8 MiB came back as %zu bytes, or others",
                   out.len);
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("short")) == MANGO_OK, "a shorter content was refused");
    (void)cf_holds(c, "f", "short");
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("")) == MANGO_OK, "an empty content was refused");
    (void)cf_holds(c, "f", "");
}

static void ranges(struct cf *c)
{
    static const struct {
        uint64_t offset, max;
        const char *want;
        int eof; /* -1: either */
    } t[] = {{0, 4, "0123", 0}, {4, 3, "456", 0}, {4, 100, "456789", 1}, {4, 6, "456789", -1},
             {10, 5, "", 1},    {99, 5, "", 1},   {9, 2, "9", 1}};
    (void)cf_check(c, cf_write(c, MG_SV("ten"), MG_SV("0123456789")) == MANGO_OK, "write failed");
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
        int32_t eof = 0;
        mango_status s = cf_read(c, MG_SV("ten"), t[i].offset, t[i].max, &out, &eof);
        (void)cf_check(c, s == MANGO_OK && mg_sv_eqz(mg_buf_view(&out), t[i].want) && (t[i].eof < 0 || t[i].eof == eof),
                       "%llu bytes from %llu of a file of 10: status %d, end %d, '%.*s'", (unsigned long long)t[i].max,
                       (unsigned long long)t[i].offset, (int)s, (int)eof, (int)out.len, mg_buf_view(&out).ptr);
    }
}

/* ---- names ---- */

static const char *const names[] = {
    "a b",         "new\nline",      "tab\t",     "qu'o\"te", "back\\slash", "-rf",       "--help",
    "*",           "$(touch pwned)", "`id`",      ":12:",     "\303\251",    "e\314\201", "\360\237\245\255",
    "bad\377utf8", " leading",       "trailing ", "%s%n",
};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static void case_72_strange_names(struct cf *c)
{
    char text[16];
    for (int i = 0; i < N_NAMES; i++) {
        snprintf(text, sizeof(text), "%d", i);
        (void)cf_check(c, cf_write(c, mg_sv_of(names[i]), mg_sv_of(text)) == MANGO_OK, "write of name %d failed", i);
    }
    for (int i = 0; i < N_NAMES; i++) {
        struct mango_stat st;
        snprintf(text, sizeof(text), "%d", i);
        (void)cf_holds(c, names[i], text);
        mango_status s = cf_stat(c, mg_sv_of(names[i]), 0, &st);
        (void)cf_check(c, s == MANGO_OK && st.kind == 'f' && st.size == strlen(text), "stat of name %d: status %d", i,
                       (int)s);
        const char *const args[] = {"sh", names[i], NULL}; /* the same file as a command has it */
        struct cf_exec x = {.script = "cat \"./$1\"", .args = args};
        cf_exec(c, &x);
        (void)cf_check(c, mg_sv_eqz(mg_buf_view(&x.out), text), "a command finds '%.*s' under name %d", (int)x.out.len,
                       mg_buf_view(&x.out).ptr, i);
        cf_exec_done(&x);
    }
    snprintf(text, sizeof(text), "%d\n", N_NAMES);
    (void)cf_says(c, "n=0; for f in *; do n=$((n+1)); done; echo $n", 0, text);
}

static void the_longest_name_and_beyond(struct cf *c)
{
    char name[NAME_LONGEST + 2];
    memset(name, 'n', sizeof(name));
    name[NAME_LONGEST] = '\0';
    (void)cf_check(c, cf_write(c, mg_sv_of(name), MG_SV("x")) == MANGO_OK, "a name of 255 bytes was refused");
    (void)cf_holds(c, name, "x");
    name[NAME_LONGEST] = 'n';
    name[NAME_LONGEST + 1] = '\0';
    (void)cf_check(c, cf_write(c, mg_sv_of(name), MG_SV("x")) < 0, "a name of 256 bytes was accepted");
    (void)cf_check(c, cf_write(c, mg_sv_n("nul\0name", 8), MG_SV("x")) < 0, "a name with a NUL was accepted");
    (void)cf_says(c, "test ! -e nul && echo none", 0, "none\n");
}

static void absolute_paths_inside_of_the_root(struct cf *c)
{
    char path[CF_REF_MAX + 32];
    snprintf(path, sizeof(path), "%s/in/side", c->root.ptr);
    (void)cf_check(c, cf_write(c, mg_sv_of(path), MG_SV("x")) == MANGO_OK, "an absolute path in the root was refused");
    (void)cf_holds(c, "in/side", "x");
    (void)cf_holds(c, "in/../in/./side", "x");
    (void)cf_holds(c, path, "x");
}

/* ---- what a write keeps, and what it says ---- */

static void case_75_a_write_keeps_the_mode(struct cf *c)
{
    struct mango_stat st;
    (void)cf_check(c, cf_write(c, MG_SV("tool"), MG_SV("#!/bin/sh\n")) == MANGO_OK, "write failed");
    (void)cf_says(c, "chmod 755 tool", 0, "");
    (void)cf_check(c, cf_write(c, MG_SV("tool"), MG_SV("#!/bin/sh\necho ran\n")) == MANGO_OK, "second write failed");
    (void)cf_says(c, "./tool", 0, "ran\n");
    mango_status s = cf_stat(c, MG_SV("tool"), 0, &st);
    (void)cf_check(c, s == MANGO_OK && st.kind == 'f' && st.size == 19 && (st.mode & 0100),
                   "stat: status %d, kind %c, size %llu, mode %o", (int)s, st.kind ? (int)st.kind : '?',
                   (unsigned long long)st.size, st.mode);
    (void)cf_check(c, cf_write(c, MG_SV("tool/below"), MG_SV("x")) < 0, "a file served as a folder");
    (void)cf_holds(c, "tool", "#!/bin/sh\necho ran\n");
}

static void case_75_a_source_that_gives_up_leaves_the_old_content(struct cf *c)
{
    struct content in = {.size = 4 * 1024 * 1024, .fail_at = 2 * 1024 * 1024};
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("old")) == MANGO_OK, "write failed");
    (void)cf_check(c, cf_write_from(c, MG_SV("f"), give, &in, (int64_t)in.size) < 0, "half a content was accepted");
    (void)cf_holds(c, "f", "old");
    in.at = 0;
    (void)cf_check(c, cf_write_from(c, MG_SV("none"), give, &in, (int64_t)in.size) < 0, "half a file was accepted");
    (void)cf_says(c, "ls -A | grep -v '^.mango'", 0, "f\n");
}

static void what_is_missing_is_named_so(struct cf *c)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
    struct mango_stat st;
    int32_t eof;
    mango_status s = cf_read(c, MG_SV("missing"), 0, 10, &out, &eof);
    (void)cf_check(c, s == MANGO_ENOENT, "read of a missing file: status %d, wanted MANGO_ENOENT", (int)s);
    s = cf_stat(c, MG_SV("missing/below"), 0, &st);
    (void)cf_check(c, s == MANGO_ENOENT, "stat of a missing file: status %d, wanted MANGO_ENOENT", (int)s);
    (void)cf_says(c, "mkdir d && ln -s nowhere l && echo ok", 0, "ok\n");
    s = cf_stat(c, MG_SV("d"), 0, &st);
    (void)cf_check(c, s == MANGO_OK && st.kind == 'd', "stat of a folder: status %d, kind %u", (int)s, st.kind);
    s = cf_stat(c, MG_SV("l"), MANGO_STAT_NOFOLLOW, &st);
    (void)cf_check(c, s == MANGO_OK && st.kind == 'l', "stat of a link itself: status %d, kind %u", (int)s, st.kind);
    s = cf_stat(c, MG_SV("l"), 0, &st);
    (void)cf_check(c, s == MANGO_ENOENT || (s == MANGO_OK && st.kind == 'l'),
                   "stat through a link to nowhere: status %d, kind %u", (int)s, st.kind);
}

const struct cf_case cf_file_cases[] = {
    CF_CASE(0, files_of_0_bytes_to_64_mib),
    CF_CASE(0, whole_content_at_once),
    CF_CASE(0, ranges),
    CF_CASE(0, case_72_strange_names),
    CF_CASE(0, the_longest_name_and_beyond),
    CF_CASE(0, absolute_paths_inside_of_the_root),
    CF_CASE(0, case_75_a_write_keeps_the_mode),
    CF_CASE(0, case_75_a_source_that_gives_up_leaves_the_old_content),
    CF_CASE(0, what_is_missing_is_named_so),
    {NULL, 0, NULL},
};
