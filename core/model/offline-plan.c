#include "model/offline-plan.h"

#include <ctype.h>

#include "json/write.h"

enum { INPUT_MAX = 1024 * 1024 /* bytes of one tool input; the words come from a request that is bounded already */ };

struct planner {
    struct mg_arena *a;
    const struct mg_json *tools;
    struct mg_offline_step *steps;
    int n, max;
};

/* One member of a tool input; key NULL: none. */
struct arg {
    const char *key;
    struct mg_sv value;
};

static bool has_tool(const struct planner *p, struct mg_sv name)
{
    if (!mg_json_is(p->tools, MG_JSON_ARRAY))
        return false;
    for (const struct mg_json *t = p->tools->child; t; t = t->next) {
        if (mg_sv_eq(mg_json_get_str(p->a, t, "name"), name))
            return true;
    }
    return false;
}

static bool add(struct planner *p, struct mg_sv tool, struct mg_sv input, struct mg_sv say, struct mg_sv label)
{
    if (p->n == p->max || !has_tool(p, tool))
        return false;
    p->steps[p->n++] = (struct mg_offline_step){tool, input, say, label};
    return true;
}

static struct mg_sv input_of(struct planner *p, const struct arg args[3])
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(INPUT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    for (int i = 0; i < 3 && args[i].key; i++)
        mg_jw_kstr(&w, args[i].key, args[i].value);
    mg_jw_obj_end(&w);
    return mg_buf_ok(&b) ? mg_arena_sv(p->a, mg_buf_view(&b)) : MG_SV("{}");
}

static bool add_bash(struct planner *p, struct mg_sv command, const char *say)
{
    const struct arg args[3] = {{"command", command}};
    return add(p, MG_SV("bash"), input_of(p, args), mg_sv_of(say), mg_arena_printf(p->a, "`%.*s`", MG_SV_ARG(command)));
}

/* The rest of line behind a word, when it begins with that word in any case and something follows. */
static bool after_word(struct mg_sv line, const char *word, struct mg_sv *ret)
{
    size_t n = strlen(word);
    if (line.len <= n || !mg_sv_eq_nocase(mg_sv_n(line.ptr, n), mg_sv_of(word)))
        return false;
    *ret = mg_sv_trim(mg_sv_from(line, n));
    return ret->len > 0;
}

static struct mg_sv unquote(struct mg_sv s)
{
    s = mg_sv_trim(s);
    if (s.len >= 2 && strchr("`\"'", s.ptr[0]) && s.ptr[s.len - 1] == s.ptr[0])
        return mg_sv_n(s.ptr + 1, s.len - 2);
    return s;
}

/* Cuts *s before sep; false and *s as it was when sep is not in it. */
static bool cut_at(struct mg_sv *s, const char *sep, struct mg_sv *ret_after)
{
    const char *at = memmem(s->ptr, s->len, sep, strlen(sep));
    if (!at)
        return false;
    *ret_after = mg_sv_from(*s, (size_t)(at - s->ptr) + strlen(sep));
    s->len = (size_t)(at - s->ptr);
    return true;
}

static bool plan_run(struct planner *p, struct mg_sv rest)
{
    return add_bash(p, unquote(rest), "I will run this command.");
}

/* "run tests" is prose, "run: make" and "run `make`" are commands. */
static bool plan_run_quoted(struct planner *p, struct mg_sv rest)
{
    struct mg_sv command;
    if (rest.ptr[0] != '`' || rest.len < 3)
        return false;
    command = mg_sv_from(rest, 1);
    command = mg_sv_n(command.ptr, mg_sv_find(command, '`'));
    return command.len > 0 && plan_run(p, command);
}

static bool plan_write(struct planner *p, struct mg_sv rest)
{
    struct mg_sv text;
    if (!cut_at(&rest, ":", &text))
        return false;
    struct mg_sv file = unquote(rest);
    if (file.len == 0 || mg_sv_find(file, ' ') < file.len)
        return false;
    const struct arg args[3] = {{"file_path", file},
                                {"content", mg_arena_printf(p->a, "%.*s\n", MG_SV_ARG(mg_sv_trim(text)))}};
    return add(p, MG_SV("write"), input_of(p, args), mg_arena_printf(p->a, "I will write %.*s.", MG_SV_ARG(file)),
               mg_arena_printf(p->a, "write %.*s", MG_SV_ARG(file)));
}

static bool plan_read(struct planner *p, struct mg_sv rest)
{
    struct mg_sv file = unquote(rest);
    if (mg_sv_find(file, ' ') < file.len)
        return false;
    const struct arg args[3] = {{"file_path", file}};
    return add(p, MG_SV("read"), input_of(p, args), mg_arena_printf(p->a, "I will read %.*s.", MG_SV_ARG(file)),
               mg_arena_printf(p->a, "read %.*s", MG_SV_ARG(file)));
}

