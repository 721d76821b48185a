#include "cmd/cli-session.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "json/write.h"

enum { TEXT_MAX = 16 * 1024 * 1024, BODY_MAX = 64 * 1024 * 1024, ID_PATH = 256 };

static volatile sig_atomic_t interrupts;

static void count_interrupt(int sig)
{
    (void)sig;
    interrupts = interrupts + 1;
}

void mg_cli_catch_interrupt(void)
{
    const struct sigaction sa = {.sa_handler = count_interrupt}; /* without SA_RESTART: waits end */

    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
}

unsigned mg_cli_interrupts(void)
{
    return (unsigned)interrupts;
}

bool mg_cli_text_arg(struct mg_cli *c, const char *arg, struct mg_sv *ret)
{
    mg_auto(buf) struct mg_buf all = MG_BUF_INIT(TEXT_MAX);
    char piece[4096];
    ssize_t n = 0;

    *ret = mg_sv_of(arg);
    if (strcmp(arg, "-") == 0) {
        while ((n = read(STDIN_FILENO, piece, sizeof(piece))) > 0)
            mg_buf_append(&all, piece, (size_t)n);
        if (n < 0 || !mg_buf_ok(&all)) {
            (void)mg_cli_fail("standard input cannot be read, or holds more than %d bytes", TEXT_MAX);
            return false;
        }
        *ret = mg_arena_sv(c->arena, mg_buf_view(&all));
    }
    if (mg_sv_trim(*ret).len == 0) {
        (void)mg_cli_usage(c, "the text is empty");
        return false;
    }
    return true;
}

static int post(struct mg_cli *c, const char *path, struct mg_buf *body, const struct mg_json **ret)
{
    if (!mg_buf_ok(body))
        return mg_cli_fail("the request would have more than %d bytes", BODY_MAX);
    return mg_cli_call(c, "POST", path, mg_buf_view(body), ret);
}

int mg_cli_make_environment(struct mg_cli *c, const char *name, const char *type, const struct mg_json **ret)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(BODY_MAX);
    struct mg_jw w = mg_jw_to(&body);

    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "name", name);
    mg_jw_key(&w, "config");
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", type);
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    return post(c, "/v1/environments", &body, ret);
}

/* The first model that the server lists. */
static int find_model(struct mg_cli *c, const char **ret)
{
    const struct mg_json *page = NULL;
    int status = mg_cli_call(c, "GET", "/v1/models?limit=1", MG_SV(""), &page);

    if (status != MG_CLI_OK)
        return status;
    struct mg_sv id = mg_json_get_str(c->arena, mg_json_at(mg_json_get(page, "data"), 0), "id");
    if (!id.len)
        return mg_cli_fail("the server names no model: give --model ID, or set MANGO_MODEL_ID for mangod");
    *ret = mg_arena_strdup(c->arena, id);
    return MG_CLI_OK;
}

int mg_cli_make_agent(struct mg_cli *c, const char *name, const char *model, const char *system,
                      const struct mg_json **ret)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(BODY_MAX);
    struct mg_jw w = mg_jw_to(&body);
    int status = model ? MG_CLI_OK : find_model(c, &model);

    if (status != MG_CLI_OK)
        return status;
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "name", name);
    mg_jw_kstrz(&w, "model", model);
    if (system)
        mg_jw_kstrz(&w, "system", system);
    mg_jw_kraw(&w, "tools", MG_SV("[{\"type\":\"agent_toolset_20260401\"}]"));
    mg_jw_obj_end(&w);
    return post(c, "/v1/agents", &body, ret);
}

int mg_cli_make_session(struct mg_cli *c, const char *agent, const char *environment, const char *title,
                        const struct mg_json **ret)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(BODY_MAX);
    struct mg_jw w = mg_jw_to(&body);

    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "agent", agent);
    mg_jw_kstrz(&w, "environment_id", environment);
    if (title)
        mg_jw_kstrz(&w, "title", title);
    mg_jw_obj_end(&w);
    return post(c, "/v1/sessions", &body, ret);
}

int mg_cli_send(struct mg_cli *c, const char *session, struct mg_sv text, struct mg_sv *ret_id)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(BODY_MAX);
    struct mg_jw w = mg_jw_to(&body);
    const struct mg_json *answer = NULL;
    char path[ID_PATH];

    mg_jw_obj(&w);
    mg_jw_key(&w, "events");
    mg_jw_arr(&w);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", text.len ? "user.message" : "user.interrupt");
    if (text.len) {
        mg_jw_key(&w, "content");
        mg_jw_arr(&w);
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", "text");
        mg_jw_kstr(&w, "text", text);
        mg_jw_obj_end(&w);
        mg_jw_arr_end(&w);
    }
    mg_jw_obj_end(&w);
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    (void)snprintf(path, sizeof(path), "/v1/sessions/%s/events", session);
    int status = post(c, path, &body, &answer);
    if (status == MG_CLI_OK && ret_id)
        *ret_id = mg_json_get_str(c->arena, mg_json_at(mg_json_get(answer, "data"), 0), "id");
    return status;
}
