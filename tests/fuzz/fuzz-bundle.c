/* Skill bundles: the zip archive, the rules of its paths, the front matter. What is taken can be written and is read back the same. */
#include <string.h>

#include "base/buf.h"
#include "domain/zip.h"
#include "fuzz/fuzz.h"

static void check_files(const struct mg_skill_file *files, int n)
{
    size_t total = 0;

    fuzz_check(n >= 0, "a count is not negative");
    for (int i = 0; i < n; i++) {
        fuzz_check(files[i].path.len > 0 && files[i].path.len <= MG_SKILL_PATH_MAX, "a path has a bounded length");
        fuzz_check(files[i].path.ptr[0] != '/' && !memchr(files[i].path.ptr, 0, files[i].path.len) &&
                       !memchr(files[i].path.ptr, '\\', files[i].path.len),
                   "a path is relative, without NUL and backslash");
        total += files[i].content.len;
    }
    fuzz_check(total <= MG_SKILL_BYTES_MAX, "all contents together are bounded");
}

static void check_round(struct mg_arena *a, const struct mg_skill_bundle *b)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(2 * MG_SKILL_BYTES_MAX);
    struct mg_skill_file *again = NULL;
    struct mg_err err = {0};
    int n = 0;

    fuzz_check(mg_zip_write(b->files, b->n, &out) == MG_OK, "a bundle can be written");
    fuzz_check(mg_zip_read(a, mg_buf_view(&out), &again, &n, &err) == MG_OK && n == b->n, "and be read");
    for (int i = 0; i < n; i++)
        fuzz_check(mg_sv_eq(again[i].path, b->files[i].path) && mg_sv_eq(again[i].content, b->files[i].content),
                   "and is the same");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_arena *a = mg_arena_new();
    /* What is no archive is taken as a SKILL.md. */
    struct mg_skill_file alone = {.path = MG_SV("good-skill/SKILL.md"), .content = fuzz_text(data, size)};
    struct mg_skill_file *files = NULL;
    struct mg_skill_bundle bundle = {0};
    struct mg_err err = {0};
    int n = 0;
    mg_rc rc = mg_zip_read(a, fuzz_text(data, size), &files, &n, &err);

    fuzz_check_err(rc, &err);
    if (rc == MG_OK)
        check_files(files, n);
    rc = mg_skill_check(a, rc == MG_OK ? files : &alone, rc == MG_OK ? n : 1, &bundle, &err);
    fuzz_check_err(rc, &err);
    if (rc == MG_OK)
        check_round(a, &bundle);
    mg_arena_free(a);
    return 0;
}