static bool plan_edit(struct planner *p, struct mg_sv rest)
{
    struct mg_sv change, after;
    if (!cut_at(&rest, ":", &change) || !cut_at(&change, "->", &after))
        return false;
    struct mg_sv file = unquote(rest);
    const struct arg args[3] = {{"file_path", file}, {"old_string", unquote(change)}, {"new_string", unquote(after)}};
    return add(p, MG_SV("edit"), input_of(p, args), mg_arena_printf(p->a, "I will edit %.*s.", MG_SV_ARG(file)),
               mg_arena_printf(p->a, "edit %.*s", MG_SV_ARG(file)));
}

static bool plan_glob(struct planner *p, struct mg_sv rest)
{
    struct mg_sv pattern = unquote(rest);
    if (mg_sv_find(pattern, ' ') < pattern.len)
        return false;
    const struct arg args[3] = {{"pattern", pattern}};
    return add(p, MG_SV("glob"), input_of(p, args),
               mg_arena_printf(p->a, "I will look for files like %.*s.", MG_SV_ARG(pattern)),
               mg_arena_printf(p->a, "glob %.*s", MG_SV_ARG(pattern)));
}

static bool plan_grep(struct planner *p, struct mg_sv rest)
{
    struct mg_sv path = {0};
    bool with_path = cut_at(&rest, " in ", &path);
    struct mg_sv pattern = unquote(rest);
    const struct arg args[3] = {{"pattern", pattern}, {with_path ? "path" : NULL, unquote(path)}};
    return add(p, MG_SV("grep"), input_of(p, args),
               mg_arena_printf(p->a, "I will search for %.*s.", MG_SV_ARG(pattern)),
               mg_arena_printf(p->a, "grep %.*s", MG_SV_ARG(pattern)));
}

static bool plan_use(struct planner *p, struct mg_sv rest)
{
    size_t n = mg_sv_find(rest, ' ');
    struct mg_sv name = mg_sv_n(rest.ptr, n), input = mg_sv_trim(mg_sv_from(rest, n));
    if (input.len == 0)
        input = MG_SV("{}");
    if (input.ptr[0] != '{' || mg_json_check(input, 64, NULL) < 0)
        return false;
    return add(p, name, input, mg_arena_printf(p->a, "I will use %.*s.", MG_SV_ARG(name)), name);
}

static const struct {
    const char *word;
    bool (*plan)(struct planner *p, struct mg_sv rest);
} directives[] = {
    {"run:", plan_run},   {"run ", plan_run_quoted}, {"$ ", plan_run},     {"write ", plan_write}, {"read ", plan_read},
    {"edit ", plan_edit}, {"glob ", plan_glob},      {"grep ", plan_grep}, {"use ", plan_use},
};

static bool plan_line(struct planner *p, struct mg_sv line)
{
    for (size_t i = 0; i < sizeof(directives) / sizeof(directives[0]); i++) {
        struct mg_sv rest;
        if (after_word(line, directives[i].word, &rest) && directives[i].plan(p, rest))
            return true;
    }
    return false;
}

/* True when a word of text begins with stem, in any case. */
static bool mentions(struct mg_sv text, const char *stem)
{
    size_t n = strlen(stem);
    for (size_t i = 0; i + n <= text.len; i++) {
        bool at_word = i == 0 || !isalnum((unsigned char)text.ptr[i - 1]);
        if (at_word && mg_sv_eq_nocase(mg_sv_n(text.ptr + i, n), mg_sv_of(stem)))
            return true;
    }
    return false;
}

static void plan_sentence(struct planner *p, struct mg_sv text)
{
    bool list = mentions(text, "list") || mentions(text, "show"),
         count = mentions(text, "count") || mentions(text, "how many");
    bool files = mentions(text, "file") || mentions(text, "folder") || mentions(text, "director");
    if (list || (files && !count))
        add_bash(p, MG_SV("ls -la"), "I will look at what is here.");
    if (count)
        add_bash(p, MG_SV("ls -1 | wc -l"), list ? "Now I will count them." : "I will count what is here.");
    if (!list && !count && !files && mentions(text, "run"))
        add_bash(p, MG_SV("pwd; uname -sr; date -u +%Y"), "I will run a few commands to see where I am.");
}

int mg_offline_plan(struct mg_arena *a, struct mg_sv text, const struct mg_json *tools, struct mg_offline_step *steps,
                    int max)
{
    struct planner p = {.a = a, .tools = tools, .steps = steps, .max = max};
    struct mg_sv rest = text;
    while (rest.len > 0)
        (void)plan_line(&p, mg_sv_trim(mg_sv_split(&rest, '\n')));
    if (p.n == 0)
        plan_sentence(&p, text);
    return p.n;
}
