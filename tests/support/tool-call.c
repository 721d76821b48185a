#include "unit/unit.h"

#include "support/tool-call.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "json/json.h"

static int setup(void **state, const struct mg_tool_ops *ops)
{
    struct tool_case *t = mg_xcalloc(1, sizeof(*t));

    t->box = host_box_new();
    t->tools = mg_tools_new(ops, t->box);
    t->arena = mg_arena_new();
    *state = t;
    return 0;
}

int tool_case_setup(void **state)
{
    return setup(state, &host_box_ops);
}

int tool_case_setup_one_shot(void **state)
{
    return setup(state, &host_box_ops_one_shot);
}

int tool_case_teardown(void **state)
{
    struct tool_case *t = *state;

    mg_tools_free(t->tools);
    (void)host_box_free(t->box);
    mg_arena_free(t->arena);
    free(t);
    return 0;
}

static void look(struct tool_case *t, struct mg_sv content)
{
    struct mg_json *arr = NULL;
    struct mg_err err;

    assert_int_equal(mg_json_parse(t->arena, content, &mg_json_api_limits, &arr, &err), MG_OK);
    assert_true(mg_json_is(arr, MG_JSON_ARRAY));
    assert_int_equal(arr->n, 1);
    struct mg_sv type = mg_json_get_str(t->arena, mg_json_at(arr, 0), "type");
    struct mg_sv text = mg_json_get_str(t->arena, mg_json_at(arr, 0), "text");
    t->raw = mg_arena_strdup(t->arena, content);
    t->type = mg_arena_strdup(t->arena, type);
    t->text = mg_arena_strdup(t->arena, text);
    t->text_len = text.len;
    if (mg_sv_eqz(type, "image"))
        return;
    assert_sv_equal(type, "text");
    assert_true(text.len > 0);
    assert_true(mg_utf8_valid(text, NULL));
    assert_int_equal(mg_sv_find(text, '\0'), text.len);
}

const char *tool_call(struct tool_case *t, const char *name, struct mg_sv input)
{
    struct mg_tool_result r = {0};
    uint64_t before = mg_now_ns();

    t->raw = t->text = t->type = "";
    t->text_len = 0;
    t->rc = t->run ? t->run(t->ctx, mg_sv_of(name), input, t->cancel, &r, &t->err)
                   : mg_tool_run(t->tools, mg_sv_of(name), input, t->cancel, &r, &t->err);
    t->ms = (unsigned)((mg_now_ns() - before) / 1000000);
    t->is_error = r.is_error;
    if (t->rc == MG_OK)
        look(t, mg_buf_view(&r.content));
    mg_tool_result_done(&r);
    return t->text;
}

const char *tool_callv(struct tool_case *t, const char *name, ...)
{
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(256 * 1024 * 1024);
    struct mg_jw w = mg_jw_to(&in);
    va_list ap;

    mg_jw_obj(&w);
    va_start(ap, name);
    for (const char *key; (key = va_arg(ap, const char *));) {
        const char *value = va_arg(ap, const char *);
        if (value[0] == '\x01')
            mg_jw_kraw(&w, key, mg_sv_of(value + 1));
        else
            mg_jw_kstrz(&w, key, value);
    }
    va_end(ap);
    mg_jw_obj_end(&w);
    return tool_call(t, name, mg_buf_view(&in));
}

const char *tool_bash(struct tool_case *t, const char *command, int timeout_ms)
{
    char ms[16];

    (void)snprintf(ms, sizeof(ms), "\x01%d", timeout_ms);
    return tool_callv(t, "bash", "command", command, "timeout_ms", ms, NULL);
}

void tool_peak_reset(void)
{
    mg_autofd int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        assert_int_equal(write(fd, "5", 1), 1);
}

long tool_peak_kib(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#endif
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}
