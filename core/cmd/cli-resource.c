/* Agents, environments and sessions: list, show, create, change. */
#include <string.h>

#include "base/utf8.h"
#include "cmd/cli-session.h"
#include "domain/id.h"

enum { PAGE = 100 /* objects of one request */, COLUMNS_MAX = 5, CELL_MAX = 60 };

struct column {
    const char *title, *key;
    int width;
};

static void print_cell(struct mg_cli *c, const struct mg_json *object, const struct column *col, bool last)
{
    const struct mg_json *v = mg_json_get(object, col->key);
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(8192);
    struct mg_sv s = mg_json_is(v, MG_JSON_STRING)  ? mg_json_str(c->arena, v)
                     : v && v->type != MG_JSON_NULL ? v->raw
                                                    : MG_SV("-");

    mg_cli_clean(&text, mg_sv_n(s.ptr, mg_utf8_floor(s, CELL_MAX)), false);
    int pad = last ? 0 : col->width - (int)text.len;
    printf("%s%*s%s", text.ptr ? text.ptr : "", pad > 0 ? pad : 0, "", last ? "\n" : "  ");
}

static void print_rows(struct mg_cli *c, const struct mg_json *data, const struct column *cols, bool *header)
{
    for (const struct mg_json *o = data ? data->child : NULL; o; o = o->next) {
        if (!c->text) {
            mg_cli_print(c, o->raw);
            continue;
        }
        for (int i = 0; !*header && cols[i].title; i++)
            printf("%-*s%s", cols[i + 1].title ? cols[i].width : 0, cols[i].title, cols[i + 1].title ? "  " : "\n");
        *header = true;
        for (int i = 0; cols[i].title; i++)
            print_cell(c, o, &cols[i], !cols[i + 1].title);
    }
}

/* Walks the pages until --limit objects were shown. */
static int list(struct mg_cli *c, const char *path, const char *query, const struct column *cols)
{
    struct mg_sv page = MG_SV("");
    int64_t limit = 0;
    bool header = false;

    if (!mg_cli_int(c, "limit", 1, 1000000, 50, &limit))
        return MG_CLI_USAGE;
    while (limit > 0) {
        const struct mg_json *answer = NULL;
        struct mg_sv url =
            mg_arena_printf(c->arena, "%s?limit=%lld%s%s%.*s", path, (long long)(limit < PAGE ? limit : PAGE), query,
                            page.len ? "&page=" : "", MG_SV_ARG(page));
        int status = mg_cli_call(c, "GET", url.ptr, MG_SV(""), &answer);
        if (status != MG_CLI_OK)
            return status;
        const struct mg_json *data = mg_json_get(answer, "data");
        print_rows(c, data, cols, &header);
        page = mg_json_get_str(c->arena, answer, "next_page");
        limit -= data ? data->n : limit;
        if (!page.len)
            break;
    }
    if (c->text && !header)
        puts("(none)");
    return MG_CLI_OK;
}

static int call_and_print(struct mg_cli *c, const char *method, const char *kind, const char *id, const char *tail)
{
    const struct mg_json *answer = NULL;

    if (!mg_cli_id_ok(c, "ID", id))
        return MG_CLI_USAGE;
    struct mg_sv path = mg_arena_printf(c->arena, "/v1/%s/%s%s", kind, id, tail);
    int status = mg_cli_call(c, method, path.ptr, MG_SV(""), &answer);
    if (status == MG_CLI_OK)
        mg_cli_print(c, answer->raw);
    return status;
}

int mg_cli_session_list(struct mg_cli *c)
{
    static const struct column COLS[] = {{"ID", "id", 32},
                                         {"STATUS", "status", 12},
                                         {"CREATED", "created_at", 27},
                                         {"TITLE", "title", 0},
                                         {NULL, NULL, 0}};
    const char *agent = mg_cli_get(c, "agent"), *status = mg_cli_get(c, "status");

    if ((agent && !mg_cli_id_ok(c, "--agent", agent)) || (status && !mg_cli_id_ok(c, "--status", status)))
        return MG_CLI_USAGE;
    struct mg_sv query = mg_arena_printf(c->arena, "%s%s%s%s%s", agent ? "&agent_id=" : "", agent ? agent : "",
                                         status ? "&statuses[]=" : "", status ? status : "",
                                         mg_cli_has(c, "archived") ? "&include_archived=true" : "");
    return list(c, "/v1/sessions", query.ptr, COLS);
}

