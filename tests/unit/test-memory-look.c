/* What a look into a sandbox makes of its list of files (core/run/memory-look.c), and what is put into them (core/run/memory-put.c), in a sandbox that hashes
 * nothing itself and whose answers fail. */
#include <stdlib.h>

#include "base/clock.h"
#include "run/memory-internal.h"
#include "sandbox/internal.h"
#include "unit/unit.h"

static const char *listing, *content; /* content NULL: files cannot be read */
static char put[64];                  /* what was written last */

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

static mango_status fake_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                               const struct mango_write_req *req)
{
    (void)ctx, (void)call, (void)id;
    memset(put, 0, sizeof(put));
    assert_in_range(req->source_len, 0, sizeof(put) - 1);
    assert_int_equal(req->source(req->source_ctx, put, sizeof(put) - 1), req->source_len);
    return MANGO_OK;
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops), .exec = fake_exec, .read = fake_read, .write = fake_write};
static struct mg_plugin plugin = {.sandbox = &ops};
static struct mg_sandbox box = {.plugin = &plugin, .external_id = "x", .root = "/"};

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

/* Another writer's text for /a; whether it was written into the file, which holds `now`. */
static bool pull(struct mg_memory *m, const char *now)
{
    struct mg_memory_pull p = {.path = strdup("/a"), .text = strdup("theirs"), .len = strlen("theirs")};
    struct mg_err err = {0};
    int done = 0;
    mg_sha256_hex(MG_SV("theirs"), p.sha);
    put[0] = '\0';
    content = now;
    mg_memory_pull_add(m, &p);
    assert_int_equal(mg_memory_put(m, &box, &done, &err), MG_OK);
    assert_int_equal(done, put[0] != '\0');
    return strcmp(put, "theirs") == 0;
}

/* A crash before the commit would lose it without a word. */
static void a_change_that_was_seen_and_is_not_committed_yet_is_not_replaced(void **state)
{
    (void)state;
    struct mg_memory *m = one_memory();
    struct mg_memory_file *f = mg_memory_file_of(&m->mounts[0], MG_SV("/a"));
    mg_memory_delta_free(look(m, "S s\nR ./s/a\nE 0\n", "new"));
    assert_false(pull(m, "new"));
    mg_sha256_hex(MG_SV("new"), f->base); /* the store has it */
    assert_false(pull(m, "newer"));       /* nobody saw that */
    assert_true(pull(m, "new"));
    mg_memory_free(m);
    m = one_memory();
    f = mg_memory_file_of(&m->mounts[0], MG_SV("/a"));
    mg_memory_delta_free(look(m, "S s\nR ./s/a\nE 0\n", "new"));
    memcpy(f->told, f->seen, sizeof(f->told)); /* the agent knows that it is lost */
    assert_true(pull(m, "new"));
    mg_memory_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listed_file_that_cannot_be_read_is_not_missing),
        cmocka_unit_test(a_file_is_missing_where_the_list_is_whole_alone),
        cmocka_unit_test(a_change_that_was_seen_and_is_not_committed_yet_is_not_replaced),
    };
    return RUN(tests);
}
