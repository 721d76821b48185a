/* run and session stream: a conversation, and following one. */
#include <stdlib.h>
#include <string.h>

#include "cmd/cli-session.h"
#include "cmd/cli-show.h"
#include "cmd/cli-ws.h"

struct follow {
    struct mg_cli *cli;
    struct mg_cli_show show;
    struct mg_cli_stream stream;
    struct mg_sv message_id; /* run: the turn starts with this event; empty: follow for ever */
    bool started, interrupted;
    bool interrupt_sent;
    int outcome;
};

static bool on_event(void *ctx, struct mg_sv raw, const struct mg_json *event)
{
    struct follow *f = ctx;
    struct mg_arena *a = f->cli->arena;

    mg_cli_show_event(&f->show, raw, event);
    if (!f->message_id.len)
        return true;
    f->started = f->started || mg_sv_eq(mg_json_get_str(a, event, "id"), f->message_id);
    f->interrupted = f->started && (f->interrupted || mg_sv_eqz(mg_json_get_str(a, event, "type"), "user.interrupt"));
    int outcome = mg_cli_outcome(a, event);
    if (!f->started || outcome < 0)
        return true;
    f->outcome = f->interrupted && outcome != MG_CLI_ACTION ? MG_CLI_INTERRUPTED : outcome;
    return false;
}

static void on_link(void *ctx, const char *lost, unsigned wait_ms)
{
    struct follow *f = ctx;

    if (lost)
        mg_cli_show_note(&f->show, "%s; tries again in %.1f s", lost, wait_ms / 1000.0);
}

/* The first Ctrl-C interrupts the session's turn (run) or ends (stream); the second always ends. */
static bool on_tick(void *ctx)
{
    struct follow *f = ctx;
    unsigned n = mg_cli_interrupts();

    mg_cli_show_tick(&f->show);
    if (n && f->message_id.len && !f->interrupt_sent) {
        f->interrupt_sent = true;
        mg_cli_show_note(&f->show, "interrupts the turn; once more to leave at once");
        return mg_cli_send(f->cli, f->stream.session_id, MG_SV(""), NULL) == MG_CLI_OK;
    }
    return n < (f->message_id.len ? 2u : 1u);
}

static int follow(struct follow *f, struct mg_cli *c)
{
    f->cli = c;
    f->stream.cli = c;
    f->stream.on_event = on_event;
    f->stream.on_link = on_link;
    f->stream.on_tick = on_tick;
    f->stream.ctx = f;
    mg_cli_show_start(&f->show, c);
    mg_cli_catch_interrupt();
    int status = mg_cli_stream(&f->stream);
    mg_cli_show_end(&f->show);
    return status;
}

int mg_cli_session_stream(struct mg_cli *c)
{
    struct follow f = {.stream = {.cli = c, .session_id = c->args[0]}};
    const char *after = mg_cli_get(c, "after");
    int status = MG_CLI_OK;

    if (!mg_cli_id_ok(c, "ID", c->args[0]))
        return MG_CLI_USAGE;
    if (after && !mg_cli_id_ok(c, "--after", after))
        return MG_CLI_USAGE;
    if (after)
        (void)snprintf(f.stream.after, sizeof(f.stream.after), "%s", after);
    else
        status = mg_cli_stream_from_now(&f.stream);
    return status == MG_CLI_OK ? follow(&f, c) : status;
}

/* ---- run ---- */

/* What run works with; made things are put away at the end unless --keep. */
struct setup {
    const char *agent, *environment, *session;
    bool made_agent, made_environment, made_session;
};

static const char *id_of(struct mg_cli *c, const struct mg_json *object)
{
    return mg_arena_strdup(c->arena, mg_json_get_str(c->arena, object, "id"));
}

static int make_parts(struct mg_cli *c, struct setup *s)
{
    const struct mg_json *made = NULL;
    int status = MG_CLI_OK;

    if (!s->agent) {
        status = mg_cli_make_agent(c, "mango run", mg_cli_get(c, "model"), mg_cli_get(c, "system"), &made);
        s->made_agent = status == MG_CLI_OK;
        s->agent = s->made_agent ? id_of(c, made) : NULL;
    }
    if (status == MG_CLI_OK && !s->environment) {
        status = mg_cli_make_environment(c, "mango run", "cloud", &made);
        s->made_environment = status == MG_CLI_OK;
        s->environment = s->made_environment ? id_of(c, made) : NULL;
    }
    if (status == MG_CLI_OK) {
        status = mg_cli_make_session(c, s->agent, s->environment, NULL, &made);
        s->made_session = status == MG_CLI_OK;
        s->session = s->made_session ? id_of(c, made) : NULL;
    }
    return status;
}

static void put_away_one(struct mg_cli *c, const char *method, const char *kind, const char *id, const char *tail)
{
    struct mg_err err = {0};
    int status = 0;
    struct mg_sv path = mg_arena_printf(c->arena, "/v1/%s/%s%s", kind, id, tail);

    if (mg_cli_try(c, method, path.ptr, MG_SV(""), NULL, &status, &err) < 0)
        (void)mg_cli_fail("%s %s is left behind: %s", kind, id, err.text);
}

static void put_away(struct mg_cli *c, const struct setup *s)
{
    if (s->made_session)
        put_away_one(c, "DELETE", "sessions", s->session, "");
    if (s->made_environment)
        put_away_one(c, "POST", "environments", s->environment, "/archive");
    if (s->made_agent)
        put_away_one(c, "POST", "agents", s->agent, "/archive");
}

static int converse(struct mg_cli *c, const char *session, struct mg_sv text, bool fresh)
{
    struct follow f = {.stream = {.cli = c, .session_id = session, .after = "start"}};
    int status = fresh ? MG_CLI_OK : mg_cli_stream_from_now(&f.stream);

    if (status == MG_CLI_OK)
        status = mg_cli_send(c, session, text, &f.message_id);
    if (status == MG_CLI_OK)
        status = follow(&f, c);
    return status == MG_CLI_OK ? f.outcome : status;
}

static bool ids_ok(struct mg_cli *c, const struct setup *s)
{
    return (!s->agent || mg_cli_id_ok(c, "--agent", s->agent)) &&
           (!s->environment || mg_cli_id_ok(c, "--environment", s->environment)) &&
           (!s->session || mg_cli_id_ok(c, "--session", s->session));
}

int mg_cli_run(struct mg_cli *c)
{
    struct setup s = {.agent = mg_cli_get(c, "agent"),
                      .environment = mg_cli_get(c, "environment"),
                      .session = mg_cli_get(c, "session")};
    bool fresh = !s.session;
    struct mg_sv text;
    int status = MG_CLI_OK;

    if (!ids_ok(c, &s) || !mg_cli_text_arg(c, c->args[0], &text))
        return MG_CLI_USAGE;
    if (!fresh && (s.agent || s.environment))
        return mg_cli_usage(c, "--session goes on with a session as it is: leave --agent and --environment out");
    if (s.agent && (mg_cli_has(c, "model") || mg_cli_has(c, "system")))
        return mg_cli_usage(c, "--model and --system are for an agent that run makes: leave them out with --agent");
    if (fresh)
        status = make_parts(c, &s);
    if (status == MG_CLI_OK)
        status = converse(c, s.session, text, fresh);
    bool keep = mg_cli_has(c, "keep") || status == MG_CLI_ACTION;
    if (!keep)
        put_away(c, &s);
    else if (s.made_session)
        fprintf(stderr,
                "mango: kept session %s (agent %s, environment %s); go on with: mango run --session %s \"TEXT\"\n",
                s.session, s.agent, s.environment, s.session);
    return status;
}
