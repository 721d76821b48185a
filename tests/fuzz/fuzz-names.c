/* Small texts from outside: plugin names, ids, cursors, times, limits. A plugin name that passes is safe as a file name. */
#include <string.h>

#include "base/clock.h"
#include "domain/id.h"
#include "domain/page.h"
#include "fuzz/fuzz.h"
#include "plugin/plugin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_sv text = fuzz_text(data, size);
    struct mg_err err = {0};
    struct mg_cursor c = {0};
    struct mg_id id;
    int64_t us = 0;
    int limit = 0;
    if (mg_plugin_name_ok(text)) {
        fuzz_check(text.len > 0 && text.len < MG_PLUGIN_NAME_MAX, "a plugin name has a bounded length");
        fuzz_check(!memchr(text.ptr, '/', text.len) && !memchr(text.ptr, '.', text.len) &&
                       !memchr(text.ptr, 0, text.len),
                   "a plugin name is safe in a path");
    }
    fuzz_check_err(mg_cursor_parse(a, MG_SV("scope"), text, &c, &err), &err);
    fuzz_check_err(mg_limit_parse(text, 20, 100, &limit, &err), &err);
    (void)mg_id_from(text, &id);
    if (mg_time_parse(text, &us)) {
        char out[MG_TIME_LEN];
        int64_t again = 0;
        mg_time_format(us, out);
        fuzz_check(mg_time_parse(mg_sv_of(out), &again) && again == us, "a time that was formatted is the same");
    }
    mg_arena_free(a);
    return 0;
}
