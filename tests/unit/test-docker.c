/* Parts of the backend `docker` that need no Engine: where it is, which version, whose credentials, what its stream says,
 * archives, JSON. */
#include "unit.h"

#include <stdlib.h>

#include "common/json.h"
#include "common/tar.h"
#include "docker/demux.h"
#include "docker/endpoint.h"
#include "docker/registry.h"

#define SV(z) ((struct mango_sv){(z), strlen(z)})

/* ---- where the Engine is ---- */

static void an_address_is_read_as_the_docker_command_reads_it(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        bool verify;
        const char *socket, *base; /* base NULL: refused */
    } cases[] = {
        {"", false, "/var/run/docker.sock", "http://docker"},
        {"unix:///run/d.sock", true, "/run/d.sock", "http://docker"},
        {"unix://run/d.sock", false, NULL, NULL},
        {"tcp://host", false, NULL, "http://host:2375"},
        {"tcp://host", true, NULL, "https://host:2376"},
        {"tcp://10.0.0.1:99/", false, NULL, "http://10.0.0.1:99"},
        {"tcp://[::1]:2375", false, NULL, "http://[::1]:2375"},
        {"http://host:1", true, NULL, "http://host:1"},
        {"https://host", false, NULL, "https://host:2376"},
        {"tcp://", false, NULL, NULL},
        {"tcp://host:0", false, NULL, NULL},
        {"tcp://host:99999", false, NULL, NULL},
        {"tcp://host:x", false, NULL, NULL},
        {"tcp://user@host", false, NULL, NULL},
        {"tcp://host/path", false, NULL, NULL},
        {"ssh://host", false, NULL, NULL},
        {"npipe:////./pipe/docker", false, NULL, NULL},
        {"host:2375", false, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct endpoint e;
        char why[ENDPOINT_WHY_MAX] = "";
        bool ok = endpoint_parse(&e, cases[i].host, "", cases[i].verify, why);
        assert_int_equal(ok, cases[i].base != NULL);
        if (ok)
            assert_string_equal(e.base, cases[i].base);
        else
            assert_non_null(strstr(why, "DOCKER_HOST"));
        if (ok && cases[i].socket)
            assert_string_equal(e.socket, cases[i].socket);
        else
            assert_null(ok ? e.socket : NULL);
        endpoint_done(&e);
    }
}

static void missing_certificates_are_named(void **state)
{
    (void)state;
    struct endpoint e;
    char why[ENDPOINT_WHY_MAX] = "";
    assert_false(endpoint_parse(&e, "tcp://host", "/no/such/folder", true, why));
    assert_non_null(strstr(why, "/no/such/folder/ca.pem"));
    assert_non_null(strstr(why, "DOCKER_CERT_PATH"));
    endpoint_done(&e);
}

static void the_lower_version_is_spoken_and_too_old_ones_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *spoken;
    } cases[] = {{"1.40", "1.40"}, {"1.41", "1.41"}, {"1.51", "1.51"}, {"1.99", "1.51"},
                 {"1.39", NULL},   {"1.12", NULL},   {"2.0", NULL},    {"", NULL},
                 {"1.", NULL},     {"1.x", NULL},    {"1.41x", NULL},  {"1.-1", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[16] = "";
        assert_int_equal(endpoint_version(cases[i].engine, out), cases[i].spoken != NULL);
        if (cases[i].spoken)
            assert_string_equal(out, cases[i].spoken);
    }
}

/* ---- registries ---- */

static void an_images_registry_is_found_in_its_name(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"debian", "https://index.docker.io/v1/"},
        {"debian:12", "https://index.docker.io/v1/"},
        {"library/debian", "https://index.docker.io/v1/"},
        {"docker.io/library/debian", "https://index.docker.io/v1/"},
        {"quay.example/a/b:1", "quay.example"},
        {"localhost/a", "localhost"},
        {"host:5000/a@sha256:00", "host:5000"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[256];
        registry_of(cases[i][0], host, sizeof(host));
        assert_string_equal(host, cases[i][1]);
    }
}

static void decoded(const struct text *t, char *out, size_t size)
{
    FILE *p;
    char command[2048];
    snprintf(command, sizeof(command), "printf %%s '%s' | tr '_-' '/+' | base64 -d", t->ptr);
    p = popen(command, "r");
    assert_non_null(p);
    out[fread(out, 1, size - 1, p)] = '\0';
    pclose(p);
}