int mg_cli_session_archive(struct mg_cli *c)
{
    return call_and_print(c, "POST", "sessions", c->args[0], "/archive");
}

int mg_cli_session_delete(struct mg_cli *c)
{
    return call_and_print(c, "DELETE", "sessions", c->args[0], "");
}

int mg_cli_session_events(struct mg_cli *c)
{
    static const struct column COLS[] = {
        {"ID", "id", 32}, {"PROCESSED", "processed_at", 27}, {"TYPE", "type", 0}, {NULL, NULL, 0}};

    if (!mg_cli_id_ok(c, "ID", c->args[0]))
        return MG_CLI_USAGE;
    struct mg_sv path = mg_arena_printf(c->arena, "/v1/sessions/%s/events", c->args[0]);
    return list(c, path.ptr, mg_cli_has(c, "newest") ? "&order=desc" : "", COLS);
}

static int print_id(struct mg_cli *c, struct mg_sv id)
{
    if (c->text)
        printf("%.*s\n", MG_SV_ARG(id));
    else
        printf("{\"id\":\"%.*s\"}\n", MG_SV_ARG(id));
    return MG_CLI_OK;
}

int mg_cli_session_send(struct mg_cli *c)
{
    struct mg_sv text, id = MG_SV("");

    if (!mg_cli_id_ok(c, "ID", c->args[0]) || !mg_cli_text_arg(c, c->args[1], &text))
        return MG_CLI_USAGE;
    int status = mg_cli_send(c, c->args[0], text, &id);
    return status == MG_CLI_OK ? print_id(c, id) : status;
}

int mg_cli_session_interrupt(struct mg_cli *c)
{
    struct mg_sv id = MG_SV("");

    if (!mg_cli_id_ok(c, "ID", c->args[0]))
        return MG_CLI_USAGE;
    int status = mg_cli_send(c, c->args[0], MG_SV(""), &id);
    return status == MG_CLI_OK ? print_id(c, id) : status;
}

int mg_cli_agent_list(struct mg_cli *c)
{
    static const struct column COLS[] = {{"ID", "id", 32},
                                         {"VERSION", "version", 7},
                                         {"CREATED", "created_at", 27},
                                         {"NAME", "name", 0},
                                         {NULL, NULL, 0}};

    return list(c, "/v1/agents", mg_cli_has(c, "archived") ? "&include_archived=true" : "", COLS);
}

int mg_cli_agent_create(struct mg_cli *c)
{
    const struct mg_json *made = NULL;
    int status = mg_cli_make_agent(c, c->args[0], mg_cli_get(c, "model"), mg_cli_get(c, "system"), &made);

    if (status == MG_CLI_OK)
        mg_cli_print(c, made->raw);
    return status;
}

int mg_cli_environment_list(struct mg_cli *c)
{
    static const struct column COLS[] = {
        {"ID", "id", 32}, {"CREATED", "created_at", 27}, {"NAME", "name", 0}, {NULL, NULL, 0}};

    return list(c, "/v1/environments", mg_cli_has(c, "archived") ? "&include_archived=true" : "", COLS);
}

int mg_cli_environment_create(struct mg_cli *c)
{
    const struct mg_json *made = NULL;
    const char *type = mg_cli_get(c, "type");

    if (type && strcmp(type, "cloud") != 0 && strcmp(type, "self_hosted") != 0)
        return mg_cli_usage(c, "--type must be cloud or self_hosted; got %s", type);
    int status = mg_cli_make_environment(c, c->args[0], type ? type : "cloud", &made);
    if (status == MG_CLI_OK)
        mg_cli_print(c, made->raw);
    return status;
}
