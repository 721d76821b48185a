#include "unit.h"

#include <errno.h>

#include "base/err.h"
#include "base/utf8.h"

static void set_and_wrap_build_one_text(void **state)
{
    struct mg_err e = {0};

    (void)state;
    assert_int_equal(mg_err_code(&e, MG_EINVAL, "bad_name", "name: %d bytes, at most %d", 300, 256), MG_EINVAL);
    assert_int_equal(mg_err_wrap(&e, MG_EINVAL, "agent %s", "x"), MG_EINVAL);
    assert_string_equal(e.text, "agent x: name: 300 bytes, at most 256");
    assert_string_equal(e.code, "bad_name");
    assert_int_equal(mg_err_set(&e, MG_ENOTFOUND, "gone"), MG_ENOTFOUND);
    assert_string_equal(e.code, "");
    assert_int_equal(e.rc, MG_ENOTFOUND);
}

static void no_error_object_is_fine(void **state)
{
    (void)state;
    assert_int_equal(mg_err_set(NULL, MG_EIO, "x"), MG_EIO);
    assert_int_equal(mg_err_wrap(NULL, MG_EIO, "x"), MG_EIO);
    assert_int_equal(mg_err_code(NULL, MG_EIO, "c", "x"), MG_EIO);
    assert_int_equal(mg_err_errno(NULL, ENOENT, "x"), MG_ENOTFOUND);
}

static void its_own_text_may_be_an_argument(void **state)
{
    struct mg_err e = {0};

    (void)state;
    (void)mg_err_set(&e, MG_EIO, "inner");
    (void)mg_err_set(&e, MG_EIO, "outer (%s)", e.text);
    assert_string_equal(e.text, "outer (inner)");
    (void)mg_err_wrap(&e, MG_EIO, "again %s", e.text);
    assert_string_equal(e.text, "again outer (inner): outer (inner)");
}

static void long_texts_are_cut_at_a_character(void **state)
{
    char text[3000];

    (void)state;
    for (int shift = 0; shift < 4; shift++) {
        struct mg_err e = {0};
        memset(text, 'x', sizeof(text));
        for (size_t i = (size_t)shift; i + 4 < sizeof(text); i += 4)
            memcpy(text + i, "\xf0\x9f\x98\x80", 4);
        text[sizeof(text) - 1] = '\0';
        (void)mg_err_set(&e, MG_EIO, "%s", text);
        assert_true(mg_utf8_valid(mg_sv_of(e.text), NULL));
        assert_true(strlen(e.text) > MG_ERR_TEXT_MAX - 6);
        (void)mg_err_wrap(&e, MG_EIO, "a context of some length");
        assert_true(mg_utf8_valid(mg_sv_of(e.text), NULL));
    }
}

static void errno_becomes_text(void **state)
{
    struct mg_err e = {0};

    (void)state;
    assert_int_equal(mg_err_errno(&e, EACCES, "open %s", "f"), MG_EIO);
    assert_string_equal(e.text, "open f: Permission denied");
    assert_int_equal(mg_err_errno(&e, ENOENT, "open"), MG_ENOTFOUND);
    assert_int_equal(e.rc, MG_ENOTFOUND);
}

static void every_code_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(mg_rc_name(MG_OK), "MG_OK");
    assert_string_equal(mg_rc_name(MG_EINVAL), "MG_EINVAL");
    assert_string_equal(mg_rc_name(MG_EUNAVAIL), "MG_EUNAVAIL");
    assert_string_equal(mg_rc_name(MG_ECONFIG), "MG_ECONFIG");
    assert_string_equal(mg_rc_name(MG_EHEADERS), "MG_EHEADERS");
    assert_string_equal(mg_rc_name(5), "MG_E?");
    assert_string_equal(mg_rc_name(INT32_MIN), "MG_E?");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_and_wrap_build_one_text),
        cmocka_unit_test(no_error_object_is_fine),
        cmocka_unit_test(its_own_text_may_be_an_argument),
        cmocka_unit_test(long_texts_are_cut_at_a_character),
        cmocka_unit_test(errno_becomes_text),
        cmocka_unit_test(every_code_has_its_name),
    };

    return RUN(tests);
}