static void credentials_come_from_dockers_config(void **state)
{
    (void)state;
    static const char config[] =
        "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"dXNlcjpwYTpzcw==\"},"
        "\"quay.example\":{\"identitytoken\":\"tok\\u00e9n\",\"auth\":\"\"},\"empty.example\":{}},"
        "\"credHelpers\":{\"helped.example\":\"secretservice\",\"bad.example\":\"../sh\"}}";
    struct text out = {0};
    char why[300] = "", plain[600], helper[REGISTRY_HELPER_MAX] = "";
    assert_int_equal(registry_lookup(SV(config), "https://index.docker.io/v1/", &out, helper, why, sizeof(why)), 1);
    decoded(&out, plain, sizeof(plain));
    assert_string_equal(
        plain, "{\"username\":\"user\",\"password\":\"pa:ss\",\"serveraddress\":\"https://index.docker.io/v1/\"}");
    text_free(&out);
    assert_int_equal(registry_lookup(SV(config), "quay.example", &out, helper, why, sizeof(why)), 1);
    decoded(&out, plain, sizeof(plain));
    assert_string_equal(plain, "{\"identitytoken\":\"tok\303\251n\",\"serveraddress\":\"quay.example\"}");
    text_free(&out);
    assert_int_equal(registry_lookup(SV(config), "empty.example", &out, helper, why, sizeof(why)), 0);
    assert_int_equal(registry_lookup(SV(config), "other.example", &out, helper, why, sizeof(why)), 0);
    assert_string_equal(helper, "");
    assert_int_equal(registry_lookup(SV(config), "helped.example", &out, helper, why, sizeof(why)), REGISTRY_HELPER);
    assert_string_equal(helper, "secretservice");
    assert_int_equal(registry_lookup(SV(config), "bad.example", &out, helper, why, sizeof(why)), -1);
    assert_non_null(strstr(why, "helper"));
    assert_int_equal(registry_lookup(SV("{\"credsStore\":\"pass\"}"), "x", &out, helper, why, sizeof(why)),
                     REGISTRY_HELPER);
    assert_string_equal(helper, "pass");
    assert_int_equal(registry_lookup(SV("{\"credsStore\":\"\"}"), "x", &out, helper, why, sizeof(why)), 0);
    assert_int_equal(registry_lookup(SV("{\"auths\":"), "x", &out, helper, why, sizeof(why)), -1);
    assert_int_equal(registry_lookup(SV("[]"), "x", &out, helper, why, sizeof(why)), 0);
    text_free(&out);
}

static void a_helpers_answer_becomes_the_header(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "no", "{}", "{\"Username\":\"u\"}", "{\"Username\":\"u\",\"Secret\":\"\"}"};
    struct text out = {0};
    char plain[600];
    assert_true(registry_from_helper(SV("{\"ServerURL\":\"x\",\"Username\":\"u\",\"Secret\":\"s\"}"), "x", &out));
    decoded(&out, plain, sizeof(plain));
    assert_string_equal(plain, "{\"username\":\"u\",\"password\":\"s\",\"serveraddress\":\"x\"}");
    text_free(&out);
    assert_true(registry_from_helper(SV("{\"Username\":\"<token>\",\"Secret\":\"t\"}"), "x", &out));
    decoded(&out, plain, sizeof(plain));
    assert_string_equal(plain, "{\"identitytoken\":\"t\",\"serveraddress\":\"x\"}");
    text_free(&out);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(registry_from_helper(SV(bad[i]), "x", &out));
    assert_int_equal(out.len, 0);
}

/* ---- the stream ---- */

struct heard {
    uint32_t n, bytes;
    char last[64];
};

static void on_frame(void *ctx, struct frame *f)
{
    struct heard *h = ctx;
    h->n++;
    h->bytes += f->head.len;
    snprintf(h->last, sizeof(h->last), "%u/%u/%u:%.20s", f->head.chan, f->head.kind, f->head.stream, f->data);
    free(f);
}

