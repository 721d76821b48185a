/* What the tests of request bodies share: an arena and JSON text in one line. */
#ifndef MG_TESTS_UNIT_DOMAIN_H
#define MG_TESTS_UNIT_DOMAIN_H

#include "base/arena.h"
#include "json/json.h"
#include "unit.h"

struct refusal {
    const char *body, *text; /* what the error must hold */
};

static inline int setup_arena(void **state)
{
    *state = mg_arena_new();
    return 0;
}

static inline int teardown_arena(void **state)
{
    mg_arena_free(*state);
    return 0;
}

static inline const struct mg_json *json_of(struct mg_arena *a, const char *text)
{
    struct mg_json *v = NULL;
    struct mg_err err = {0};
    if (mg_json_parse(a, mg_sv_of(text), &mg_json_api_limits, &v, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return v;
}

#define RUN_WITH_ARENA(tests) cmocka_run_group_tests(tests, setup_arena, teardown_arena)

#endif
