/* Every command with its options and examples. */
#include "cmd/cli.h"

static const struct mg_cli_opt RUN_OPTS[] = {
    {"agent", "ID", "an agent that exists (default: a new one with the built-in tools)"},
    {"environment", "ID", "an environment that exists (default: a new one of type cloud)"},
    {"session", "ID", "go on with this session"},
    {"model", "ID", "model of a new agent (default: the server's)"},
    {"system", "TEXT", "system prompt of a new agent"},
    {"keep", NULL, "keep what was made; else it is put away at the end"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt STREAM_OPTS[] = {
    {"after", "CURSOR", "id of the last event seen, or start for the whole history (default: from now on)"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt SESSIONS_OPTS[] = {
    {"limit", "N", "at most so many (default: 50)"},
    {"agent", "ID", "only sessions of this agent"},
    {"status", "STATUS", "only idle, running, rescheduling or terminated ones"},
    {"archived", NULL, "archived ones too"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt UNWEDGE_OPTS[] = {
    {"yes", NULL, "settle it; else it is only shown"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt EVENTS_OPTS[] = {
    {"limit", "N", "at most so many (default: 50)"},
    {"newest", NULL, "the newest first"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt LIST_OPTS[] = {
    {"limit", "N", "at most so many (default: 50)"},
    {"archived", NULL, "archived ones too"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt AGENT_OPTS[] = {
    {"model", "ID", "its model (default: the server's)"},
    {"system", "TEXT", "its system prompt"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt ENVIRONMENT_OPTS[] = {
    {"type", "TYPE", "cloud (default) or self_hosted"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt KEY_OPTS[] = {
    {"workspace", "ID", "workspace of the key (default: wrkspc_default)"},
    {"environment", "ID", "make a key for the workers of this environment alone"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt KEYS_OPTS[] = {
    {"workspace", "ID", "only keys of this workspace"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt WEBHOOK_OPTS[] = {
    {"types", "LIST", "what it is told of: types of events with commas between them, or all"},
    {"workspace", "ID", "workspace whose events these are (default: wrkspc_default)"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt WEBHOOKS_OPTS[] = {
    {"workspace", "ID", "only webhooks of this workspace"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt CONFORMANCE_OPTS[] = {
    {"only", "PART", "only cases whose name holds this"},
    {"live", NULL, "make and destroy sandboxes at the service that the plugin speaks to"},
    {"launcher", NULL, "the launcher half: launch, watch and stop real boxes"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt ORPHANS_OPTS[] = {
    {"destroy", NULL, "destroy those that are older than MANGO_SANDBOX_ORPHAN_GRACE"},
    {"now", NULL, "with --destroy: of any age"},
    {"backend", "NAME", "only this one (default: MANGO_SANDBOX and those that stored sandboxes name)"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt DOCTOR_OPTS[] = {
    {"url", "URL", "the running server (default: MANGO_BASE_URL, else http://127.0.0.1:8080)"},
    {"model", NULL,
     "ask the model endpoint for what turns need: stream, tools, usage, cache, errors (a few small requests)"},
    {NULL, NULL, NULL},
};
static const struct mg_cli_opt MIGRATE_OPTS[] = {
    {"check", NULL, "change nothing; status 1 when the schema is older than this program"},
    {NULL, NULL, NULL},
};

const struct mg_cli_command mg_cli_commands[] = {
    {"run", "TEXT", "send a message and show what happens until the turn ends", RUN_OPTS, 1, 1, true, false, mg_cli_run,
     "  mango run \"list the files here and count them\"\n"
     "  mango run --keep --system \"Answer in French.\" \"What is in README.md?\"\n"
     "  git diff | mango run -\n\n"
     "TEXT \"-\" reads standard input. Ctrl-C interrupts the turn, twice leaves at once.\n"
     "Status: 0 end of turn, 1 error, 2 usage, 3 waits for a confirmation or a tool result,\n"
     "4 interrupted, 5 ended otherwise (refusal, budget reached, retries exhausted).\n"},
    {"session stream", "ID", "follow a session's events over WebSocket", STREAM_OPTS, 1, 1, true, false,
     mg_cli_session_stream,
     "  mango session stream sesn_01H8X --after start\n"
     "  mango session stream sesn_01H8X --format json | jq .type\n\n"
     "A lost connection or a restarted server is met by itself: no event is lost or repeated. Ctrl-C ends it (status "
     "4).\n"},
    {"session list", "", "list sessions, newest first", SESSIONS_OPTS, 0, 0, true, false, mg_cli_session_list,
     "  mango session list --status running\n"},
    {"session show", "ID", "show a session, and what it waits for", NULL, 1, 1, true, false, mg_cli_session_show, NULL},
    {"session events", "ID", "list a session's events", EVENTS_OPTS, 1, 1, true, false, mg_cli_session_events,
     "  mango session events sesn_01H8X --newest --limit 5 --format json\n"},
    {"session send", "ID TEXT", "send a message without waiting", NULL, 2, 2, true, false, mg_cli_session_send,
     "  mango session send sesn_01H8X \"and now the tests\"\n"},
    {"session interrupt", "ID", "interrupt the running turn", NULL, 1, 1, true, false, mg_cli_session_interrupt, NULL},
    {"session unwedge", "ID", "show what a session waits for, and with --yes bring it to rest", UNWEDGE_OPTS, 1, 1,
     true, false, mg_cli_session_unwedge,
     "  mango session unwedge sesn_01H8X\n  mango session unwedge sesn_01H8X --yes\n\n"
     "Every open call gets a result written by the server, what was not read yet goes into the transcript, and the "
     "session\n"
     "is idle. Status: 0 it is at rest, 3 it is not and --yes is missing.\n"},
    {"session archive", "ID", "archive a session: it stays readable", NULL, 1, 1, true, false, mg_cli_session_archive,
     NULL},
    {"session delete", "ID", "delete a session, its events and its sandbox", NULL, 1, 1, true, false,
     mg_cli_session_delete, NULL},
    {"agent list", "", "list agents", LIST_OPTS, 0, 0, true, false, mg_cli_agent_list, NULL},
    {"agent create", "NAME", "make an agent with the built-in tools", AGENT_OPTS, 1, 1, true, false,
     mg_cli_agent_create, "  mango agent create helper --system \"Be brief.\"\n"},
    {"environment list", "", "list environments", LIST_OPTS, 0, 0, true, false, mg_cli_environment_list, NULL},
    {"environment create", "NAME", "make an environment", ENVIRONMENT_OPTS, 1, 1, true, false,
     mg_cli_environment_create, "  mango environment create builds --type cloud\n"},
    {"api-key create", "[NAME]", "make an API key and print it, once", KEY_OPTS, 0, 1, false, true, mg_cli_key_create,
     "  MANGO_API_KEY=$(mango api-key create laptop --format text)\n\n"
     "Works on the database of the server's settings: run it on the server's machine, as its user. mangod may run or "
     "not.\n"},
    {"api-key list", "", "list API keys; the keys themselves are not stored", KEYS_OPTS, 0, 0, false, true,
     mg_cli_key_list, NULL},
    {"api-key revoke", "ID", "revoke an API key; its streams end within a second", NULL, 1, 1, false, true,
     mg_cli_key_revoke, NULL},
    {"vault new-key", "[ID]", "add a key to the keyring and make it the active one; without a file, print a keyring",
     NULL, 0, 1, false, true, mg_cli_vault_new_key,
     "  mango vault new-key --vault-keyring-file /etc/mango/keyring.json\n"
     "  mango vault new-key 2026-12 > keyring.json\n\n"
     "The ID is today's date when it is left out. Keys that were active stay, since they open what they sealed.\n"},
    {"vault rekey", "", "seal every stored credential and signing key with the active key", NULL, 0, 0, false, true,
     mg_cli_vault_rekey,
     "  mango vault rekey\n\n"
     "Afterwards the other keys of the keyring open nothing and can be removed. mangod may run, with the same keyring; "
     "run\nit again when one that still had the old keyring was running.\n"},
    {"webhook create", "URL", "tell this URL of events; prints the signing secret, once", WEBHOOK_OPTS, 1, 1, false,
     true, mg_cli_webhook_create,
     "  mango webhook create https://hooks.example.com/mango --types session.status_idled,session.status_terminated\n\n"
     "Needs the server's keyring (mango vault new-key), which seals the secret. https on port 443 of a public "
     "address,\n"
     "unless MANGO_WEBHOOK_ALLOW_PRIVATE is set. mangod may run or not; it tells of what happens from now on.\n"},
    {"webhook list", "", "list webhooks, with what waits and what failed", WEBHOOKS_OPTS, 0, 0, false, true,
     mg_cli_webhook_list, NULL},
    {"webhook disable", "ID", "tell it nothing more, what waits neither; its history stays", NULL, 1, 1, false, true,
     mg_cli_webhook_disable, NULL},
    {"webhook delete", "ID", "remove a webhook and its history", NULL, 1, 1, false, true, mg_cli_webhook_delete, NULL},
    {"plugin list", "", "list the plugins of the plugin folder", NULL, 0, 0, false, true, mg_cli_plugin_list, NULL},
    {"plugin info", "FILE", "show a plugin file, or why it would be refused", NULL, 1, 1, false, true,
     mg_cli_plugin_info, "  mango plugin info local\n  mango plugin info ./build/mine.so\n"},
    {"conformance", "NAME", "prove that a sandbox plugin keeps its promises; prints TAP", CONFORMANCE_OPTS, 1, 1, false,
     true, mg_cli_conformance,
     "  mango conformance local\n  mango conformance ./build/mine.so --only cancel\n  mango conformance docker "
     "--live\n\n"
     "A plugin that speaks to a service (it requires the host's HTTP) is run only with --live; without it the file and "
     "its\ntables are checked. Status: 0 when no case failed.\n"},
    {"sandbox list", "", "list the sandboxes of all sessions", NULL, 0, 0, false, true, mg_cli_sandbox_list,
     "  mango sandbox list --format json | jq -r 'select(.state == \"lost\").session_id'\n"},
    {"sandbox orphans", "", "list resources of this deployment that no session owns", ORPHANS_OPTS, 0, 0, false, true,
     mg_cli_sandbox_orphans,
     "  mango sandbox orphans\n  mango sandbox orphans --destroy --now --backend docker\n\nResources of another "
     "deployment "
     "are never shown or touched. mangod may run or not.\n"},
    {"sandbox destroy", "SESSION", "end the sandbox of a session that stays; its files are gone", NULL, 1, 1, false,
     true, mg_cli_sandbox_destroy,
     "  mango sandbox destroy sesn_01H8X\n\nThe session says from then on that its workspace is "
     "lost, until it is deleted.\n"},
    {"doctor", "", "check database, schema, clock, plugins, model endpoint, limits; say how to mend what is wrong",
     DOCTOR_OPTS, 0, 0, false, true, mg_cli_doctor,
     "  mango doctor\n  mango doctor --config /etc/mango/mango.conf --format json\n\nStatus: 0 all is well or only "
     "warnings, 1 something must be mended.\n"},
    {"migrate", "", "bring the database to this program's schema", MIGRATE_OPTS, 0, 0, false, true, mg_cli_migrate,
     "  mango migrate --check\n"},
    {"version", "", "print the version", NULL, 0, 0, false, false, mg_cli_version, NULL},
    {"plugin probe", "FILE", "what plugin list runs for each file", NULL, 1, 1, false, false, mg_cli_plugin_probe,
     NULL},
    {"plugin conformance-child", "FILE OP LABELS ID", "the other process of some cases of conformance", NULL, 4, 4,
     false, true, mg_cli_conformance_child, NULL},
    {.path = NULL},
};