static void put_piece(struct text *t, char stream, const char *p, uint32_t n)
{
    const char head[8] = {stream, 0, 0, 0, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
    text_bytes(t, head, sizeof(head));
    text_bytes(t, p, n);
}

static void put_frame(struct text *t, uint32_t chan, uint8_t kind, const char *z)
{
    const struct mux_head h = {.len = (uint32_t)strlen(z), .chan = chan, .kind = kind, .stream = 1};
    text_bytes(t, (const char *)&h, sizeof(h));
    text_add(t, z);
}

/* Frames cut anywhere by the Engine, pieces cut anywhere by the socket. */
static void frames_come_out_whole_however_the_stream_is_cut(void **state)
{
    (void)state;
    struct text inner = {0}, outer = {0};
    put_frame(&inner, 1, MUX_DATA, "hello");
    put_frame(&inner, 2, MUX_STARTED, "");
    put_frame(&inner, 70000, MUX_END, "the end");
    for (uint32_t cut = 1; cut < inner.len; cut++) {
        outer.len = 0;
        put_piece(&outer, 1, inner.ptr, cut);
        put_piece(&outer, 2, "words\n", 6);
        put_piece(&outer, 1, "", 0);
        put_piece(&outer, 1, inner.ptr + cut, (uint32_t)inner.len - cut);
        for (uint64_t step = 1; step < outer.len; step += 3) {
            struct heard h = {0};
            struct demux d = {.ctx = &h, .frame = on_frame};
            for (uint64_t at = 0; at < outer.len; at += step)
                assert_true(demux_feed(&d, outer.ptr + at, outer.len - at < step ? outer.len - at : step));
            assert_int_equal(h.n, 3);
            assert_int_equal(h.bytes, 12);
            assert_non_null(strstr(h.last, "the end"));
            assert_string_equal(d.words, "words ");
            demux_free(&d);
        }
    }
    text_free(&inner);
    text_free(&outer);
}

static void what_is_no_such_stream_is_given_up(void **state)
{
    (void)state;
    struct heard h = {0};
    struct demux d = {.ctx = &h, .frame = on_frame};
    assert_false(demux_feed(&d, "HTTP/1.1 400 Bad Request", 24));
    demux_free(&d);
    d = (struct demux){.ctx = &h, .frame = on_frame};
    struct text t = {0};
    const struct mux_head big = {.len = MUX_DATA_MAX + 1, .chan = 1, .kind = MUX_DATA};
    put_piece(&t, 1, (const char *)&big, sizeof(big));
    assert_false(demux_feed(&d, t.ptr, t.len));
    demux_free(&d);
    text_free(&t);
    assert_int_equal(h.n, 0);
}

/* ---- archives ---- */

struct listing {
    struct text names;
    uint64_t bytes;
    int stop_at;
};

static int32_t on_entry(void *ctx, const struct tar_entry *e)
{
    struct listing *l = ctx;
    text_printf(&l->names, "%c %.*s %o %llu %.*s|", e->kind, (int)e->path.len, e->path.ptr, e->mode,
                (unsigned long long)e->size, (int)e->link.len, e->link.ptr);
    return --l->stop_at == 0;
}

static int32_t on_content(void *ctx, const char *p, uint64_t n)
{
    (void)p;
    ((struct listing *)ctx)->bytes += n;
    return 0;
}

static void an_archive_that_was_written_is_read_back(void **state)
{
    (void)state;
    struct text tar = {0}, path = {0}, want = {0};
    for (int i = 0; i < 40; i++)
        text_add(&path, "long/name/");
    text_add(&path, "\303\251nd");
    tar_head(&tar, &(struct tar_entry){.path = SV("d"), .kind = 'd', .mode = 01777});
    tar_head(&tar, &(struct tar_entry){.path = SV("d/f"), .kind = 'f', .mode = 0640, .size = 5});
    text_add(&tar, "hello");
    tar_pad(&tar, 5);
    tar_head(&tar, &(struct tar_entry){.path = text_view(&path), .kind = 'l', .mode = 0777, .link = text_view(&path)});
    tar_head(&tar, &(struct tar_entry){.path = SV("h"), .kind = 'h', .link = SV("d/f")});
    tar_head(&tar, &(struct tar_entry){.path = SV("empty"), .kind = 'f', .mode = 0600});
    tar_end(&tar);
    assert_false(tar.bad);
    assert_int_equal(tar.len % TAR_BLOCK, 0);
    text_printf(&want, "d d 1777 0 |f d/f 640 5 |l %s 777 0 %s|h h 0 0 d/f|f empty 600 0 |", path.ptr, path.ptr);
    for (uint64_t step = 1; step < 1600; step += 37) {
        struct listing l = {0};
        struct tar_reader r = {.ctx = &l, .entry = on_entry, .content = on_content};
        for (uint64_t at = 0; at < tar.len; at += step)
            assert_int_equal(tar_feed(&r, tar.ptr + at, tar.len - at < step ? tar.len - at : step), TAR_OK);
        assert_true(tar_whole(&r));
        assert_string_equal(l.names.ptr, want.ptr);
        assert_int_equal(l.bytes, 5);
        text_free(&l.names);
        tar_free(&r);
    }
    /* Tar itself agrees. */
    FILE *p = popen("tar -tf - | tail -n 1 | grep -q '^empty$'", "w");
    assert_non_null(p);
    assert_int_equal(fwrite(tar.ptr, 1, tar.len, p), tar.len);
    assert_int_equal(pclose(p), 0);
    text_free(&tar);
    text_free(&path);
    text_free(&want);
}

static void a_damaged_archive_is_refused(void **state)
{
    (void)state;
    struct text tar = {0};
    tar_head(&tar, &(struct tar_entry){.path = SV("a"), .kind = 'f', .mode = 0600, .size = 3});
    for (uint64_t i = 0; i < TAR_BLOCK; i += 7) {
        struct listing l = {0};
        struct tar_reader r = {.ctx = &l, .entry = on_entry, .content = on_content};
        char was = tar.ptr[i];
        tar.ptr[i] ^= 0x41;
        (void)tar_feed(&r, tar.ptr, tar.len);
        assert_null(l.names.ptr); /* the sum is over every byte */
        tar.ptr[i] = was;
        tar_free(&r);
    }
    struct listing l = {.stop_at = 1};
    struct tar_reader r = {.ctx = &l, .entry = on_entry, .content = on_content};
    assert_int_equal(tar_feed(&r, tar.ptr, tar.len), TAR_STOPPED);
    assert_int_equal(tar_feed(&r, "x", 1), TAR_STOPPED);
    assert_false(tar_whole(&r));
    text_free(&l.names);
    text_free(&tar);
    tar_free(&r);
}

/* ---- JSON ---- */

static void json_is_looked_up_by_path(void **state)
{
    (void)state;
    struct mango_sv doc =
        SV(" {\"a\":{\"io.mango.label\":\"x\\n\\u00e9\\ud83e\\udd6d\"},\"n\":-12,\"t\":true,\"z\":null,"
           "\"l\":[1,{\"k\":\"v\"},[]],\"d\":1,\"d\":2,\"e\":{}} ");
    char text[32];
    int64_t n = 0;
    assert_true(json_valid(doc));
    assert_true(json_copy(doc, "a/io.mango.label", text, sizeof(text)));
    assert_string_equal(text, "x\n\303\251\360\237\245\255");
    assert_true(json_int(doc, "n", &n) && n == -12);
    assert_true(json_int(doc, "d", &n) && n == 2);
    assert_true(json_true(doc, "t"));
    assert_false(json_true(doc, "z"));
    assert_false(json_int(doc, "t", &n));
    assert_false(json_copy(doc, "a/missing", text, sizeof(text)));
    assert_false(json_copy(doc, "a/io.mango.label", text, 4)); /* does not fit */
    assert_int_equal(json_get(doc, "a/b/c").len, 0);
    struct mango_sv item, name;
    uint64_t pos = 0;
    int items = 0;
    while (json_next(json_get(doc, "l"), &pos, NULL, &item))
        items++;
    assert_int_equal(items, 3);
    pos = 0;
    assert_false(json_next(json_get(doc, "e"), &pos, &name, &item));
}

static void what_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      "{",     "{\"a\"}", "{\"a\":1,}", "[1,]",      "01",
                                      "1.",    "+1",    "\"\n\"",  "\"\\x\"",    "\"\\u12\"", "nul",
                                      "{} {}", "{a:1}", "\"open",  "[1 2]",      "-"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(json_valid(SV(bad[i])));
    struct text deep = {0};
    for (int i = 0; i < JSON_DEPTH_MAX + 1; i++)
        text_add(&deep, "[");
    for (int i = 0; i < JSON_DEPTH_MAX + 1; i++)
        text_add(&deep, "]");
    assert_false(json_valid(text_view(&deep)));
    text_free(&deep);
}

