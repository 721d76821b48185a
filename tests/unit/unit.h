/* What every unit test includes. */
#ifndef MG_TESTS_UNIT_H
#define MG_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/sv.h"

/* Fails with both texts when s is not z. */
#define assert_sv_equal(s, z)                                                         \
    do {                                                                              \
        struct mg_sv is_ = (s);                                                       \
        struct mg_sv should_ = mg_sv_of(z);                                           \
        if (!mg_sv_eq(is_, should_))                                                  \
            fail_msg("\"%.*s\" is not \"%.*s\"", MG_SV_ARG(is_), MG_SV_ARG(should_)); \
    } while (0)

#define assert_contains(text, part)                                \
    do {                                                           \
        const char *text_ = (text), *part_ = (part);               \
        if (!strstr(text_, part_))                                 \
            fail_msg("\"%s\" does not hold \"%s\"", text_, part_); \
    } while (0)

#define RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

#endif
