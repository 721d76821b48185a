/* The table of the six tools, and the one door through which they are called. */
#include "tools/tools.h"

#include "tools/internal.h"
#include "tools/one-shot.h"
#include "tools/result.h"
#include "tools/shell.h"

enum { OPTIONAL = MG_FF_NULL | MG_FF_TEXT, REQUIRED = MG_FF_REQUIRED | MG_FF_TEXT };

static const struct mg_field_rule BASH_RULES[] = {
    {.name = "command", .type = MG_FT_STRING, .flags = OPTIONAL},
    {.name = "restart", .type = MG_FT_BOOL, .flags = OPTIONAL},
    {.name = "timeout_ms", .type = MG_FT_INT, .flags = OPTIONAL, .max = MG_TOOL_TIMEOUT_MAX_MS},
    {.name = NULL},
};
static const struct mg_field_rule READ_RULES[] = {
    {.name = "file_path", .type = MG_FT_STRING, .flags = REQUIRED},
    {.name = "view_range", .type = MG_FT_ARRAY, .flags = OPTIONAL},
    {.name = NULL},
};
static const struct mg_field_rule WRITE_RULES[] = {
    {.name = "file_path", .type = MG_FT_STRING, .flags = REQUIRED},
    {.name = "content", .type = MG_FT_STRING, .flags = REQUIRED},
    {.name = NULL},
};
static const struct mg_field_rule EDIT_RULES[] = {
    {.name = "file_path", .type = MG_FT_STRING, .flags = REQUIRED},
    {.name = "old_string", .type = MG_FT_STRING, .flags = REQUIRED},
    {.name = "new_string", .type = MG_FT_STRING, .flags = REQUIRED},
    {.name = "replace_all", .type = MG_FT_BOOL, .flags = OPTIONAL},
    {.name = NULL},
};
static const struct mg_field_rule SEARCH_RULES[] = {
    {.name = "pattern", .type = MG_FT_STRING, .flags = REQUIRED},
    {.name = "path", .type = MG_FT_STRING, .flags = OPTIONAL},
    {.name = NULL},
};

static const struct tool {
    const char *name;
    mg_rc (*run)(struct mg_tool_call *c);
    const struct mg_field_rule *rules;
} TOOLS[] = {
    {"bash", mg_tool_bash, BASH_RULES}, {"read", mg_tool_read, READ_RULES},   {"write", mg_tool_write, WRITE_RULES},
    {"edit", mg_tool_edit, EDIT_RULES}, {"glob", mg_tool_glob, SEARCH_RULES}, {"grep", mg_tool_grep, SEARCH_RULES},
};
enum { N_TOOLS = sizeof(TOOLS) / sizeof(TOOLS[0]) };

static const struct tool *find(struct mg_sv name)
{
    for (int i = 0; i < N_TOOLS; i++)
        if (mg_sv_eqz(name, TOOLS[i].name))
            return &TOOLS[i];
    return NULL;
}

bool mg_tool_known(struct mg_sv name)
{
    return find(name) != NULL;
}

struct mg_tools *mg_tools_new(const struct mg_tool_ops *ops, void *box)
{
    struct mg_tools *t = mg_xcalloc(1, sizeof(*t));

    t->ops = ops;
    t->box = box;
    return t;
}

void mg_tools_free(struct mg_tools *t)
{
    if (!t)
        return;
    mg_shell_close(t->shell);
    mg_one_shot_forget(t);
    free(t);
}

/* Reads the input into c->arg. A refusal is text for the model. */
static mg_rc take_input(struct mg_tool_call *c, const struct tool *tool, struct mg_sv input)
{
    struct mg_json *obj = NULL;
    const struct mg_json *out[MG_FIELDS_MAX] = {NULL};
    mg_rc rc = mg_json_parse(c->arena, input, &mg_json_raw_limits, &obj, c->err);

    if (rc == MG_OK)
        rc = mg_check_object(c->arena, obj, "", tool->rules, out, c->err);
    for (int i = 0; rc == MG_OK && tool->rules[i].name; i++)
        c->arg[i] = mg_given(out[i]) ? out[i] : NULL;
    return rc;
}

static mg_rc run(struct mg_tool_call *c, const struct tool *tool, struct mg_sv input)
{
    mg_rc rc = take_input(c, tool, input);

    if (rc < 0)
        return mg_tool_textf(c->ret, true, "the input of %s is not right: %s", tool->name, c->err->text);
    if (mg_cancel_fired(c->cancel))
        return mg_err_set(c->err, MG_ECANCELED, "cancelled before it started");
    rc = tool->run(c);
    return rc < 0 ? mg_err_wrap(c->err, rc, "%s", tool->name) : rc;
}

mg_rc mg_tool_run(struct mg_tools *t, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel,
                  struct mg_tool_result *ret, struct mg_err *err)
{
    struct mg_err local = {0};
    const struct tool *tool = find(name);
    struct mg_tool_call c = {.tools = t, .cancel = cancel, .ret = ret, .err = err ? err : &local};

    *ret = (struct mg_tool_result){.content = MG_BUF_INIT(MG_TOOL_CONTENT_MAX)};
    c.err->text[0] = '\0';
    if (!tool)
        return mg_tool_textf(ret, true, "there is no tool %.*s: the tools are bash, read, write, edit, glob and grep",
                             MG_SV_ARG(name));
    c.arena = mg_arena_new();
    mg_rc rc = run(&c, tool, input);
    mg_arena_free(c.arena);
    return rc;
}
