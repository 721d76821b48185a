/* What a session waits for: shown with the session, and settled by `session unwedge`. */
#include "cmd/cli-client.h"

/* NULL: a server that does not tell. */
static int waiting(struct mg_cli *c, const char *id, const struct mg_json **ret)
{
    struct mg_sv path = mg_arena_printf(c->arena, "/v1/sessions/%s/waiting", id);
    return mg_cli_call(c, "GET", path.ptr, MG_SV(""), ret);
}

static int get(struct mg_cli *c, const char *id, const struct mg_json **ret)
{
    if (!mg_cli_id_ok(c, "ID", id))
        return MG_CLI_USAGE;
    struct mg_sv path = mg_arena_printf(c->arena, "/v1/sessions/%s", id);
    return mg_cli_call(c, "GET", path.ptr, MG_SV(""), ret);
}

int mg_cli_session_show(struct mg_cli *c)
{
    const struct mg_json *session = NULL, *waits = NULL;
    int status = get(c, c->args[0], &session);

    if (status == MG_CLI_OK)
        status = waiting(c, c->args[0], &waits);
    if (status != MG_CLI_OK)
        return status;
    struct mg_sv raw = session->raw;
    mg_cli_print(c,
                 mg_arena_printf(c->arena, "%.*s,\"waiting\":%.*s}", (int)raw.len - 1, raw.ptr, MG_SV_ARG(waits->raw)));
    return MG_CLI_OK;
}

static struct mg_sv text(struct mg_cli *c, const struct mg_json *o, const char *key)
{
    const struct mg_json *v = mg_json_get(o, key);
    return mg_json_is(v, MG_JSON_STRING) ? mg_json_str(c->arena, v) : MG_SV("-");
}

static void print_calls(struct mg_cli *c, const struct mg_json *waits)
{
    const struct mg_json *calls = mg_json_get(waits, "calls");

    for (const struct mg_json *v = calls ? calls->child : NULL; v; v = v->next)
        printf("  %.*s  %.*s waits for %.*s since %.*s\n", MG_SV_ARG(text(c, v, "event_id")),
               MG_SV_ARG(text(c, v, "name")), MG_SV_ARG(text(c, v, "waits_for")), MG_SV_ARG(text(c, v, "since")));
}

static int64_t number(const struct mg_json *o, const char *key)
{
    int64_t n = 0;
    const struct mg_json *v = mg_json_get(o, key);
    return v && mg_sv_to_i64(v->raw, &n) ? n : 0;
}

/* At rest: nothing runs, nothing is open, nothing is unread. */
static bool at_rest(struct mg_cli *c, const struct mg_json *waits)
{
    const struct mg_json *calls = mg_json_get(waits, "calls");
    return mg_sv_eqz(text(c, waits, "step"), "none") && mg_sv_eqz(text(c, waits, "status"), "idle") &&
           (!calls || calls->n == 0) && number(waits, "unprocessed_messages") == 0 &&
           number(waits, "queued_messages") == 0;
}

static void show(struct mg_cli *c, const struct mg_json *waits)
{
    if (!c->text) {
        mg_cli_print(c, waits->raw);
        return;
    }
    printf("%.*s, step %.*s since %.*s; %lld messages wait\n", MG_SV_ARG(text(c, waits, "status")),
           MG_SV_ARG(text(c, waits, "step")), MG_SV_ARG(text(c, waits, "since")),
           (long long)number(waits, "unprocessed_messages"));
    print_calls(c, waits);
}

int mg_cli_session_unwedge(struct mg_cli *c)
{
    const struct mg_json *waits = NULL, *done = NULL;

    if (!mg_cli_id_ok(c, "ID", c->args[0]))
        return MG_CLI_USAGE;
    int status = waiting(c, c->args[0], &waits);
    if (status != MG_CLI_OK)
        return status;
    show(c, waits);
    if (!mg_cli_has(c, "yes")) {
        if (at_rest(c, waits))
            return MG_CLI_OK;
        (void)fprintf(stderr, "mango: nothing was changed; --yes closes what is open and brings the session to rest\n");
        return MG_CLI_ACTION;
    }
    struct mg_sv path = mg_arena_printf(c->arena, "/v1/sessions/%s/unwedge", c->args[0]);
    status = mg_cli_call(c, "POST", path.ptr, MG_SV(""), &done);
    if (status == MG_CLI_OK && c->text)
        printf("settled: %lld calls closed\n", (long long)number(done, "settled_calls"));
    else if (status == MG_CLI_OK)
        mg_cli_print(c, done->raw);
    return status;
}
