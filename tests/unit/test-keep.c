/* Results that are too long for a context. */
#include "unit.h"

#include "base/utf8.h"
#include "json/json.h"
#include "service/client-result.h"
#include "tools/keep.h"

struct box {
    struct mg_buf path, content;
    mg_rc rc;
};

static mg_rc box_write(void *ctx, const char *path, struct mg_sv content, struct mg_err *err)
{
    struct box *b = ctx;
    (void)mg_buf_str(&b->path, path);
    (void)mg_buf_sv(&b->content, content);
    return b->rc < 0 ? mg_err_set(err, b->rc, "disk full") : MG_OK;
}

static const struct mg_tool_ops ops = {.write = box_write};

/* A text of n characters of so many bytes each. */
static void fill(struct mg_buf *b, int bytes, int n)
{
    static const char *const letters[] = {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (int i = 0; i < n; i++)
        (void)mg_buf_str(b, letters[bytes]);
}

static void case_67_no_cut_is_inside_of_a_character(void **state)
{
    (void)state;
    for (int bytes = 1; bytes <= 4; bytes++) {
        for (int shift = 0; shift < 4; shift++) {
            mg_auto(buf) struct mg_buf text = MG_BUF_INIT(1 << 20), out = MG_BUF_INIT(1 << 20);
            fill(&text, 1, shift);
            fill(&text, bytes, 5000);
            fill(&text, 1, 3 - shift);
            mg_result_excerpt(&out, mg_buf_view(&text), "where it is");
            assert_true(mg_utf8_valid(mg_buf_view(&out), NULL));
            assert_true(out.len < MG_RESULT_HEAD + MG_RESULT_TAIL + 100);
            assert_contains(out.ptr, "where it is");
        }
    }
}

static void result(struct mg_tool_result *r, size_t n)
{
    *r = (struct mg_tool_result){.content = MG_BUF_INIT(1 << 20), .is_error = true};
    (void)mg_buf_str(&r->content, "[{\"type\":\"text\",\"text\":\"");
    fill(&r->content, 1, (int)n);
    (void)mg_buf_str(&r->content, "\"}]");
}

static void a_long_text_is_kept_whole_and_a_short_one_stays(void **state)
{
    (void)state;
    static const struct {
        const char *tool;
        size_t size;
        mg_rc rc;
        const char *says, *path;
    } cases[] = {
        {"bash", 10000, MG_OK, NULL, ""},
        {"bash", 10001, MG_OK, "in the file tool-results/sevt_1.txt", "tool-results/sevt_1.txt"},
        {"bash", 10001, MG_EIO, "could not be kept (disk full)", "tool-results/sevt_1.txt"},
        {"read", 10001, MG_OK, "read the file in parts", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct box b = {.path = MG_BUF_INIT(1000), .content = MG_BUF_INIT(1 << 20), .rc = cases[i].rc};
        struct mg_tools *t = mg_tools_new(&ops, &b);
        struct mg_tool_result r;
        result(&r, cases[i].size);
        size_t before = r.content.len;
        mg_tool_result_keep(t, mg_sv_of(cases[i].tool), "sevt_1", 10000, &r);
        assert_sv_equal(mg_buf_view(&b.path), cases[i].path);
        assert_true(r.is_error);
        assert_int_equal(mg_json_check(mg_buf_view(&r.content), 10, NULL), MG_OK);
        if (cases[i].says)
            assert_contains(r.content.ptr, cases[i].says);
        else
            assert_int_equal(r.content.len, before);
        assert_true(b.content.len == 0 || b.content.len == cases[i].size);
        mg_tool_result_done(&r);
        mg_tools_free(t);
        mg_buf_done(&b.path);
        mg_buf_done(&b.content);
    }
}

static void case_1_a_clients_result_is_legal_for_the_model_whatever_was_sent(void **state)
{
    (void)state;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    static const char nothing[] = "[{\"type\":\"text\",\"text\":\"(no output)\"}]";
    assert_sv_equal(mg_client_result(a, MG_SV(""), 100), nothing);
    assert_sv_equal(mg_client_result(a, MG_SV("[]"), 100), nothing);
    assert_sv_equal(mg_client_result(a, MG_SV("[{\"type\":\"text\",\"text\":\"\"}]"), 100), nothing);
    assert_sv_equal(
        mg_client_result(
            a,
            MG_SV(
                "[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"u\"}}]"),
            100),
        "[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"u\"}}]");
    assert_sv_equal(mg_client_result(a, MG_SV("[ {\"type\":\"text\",\"text\":\"\\u00e9\",\"n\":1.50} ]"), 100),
                    "[{\"type\":\"text\",\"text\":\"\\u00e9\",\"n\":1.50}]");
}

static void a_clients_result_of_many_long_texts_stays_within_its_bound(void **state)
{
    (void)state;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1 << 22);
    for (int i = 0; i < 50; i++) {
        (void)mg_buf_str(&b, i ? ",{\"type\":\"text\",\"text\":\"" : "[{\"type\":\"text\",\"text\":\"");
        fill(&b, 1, 9000);
        (void)mg_buf_str(&b, "\"}");
    }
    (void)mg_buf_char(&b, ']');
    struct mg_sv got = mg_client_result(a, mg_buf_view(&b), 20000);
    assert_int_equal(mg_json_check(got, 10, NULL), MG_OK);
    assert_true(got.len < 26000);
    assert_contains(mg_arena_strdup(a, got), "47 more texts are left out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_67_no_cut_is_inside_of_a_character),
        cmocka_unit_test(a_long_text_is_kept_whole_and_a_short_one_stays),
        cmocka_unit_test(case_1_a_clients_result_is_legal_for_the_model_whatever_was_sent),
        cmocka_unit_test(a_clients_result_of_many_long_texts_stays_within_its_bound),
    };
    return RUN(tests);
}
