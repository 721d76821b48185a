#include "unit.h"

#include <stdlib.h>
#include <unistd.h>

#include "conf/prices.h"

static const char LIST[] = "models = ({ id = \"m-1\"; input = \"3\"; output = \"15\"; cache_read = \"0.30\";"
                           " cache_write_5m = \"3.75\"; cache_write_1h = \"6\"; });\nweb_search_per_1000 = \"10\";\n";

static mg_rc load(const char *text, struct mg_prices **ret, struct mg_err *err)
{
    char path[] = "/tmp/mango-prices-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    mg_rc rc = mg_prices_load(path, ret, err);
    (void)unlink(path);
    return rc;
}

static void decimal_text_becomes_nano_dollars_exactly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t per, want; /* want -1: refused */
    } ROWS[] = {
        {"0", 1, 0},
        {"1", 1, 1000000000},
        {"0.1", 1, 100000000},
        {"0.000000001", 1, 1},
        {"3", 1000000, 3000},
        {"0.30", 1000000, 300},
        {"18.75", 1000000, 18750},
        {"0.001", 1000000, 1},
        {"", 1, -1},
        {".5", 1, -1},
        {"5.", 1, -1},
        {"-1", 1, -1},
        {"1e3", 1, -1},
        {"0.0000000001", 1, -1},
        {"0.0001", 1000000, -1},
        {"99999999999", 1, -1},
        {" 1", 1, -1},
        {"1 ", 1, -1},
        {"999999999", 1, 999999999000000000},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        int64_t got = -1;
        bool good = mg_price_parse(mg_sv_of(ROWS[i].text), ROWS[i].per, &got);
        if (good != (ROWS[i].want >= 0) || (good && got != ROWS[i].want))
            fail_msg("'%s' per %lld: %d, %lld", ROWS[i].text, (long long)ROWS[i].per, good, (long long)got);
    }
}

static void a_cost_is_the_exact_sum_of_its_parts(void **state)
{
    (void)state;
    struct mg_err err = {0};
    struct mg_prices *p = NULL;
    assert_int_equal(load(LIST, &p, &err), MG_OK);
    const struct mg_used used = {
        .input = 1000, .output = 10, .cache_read = 7, .cache_5m = 3, .cache_1h = 2, .web_searches = 1};
    assert_int_equal(mg_price_cost(p, mg_price_of(p, MG_SV("m-1")), &used),
                     1000 * 3000 + 10 * 15000 + 7 * 300 + 3 * 3750 + 2 * 6000 + 10000000);
    const struct mg_used flood = {.input = INT64_MAX / 2};
    assert_int_equal(mg_price_cost(p, mg_price_of(p, MG_SV("m-1")), &flood), INT64_MAX);
    mg_prices_free(p);
}

static void a_name_covers_its_dated_releases_and_no_other(void **state)
{
    (void)state;
    struct mg_err err = {0};
    struct mg_prices *p = NULL;
    assert_int_equal(load(LIST, &p, &err), MG_OK);
    assert_non_null(mg_price_of(p, MG_SV("m-1")));
    assert_non_null(mg_price_of(p, MG_SV("m-1-20260101")));
    assert_null(mg_price_of(p, MG_SV("m-1-2026010")));
    assert_null(mg_price_of(p, MG_SV("m-1-mini")));
    assert_null(mg_price_of(p, MG_SV("m-12")));
    assert_null(mg_price_of(p, MG_SV("m")));
    assert_null(mg_price_of(NULL, MG_SV("m-1")));
    mg_prices_free(p);
}

static void a_bad_list_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } ROWS[] = {
        {"", "there is no list 'models"},
        {"models = 5;", "there is no list 'models"},
        {"models = (\n{ input = \"1\"; });", "line 2: a model needs an id"},
        {"models = ({ id = \"x\";\n input = 3; });", "model x: line 1: input is missing"},
        {"models = ({ id = \"x\"; input = \"3,5\"; });", "'3,5' is no price"},
        {"models = (", "line 1: syntax error"},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct mg_err err = {0};
        struct mg_prices *p = NULL;
        assert_int_equal(load(ROWS[i].text, &p, &err), MG_ECONFIG);
        assert_null(p);
        if (!strstr(err.text, ROWS[i].says))
            fail_msg("row %zu says '%s'", i, err.text);
    }
    struct mg_err err = {0};
    struct mg_prices *p = NULL;
    assert_int_equal(mg_prices_load("/nonexistent/prices", &p, &err), MG_ECONFIG);
    assert_non_null(strstr(err.text, "prices_file /nonexistent/prices: No such file"));
}

static void the_installed_list_is_good(void **state)
{
    (void)state;
    struct mg_err err = {0};
    struct mg_prices *p = NULL;
    char path[4096];
    const char *src = getenv("MANGO_TEST_SRCDIR");
    (void)snprintf(path, sizeof(path), "%s/conf/prices.conf", src ? src : ".");
    assert_int_equal(mg_prices_load(path, &p, &err), MG_OK);
    assert_true(p->n > 0);
    for (int i = 0; i < p->n; i++)
        assert_true(p->models[i].cache_read < p->models[i].input && p->models[i].input < p->models[i].output);
    mg_prices_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimal_text_becomes_nano_dollars_exactly),
        cmocka_unit_test(a_cost_is_the_exact_sum_of_its_parts),
        cmocka_unit_test(a_name_covers_its_dated_releases_and_no_other),
        cmocka_unit_test(a_bad_list_is_refused_with_its_line),
        cmocka_unit_test(the_installed_list_is_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
