#include "unit.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/siphash.h"

static struct mg_sv key_of(char text[32], int i)
{
    return mg_sv_n(text, (size_t)snprintf(text, 32, "key-%d", i));
}

static void put_get_and_del_agree_with_a_plain_array(void **state)
{
    enum { KEYS = 500, STEPS = 200000 };
    struct mg_map *m = mg_map_new();
    void *model[KEYS] = {NULL};
    static int values[3];
    size_t n = 0;
    uint32_t seed = 1;
    char text[32];

    (void)state;
    for (int i = 0; i < STEPS; i++) {
        seed = seed * 1664525 + 1013904223;
        int k = (int)(seed >> 8) % KEYS;
        void *value = &values[seed >> 30 & 1];
        void *before = model[k];
        if (seed & 0x40) {
            assert_ptr_equal(mg_map_put(m, key_of(text, k), value), before);
            n += before == NULL;
            model[k] = value;
        } else {
            assert_ptr_equal(mg_map_del(m, key_of(text, k)), before);
            n -= before != NULL;
            model[k] = NULL;
        }
        assert_int_equal(mg_map_len(m), n);
    }
    for (int k = 0; k < KEYS; k++)
        assert_ptr_equal(mg_map_get(m, key_of(text, k)), model[k]);
    mg_map_free(m);
}

static void keys_are_copied_and_may_hold_any_byte(void **state)
{
    struct mg_map *m = mg_map_new();
    char key[] = "a\0b";
    int x = 0, y = 0;

    (void)state;
    assert_null(mg_map_get(m, MG_SV("")));
    assert_null(mg_map_del(m, MG_SV("")));
    assert_null(mg_map_put(m, mg_sv_n(key, 3), &x));
    assert_null(mg_map_put(m, MG_SV(""), &y));
    key[0] = 'z';
    assert_ptr_equal(mg_map_get(m, MG_SV("a\0b")), &x);
    assert_null(mg_map_get(m, MG_SV("a\0c")));
    assert_ptr_equal(mg_map_get(m, MG_SV("")), &y);
    mg_map_free(m);
    mg_map_free(NULL);
}

static void add_up(void *ctx, struct mg_sv key, void *value)
{
    assert_true(key.len > 0);
    *(int *)ctx += *(int *)value;
}

static void each_visits_all_once(void **state)
{
    struct mg_map *m = mg_map_new();
    static int values[100];
    char text[32];
    int sum = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        values[i] = i;
        (void)mg_map_put(m, key_of(text, i), &values[i]);
    }
    mg_map_each(m, add_up, &sum);
    assert_int_equal(sum, 4950);
    mg_map_free(m);
}

/* From the paper's reference implementation: key 00..0f, input 00, 01, ... of the given length, SipHash-2-4. */
static void siphash_matches_the_published_vectors(void **state)
{
    static const struct {
        size_t len;
        uint64_t want;
    } rows[] = {
        {0, UINT64_C(0x726fdb47dd0e0e31)},
        {1, UINT64_C(0x74f839c593dc67fd)},
        {8, UINT64_C(0x93f5f5799a932462)},
        {15, UINT64_C(0xa129ca6149be45e5)},
    };
    char in[16];

    (void)state;
    for (int i = 0; i < 16; i++)
        in[i] = (char)i;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_true(mg_siphash_keyed(mg_sv_n(in, rows[i].len), UINT64_C(0x0706050403020100),
                                     UINT64_C(0x0f0e0d0c0b0a0908), 2, 4) == rows[i].want);
    assert_true(mg_siphash(MG_SV("x")) == mg_siphash(MG_SV("x")));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_get_and_del_agree_with_a_plain_array),
        cmocka_unit_test(keys_are_copied_and_may_hold_any_byte),
        cmocka_unit_test(each_visits_all_once),
        cmocka_unit_test(siphash_matches_the_published_vectors),
    };

    return RUN(tests);
}
