#include "unit.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "domain/id.h"

static void an_id_is_prefix_and_26_digits(void **state)
{
    struct mg_id id = mg_id_new("sesn");
    struct mg_id copy;

    (void)state;
    assert_int_equal(strlen(id.s), 5 + 26);
    assert_true(mg_sv_starts(mg_id_sv(&id), "sesn_"));
    assert_int_equal(strspn(id.s + 5, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), 26);
    assert_true(mg_id_from(mg_id_sv(&id), &copy));
    assert_string_equal(copy.s, id.s);
}

static void the_time_is_in_the_first_ten_digits(void **state)
{
    static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    int64_t before = mg_wall_us() / 1000, ms = 0;
    struct mg_id id = mg_id_new("x");

    (void)state;
    for (int i = 0; i < 10; i++)
        ms = ms * 32 + (strchr(digits, id.s[2 + i]) - digits);
    assert_in_range(ms, before, mg_wall_us() / 1000 + 1);
}

static void ids_of_one_process_ascend(void **state)
{
    struct mg_id before = mg_id_new("sevt");

    (void)state;
    for (int i = 0; i < 100000; i++) {
        struct mg_id id = mg_id_new("sevt");
        assert_true(strcmp(before.s, id.s) < 0);
        before = id;
    }
}

static void *make_many(void *arg)
{
    struct mg_id *ids = arg;

    for (int i = 0; i < 1000; i++)
        ids[i] = mg_id_new("t");
    return NULL;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void threads_never_get_the_same_id(void **state)
{
    static struct mg_id ids[4][1000];
    pthread_t t[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, make_many, ids[i]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    struct mg_id *all = &ids[0][0];
    qsort(all, 4000, sizeof(*all), compare);
    for (int i = 1; i < 4000; i++)
        assert_string_not_equal(all[i - 1].s, all[i].s);
}

static void foreign_ids_are_opaque_but_bounded(void **state)
{
    struct mg_id id;
    char text[MG_ID_MAX + 1];

    (void)state;
    memset(text, 'a', sizeof(text));
    assert_true(mg_id_from(mg_sv_n(text, MG_ID_MAX - 1), &id));
    assert_false(mg_id_from(mg_sv_n(text, MG_ID_MAX), &id));
    assert_true(mg_id_from(MG_SV("A-z_9"), &id));
    assert_false(mg_id_from(MG_SV(""), &id));
    assert_false(mg_id_from(MG_SV("a/b"), &id));
    assert_false(mg_id_from(MG_SV("a\0b"), &id));
    assert_false(mg_id_from(MG_SV("a.b"), &id));
    assert_false(mg_id_from(MG_SV("\xc3\xa4"), &id));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_prefix_and_26_digits),      cmocka_unit_test(the_time_is_in_the_first_ten_digits),
        cmocka_unit_test(ids_of_one_process_ascend),          cmocka_unit_test(threads_never_get_the_same_id),
        cmocka_unit_test(foreign_ids_are_opaque_but_bounded),
    };

    return RUN(tests);
}
