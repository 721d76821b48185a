/* What a look into a sandbox makes of its list of files (core/run/memory-look.c), in a sandbox that hashes nothing itself and whose answers fail. */
#include <stdlib.h>

#include "base/clock.h"
#include "run/memory-internal.h"
#include "sandbox/internal.h"
#include "unit/unit.h"

static const char *listing, *content; /* content NULL: files cannot be read */

static mango_status fake_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    (void)ctx, (void)call, (void)id;
    (void)req->sink(req->sink_ctx, 1, listing, strlen(listing));
    ret->exited = 1;
    return MANGO_OK;
}

static mango_status fake_read(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_read_req *req, int32_t *ret_eof)
{
    (void)ctx, (void)call, (void)id;
    if (!content)
        return MANGO_ERETRY;
    (void)req->sink(req->sink_ctx, 1, content, strlen(content));
    *ret_eof = 1;
    return MANGO_OK;
}

static const struct mango_sandbox_ops ops = {.struct_size = sizeof(ops), .exec = fake_exec, .read = fake_read};

/* A store with the memory /a, whose text is "old" at both sides. */
static struct mg_memory *one_memory(void)
{
    const struct mg_id session = mg_id_new("sesn");
    const struct mg_mounted_store store = {.store_id = MG_SV("memstore_x"), .slug = MG_SV("s"), .mounted = true};
    struct mg_memory *m = mg_memory_new(&session, &store, 1);
    struct mg_memory_file *f = mg_memory_file_of(&m->mounts[0], MG_SV("/a"));
    mg_sha256_hex(MG_SV("old"), f->base);
    memcpy(f->seen, f->base, sizeof(f->seen));
    return m;
}

static struct mg_memory_delta *look(struct mg_memory *m, const char *list, const char *text)
{
    struct mg_plugin plugin = {.sandbox = &ops};
    struct mg_sandbox box = {.plugin = &plugin, .external_id = "x", .root = "/"};
    struct mg_memory_delta *d = mg_memory_delta_new();
    struct mg_err err = {0};
    listing = list;
    content = text;
    assert_int_equal(mg_memory_collect(m, &box, NULL, true, d, &err), MG_OK);
    return d;
}

static void a_listed_file_that_cannot_be_read_is_not_missing(void **state)
{
    (void)state;
    struct mg_memory *m = one_memory();
    struct mg_memory_delta *d = look(m, "S s\nR ./s/a\nE 0\n", NULL);
    assert_int_equal(d->n, 0);
    mg_memory_delta_free(d);
    d = look(m, "S s\nR ./s/a\nE 0\n", "old");
    assert_int_equal(d->n, 0);
    mg_memory_delta_free(d);
    d = look(m, "S s\nR ./s/a\nE 0\n", "new");
    assert_int_equal(d->n, 1);
    assert_string_equal(d->changes[0].text, "new");
    mg_memory_delta_free(d);
    mg_memory_free(m);
}

static void a_file_is_missing_where_the_list_is_whole_alone(void **state)
{
    (void)state;
    struct mg_memory *m = one_memory();
    struct mg_memory_delta *d = look(m, "S s\nE 1\n", "old");
    assert_int_equal(d->n, 0);
    mg_memory_delta_free(d);
    d = look(m, "S s\n", "old");
    assert_int_equal(d->n, 0);
    mg_memory_delta_free(d);
    d = look(m, "S s\nE 0\n", "old");
    assert_int_equal(d->n, 1);
    assert_string_equal(d->changes[0].path, "/a");
    assert_string_equal(d->changes[0].sha, "");
    mg_memory_delta_free(d);
    mg_memory_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listed_file_that_cannot_be_read_is_not_missing),
        cmocka_unit_test(a_file_is_missing_where_the_list_is_whole_alone),
    };
    return RUN(tests);
}
