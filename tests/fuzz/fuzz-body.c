/* Bodies of the API: agents, environments, sessions, events. What an agent resolves to can be read back. */
#include "domain/agent.h"
#include "domain/environment.h"
#include "domain/event.h"
#include "domain/session.h"
#include "fuzz/fuzz.h"

static void check_agent(struct mg_arena *a, const struct mg_json *body)
{
    struct mg_agent agent = {0}, again = {0}, changed = {0};
    struct mg_err err = {0};
    int64_t version = 0;
    mg_rc rc = mg_agent_parse_create(a, body, &agent, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0)
        return;
    fuzz_check(mg_agent_load(a, mg_agent_format(a, &agent), &again, &err) == MG_OK, "a stored agent can be read");
    fuzz_check(mg_agent_same(a, &agent, &again), "and is the same");
    (void)!mg_agent_parse_update(a, body, &agent, &changed, &version, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_arena *a = mg_arena_new();
    const struct mg_json *body = NULL;
    struct mg_err err = {0};
    mg_rc rc = mg_body_parse(a, fuzz_text(data, size), &body, &err);
    fuzz_check_err(rc, &err);
    if (rc == MG_OK) {
        struct mg_environment env = {0}, changed = {0};
        struct mg_session_create create = {0};
        struct mg_session_update update = {0};
        struct mg_draft *drafts = NULL;
        int n = 0;
        check_agent(a, body);
        rc = mg_environment_parse_create(a, body, true, &env, &err);
        fuzz_check_err(rc, &err);
        if (rc == MG_OK)
            (void)!mg_environment_parse_update(a, body, &env, &changed, &err);
        fuzz_check_err(mg_session_parse_create(a, body, &create, &err), &err);
        fuzz_check_err(mg_session_parse_update(a, body, &update, &err), &err);
        const struct mg_json *events = mg_json_get(body, "events");
        if (events)
            fuzz_check_err(mg_drafts_parse(a, events, "events", false, &drafts, &n, &err), &err);
    }
    mg_arena_free(a);
    return 0;
}