static void text_is_quoted_for_json_and_urls(void **state)
{
    (void)state;
    struct text t = {0};
    text_json(&t, SV("a\"\\\n\001\377\303\251"));
    assert_string_equal(t.ptr, "\"a\\\"\\\\\\u000a\\u0001\xEF\xBF\xBD\303\251\"");
    assert_true(json_valid(text_view(&t)));
    t.len = 0;
    text_url(&t, SV("a/b c&d=\303\251~"));
    assert_string_equal(t.ptr, "a%2Fb%20c%26d%3D%C3%A9~");
    t.len = 0;
    text_base64(&t, SV("\377\376\375a"), true);
    assert_string_equal(t.ptr, "__79YQ==");
    text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_read_as_the_docker_command_reads_it),
        cmocka_unit_test(missing_certificates_are_named),
        cmocka_unit_test(the_lower_version_is_spoken_and_too_old_ones_are_refused),
        cmocka_unit_test(an_images_registry_is_found_in_its_name),
        cmocka_unit_test(credentials_come_from_dockers_config),
        cmocka_unit_test(a_helpers_answer_becomes_the_header),
        cmocka_unit_test(frames_come_out_whole_however_the_stream_is_cut),
        cmocka_unit_test(what_is_no_such_stream_is_given_up),
        cmocka_unit_test(an_archive_that_was_written_is_read_back),
        cmocka_unit_test(a_damaged_archive_is_refused),
        cmocka_unit_test(json_is_looked_up_by_path),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(text_is_quoted_for_json_and_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
