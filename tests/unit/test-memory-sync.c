/* The table of what is done about a file and its memory (contract 8.2), every combination. */
#include "domain/memory-sync.h"
#include "unit.h"

static struct mg_memory_decision decide(const char *local, const char *base, const char *head, bool read_only)
{
    const struct mg_memory_sides x = {mg_sv_of(local), mg_sv_of(base), mg_sv_of(head), read_only, false};
    return mg_memory_decide(&x);
}

static void every_combination_has_its_answer(void **state)
{
    (void)state;
    static const struct {
        const char *local, *base, *head;
        enum mg_memory_act act;
        bool lost;
        enum mg_memory_act read_only_act;
        bool read_only_lost;
    } CASES[] = {
        {"", "", "", MG_MEMORY_KEEP, false, MG_MEMORY_KEEP, false},
        {"", "", "h", MG_MEMORY_PULL, false, MG_MEMORY_PULL, false},
        {"l", "", "", MG_MEMORY_CREATE, false, MG_MEMORY_KEEP, true},
        {"l", "", "l", MG_MEMORY_ADOPT, false, MG_MEMORY_ADOPT, false},
        {"l", "", "h", MG_MEMORY_PULL, true, MG_MEMORY_PULL, true},
        {"b", "b", "b", MG_MEMORY_KEEP, false, MG_MEMORY_KEEP, false},
        {"b", "b", "h", MG_MEMORY_PULL, false, MG_MEMORY_PULL, false},
        {"b", "b", "", MG_MEMORY_REMOVE, false, MG_MEMORY_REMOVE, false},
        {"l", "b", "b", MG_MEMORY_UPDATE, false, MG_MEMORY_PULL, true},
        {"l", "b", "h", MG_MEMORY_PULL, true, MG_MEMORY_PULL, true},
        {"l", "b", "l", MG_MEMORY_ADOPT, false, MG_MEMORY_ADOPT, false},
        {"l", "b", "", MG_MEMORY_CREATE, false, MG_MEMORY_REMOVE, true},
        {"", "b", "b", MG_MEMORY_DELETE, false, MG_MEMORY_PULL, true},
        {"", "b", "h", MG_MEMORY_PULL, true, MG_MEMORY_PULL, true},
        {"", "b", "", MG_MEMORY_FORGET, false, MG_MEMORY_FORGET, false},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_memory_decision d = decide(CASES[i].local, CASES[i].base, CASES[i].head, false);
        struct mg_memory_decision ro = decide(CASES[i].local, CASES[i].base, CASES[i].head, true);
        if (d.act != CASES[i].act || d.lost != CASES[i].lost)
            fail_msg("case %zu: act %d, lost %d", i, d.act, d.lost);
        if (ro.act != CASES[i].read_only_act || ro.lost != CASES[i].read_only_lost)
            fail_msg("case %zu, read-only: act %d, lost %d", i, ro.act, ro.lost);
    }
}

static void a_missing_file_that_may_be_hidden_deletes_nothing(void **state)
{
    (void)state;
    struct mg_memory_sides x = {.base = MG_SV("b"), .head = MG_SV("b"), .unsure = true};
    assert_int_equal(mg_memory_decide(&x).act, MG_MEMORY_KEEP);
    x.head = MG_SV("h");
    assert_int_equal(mg_memory_decide(&x).act, MG_MEMORY_KEEP);
    x.head = MG_SV("");
    assert_int_equal(mg_memory_decide(&x).act, MG_MEMORY_FORGET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_has_its_answer),
        cmocka_unit_test(a_missing_file_that_may_be_hidden_deletes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
