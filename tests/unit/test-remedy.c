/* The place that an endpoint names when it refuses a block. */
#include "unit.h"

#include "run/remedy.h"

static void the_place_and_the_reason_are_found_in_the_endpoint_s_words(void **state)
{
    (void)state;
    static const struct {
        const char *message;
        int64_t where, block; /* -1: none */
        const char *reason;
    } cases[] = {
        {"the model endpoint answered 400 invalid_request_error: messages.3.content.12.image.source.base64.data: At "
         "least one of the image "
         "dimensions exceed max allowed size",
         3, 12, "At least one of the image dimensions exceed max allowed size"},
        {"messages.0.content.1: Invalid `signature` in `thinking` block", 0, 1,
         "Invalid `signature` in `thinking` block"},
        {"messages.2.content.0.tool_result.content.4.image.source: too large", 2, 0, "too large"},
        {"messages.7.content.5", 7, 5, ""},
        {"messages: text content blocks must be non-empty", -1, -1, ""},
        {"messages.4: `tool_use` ids were found without `tool_result` blocks immediately after", -1, -1, ""},
        {"messages.4.content.: x", -1, -1, ""},
        {"messages.x.content.1: x; messages.1.content.2: y", 1, 2, "y"},
        {"messages.99999999999999999999.content.1: x", -1, -1, ""},
        {"tools.0.name: Field required", -1, -1, ""},
        {"messages.", -1, -1, ""},
        {"", -1, -1, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t m = -1, b = -1;
        struct mg_sv reason = MG_SV("");
        bool found = mg_remedy_place(mg_sv_of(cases[i].message), &m, &b, &reason);
        assert_int_equal(found, cases[i].where >= 0);
        if (!found)
            continue;
        assert_int_equal(m, cases[i].where);
        assert_int_equal(b, cases[i].block);
        assert_sv_equal(reason, cases[i].reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_place_and_the_reason_are_found_in_the_endpoint_s_words)};
    return RUN(tests);
}
