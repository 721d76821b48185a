#include "api/routes.h"

#include "api/api.h"
#include "api/tickets.h"
#include "service/work.h"

/* ---- allowed query parameters ---- */

static const char *const LIST_AGENTS[] = {"limit", "page", "created_at[gte]", "created_at[lte]", "include_archived",
                                          NULL};
static const char *const ONE_AGENT[] = {"version", NULL};
static const char *const LIST[] = {"limit", "page", NULL};
static const char *const LIST_ARCHIVED[] = {"limit", "page", "include_archived", NULL};
static const char *const LIST_SESSIONS[] = {
    "limit",
    "page",
    "order",
    "agent_id",
    "agent_version",
    "statuses",
    "deployment_id",
    "memory_store_id",
    "include_archived",
    "created_at[gt]",
    "created_at[gte]",
    "created_at[lt]",
    "created_at[lte]",
    NULL,
};
static const char *const LIST_EVENTS[] = {
    "limit", "page", "order", "types", "created_at[gt]", "created_at[gte]", "created_at[lt]", "created_at[lte]", NULL,
};
static const char *const POLL[] = {"block_ms", "reclaim_older_than_ms", "worker_id", NULL};
static const char *const HEARTBEAT[] = {"expected_last_heartbeat", "desired_ttl_seconds", NULL};
static const char *const LIST_THREADS[] = {"limit", "page", "statuses", NULL};
static const char *const STREAM[] = {"event_deltas", "after", "types", NULL};
static const char *const SOCKET[] = {"event_deltas", "after", "types", "thread_id", "ticket", NULL};
static const char *const SOCKETS[] = {"ticket", NULL};
static const char *const LIST_SKILLS[] = {"limit", "page", "source", NULL};
static const char *const LIST_FILES[] = {"limit", "page", "before_id", "after_id", "ids", "scope_id", NULL};
static const char *const LIST_DEPLOYMENTS[] = {
    "limit", "page", "agent_id", "status", "include_archived", "created_at[gte]", "created_at[lte]", NULL,
};
static const char *const LIST_RUNS[] = {
    "limit",           "page",           "deployment_id",   "has_error", "trigger_type", "created_at[gt]",
    "created_at[gte]", "created_at[lt]", "created_at[lte]", NULL,
};
static const char *const LIST_STORES[] = {"limit", "page", "created_at[gte]", "created_at[lte]", "include_archived",
                                          NULL};
static const char *const LIST_MEMORIES[] = {"limit", "page", "path_prefix", "depth", "view", NULL};
static const char *const LIST_VERSIONS[] = {
    "limit",     "page", "memory_id",       "session_id",      "api_key_id", "service_account_id",
    "operation", "view", "created_at[gte]", "created_at[lte]", NULL,
};
static const char *const VIEW[] = {"view", NULL};
static const char *const DELETE_MEMORY[] = {"expected_content_sha256", NULL};
static const char *const LIST_MODELS[] = {"limit", "before_id", "after_id", "lifecycle", NULL};
/* What clients may ask of the parts that are not built: the answer is that, not a word about their parameters. */
static const char *const ABSENT_QUERY[] = {
    "limit",           "page",           "before_id",        "after_id",  "ids",
    "scope_id",        "source",         "include_archived", "agent_id",  "status",
    "deployment_id",   "has_error",      "trigger_type",     "view",      "path_prefix",
    "depth",           "memory_id",      "session_id",       "operation", "created_at[gt]",
    "created_at[gte]", "created_at[lt]", "created_at[lte]",  NULL,
};

enum {
    SMALL_BODY = 64 * 1024,          /* bytes: actions that take nothing */
    MEMORY_BODY = 1024 * 1024,       /* bytes: a memory of its largest size, each byte escaped, and its path */
    SECRET_BODY = 256 * 1024,        /* bytes: a credential with three secrets of their largest size, escaped */
    SKILL_BODY = 32 * 1024 * 1024,   /* bytes: a skill of 30,000,000 bytes with its framing */
    UPLOAD_BODY = 501 * 1024 * 1024, /* bytes: a file of 500 MiB with its multipart framing */
};

/* Who else may call what a worker calls: its own item's token, and, where the operator allows it, the environment's key. */
enum {
    OF_ITEM = MG_ROUTE_TOKEN_END | MG_ROUTE_ENV_SESSION,
    OF_SESSION = MG_ROUTE_TOKEN | MG_ROUTE_ENV_SESSION,
};

/* Parts of the contract that come later: the collection and one item of it. */
#define ABSENT(path)                                                                             \
    {MG_GET, path, mg_get_absent, .query = ABSENT_QUERY},                                        \
        {MG_POST, path, mg_get_absent, .flags = MG_ROUTE_ANY_TYPE, .query = ABSENT_QUERY},       \
        {MG_GET, path "/{}", mg_get_absent, .query = ABSENT_QUERY},                              \
        {MG_POST, path "/{}", mg_get_absent, .flags = MG_ROUTE_ANY_TYPE, .query = ABSENT_QUERY}, \
    {                                                                                            \
        MG_DELETE, path "/{}", mg_get_absent, .query = ABSENT_QUERY                              \
    }

const struct mg_route mg_routes[] = {
    {MG_GET, "/healthz", mg_get_health, .flags = MG_ROUTE_PUBLIC | MG_ROUTE_INLINE},
    {MG_GET, "/readyz", mg_get_ready, .flags = MG_ROUTE_PUBLIC},
    {MG_GET, "/metrics", mg_get_metrics,
     .flags = MG_ROUTE_PUBLIC}, /* public only where metrics_public says so: the handler asks */
    {MG_GET, "/openapi.json", mg_get_openapi, .flags = MG_ROUTE_PUBLIC},

    {MG_GET, "/v1/agents", mg_get_agents, .query = LIST_AGENTS},
    {MG_POST, "/v1/agents", mg_post_agents, .query = NULL},
    {MG_GET, "/v1/agents/{}", mg_get_agent, .query = ONE_AGENT},
    {MG_POST, "/v1/agents/{}", mg_post_agent, .query = NULL},
    {MG_POST, "/v1/agents/{}/archive", mg_post_agent_archive, .body_max = SMALL_BODY},
    {MG_GET, "/v1/agents/{}/versions", mg_get_agent_versions, .query = LIST},

    {MG_GET, "/v1/environments", mg_get_environments, .query = LIST_ARCHIVED},
    {MG_POST, "/v1/environments", mg_post_environments, .query = NULL},
    {MG_GET, "/v1/environments/{}", mg_get_environment, .query = NULL},
    {MG_POST, "/v1/environments/{}", mg_post_environment, .query = NULL},
    {MG_DELETE, "/v1/environments/{}", mg_delete_environment, .body_max = SMALL_BODY},
    {MG_POST, "/v1/environments/{}/archive", mg_post_environment_archive, .body_max = SMALL_BODY},

    {MG_GET, "/v1/environments/{}/work", mg_get_work_list, .flags = MG_ROUTE_ENV_SESSION, .query = LIST},
    {MG_GET, "/v1/environments/{}/work/poll", mg_get_work_poll, .flags = MG_ROUTE_ENV_KEY, .query = POLL},
    {MG_GET, "/v1/environments/{}/work/stats", mg_get_work_stats, .flags = MG_ROUTE_ENV_KEY, .query = NULL},
    {MG_GET, "/v1/environments/{}/work/{}", mg_get_work, .query = NULL},
    {MG_POST, "/v1/environments/{}/work/{}", mg_post_work, .query = NULL},
    {MG_POST, "/v1/environments/{}/work/{}/ack", mg_post_work_ack, .flags = MG_ROUTE_ENV_KEY | MG_ROUTE_TOKEN_END,
     .body_max = SMALL_BODY},
    {MG_POST, "/v1/environments/{}/work/{}/heartbeat", mg_post_work_heartbeat, .flags = OF_ITEM, .body_max = SMALL_BODY,
     .query = HEARTBEAT},
    {MG_POST, "/v1/environments/{}/work/{}/stop", mg_post_work_stop, .flags = OF_ITEM, .body_max = SMALL_BODY},
    {MG_POST, "/v1/environments/{}/work/{}/fail", mg_post_work_fail, .flags = OF_ITEM, .body_max = SMALL_BODY},

    {MG_GET, "/v1/sessions", mg_get_sessions, .query = LIST_SESSIONS},
    {MG_POST, "/v1/sessions", mg_post_sessions, .flags = MG_ROUTE_SECRET},
    {MG_GET, "/v1/sessions/{}", mg_get_session, .flags = OF_SESSION, .query = NULL},
    {MG_POST, "/v1/sessions/{}", mg_post_session, .query = NULL},
    {MG_DELETE, "/v1/sessions/{}", mg_delete_session, .body_max = SMALL_BODY},
    {MG_POST, "/v1/sessions/{}/archive", mg_post_session_archive, .body_max = SMALL_BODY},

    {MG_GET, "/v1/sessions/{}/waiting", mg_get_session_waiting, .query = NULL},
    {MG_POST, "/v1/sessions/{}/unwedge", mg_post_session_unwedge, .body_max = SMALL_BODY},

    {MG_GET, "/v1/sessions/{}/events", mg_get_events, .flags = OF_SESSION, .query = LIST_EVENTS},
    {MG_POST, "/v1/sessions/{}/events", mg_post_events, .flags = OF_SESSION, .query = NULL},
    {MG_GET, "/v1/sessions/{}/events/stream", mg_get_event_stream, .flags = MG_ROUTE_STREAM | OF_SESSION,
     .query = STREAM},
    {MG_GET, "/v1/sessions/{}/events/ws", NULL, .flags = MG_ROUTE_WS, .query = SOCKET},
    {MG_GET, "/v1/stream", NULL, .flags = MG_ROUTE_WS, .query = SOCKETS},
    {MG_POST, "/v1/stream/tickets", mg_post_ticket, .body_max = SMALL_BODY},

    {MG_GET, "/v1/sessions/{}/threads", mg_get_threads, .query = LIST_THREADS},
    {MG_GET, "/v1/sessions/{}/threads/{}", mg_get_thread, .query = NULL},
    {MG_POST, "/v1/sessions/{}/threads/{}/archive", mg_post_thread_archive, .body_max = SMALL_BODY},
    {MG_GET, "/v1/sessions/{}/threads/{}/events", mg_get_thread_events, .query = LIST},
    {MG_GET, "/v1/sessions/{}/threads/{}/stream", mg_get_thread_stream, .flags = MG_ROUTE_STREAM, .query = STREAM},

    {MG_GET, "/v1/files", mg_get_files, .query = LIST_FILES},
    {MG_POST, "/v1/files", mg_post_files, .flags = MG_ROUTE_TRANSFER | MG_ROUTE_ANY_TYPE, .body_max = UPLOAD_BODY},
    {MG_GET, "/v1/files/{}", mg_get_file, .query = NULL},
    {MG_DELETE, "/v1/files/{}", mg_delete_file, .body_max = SMALL_BODY},
    {MG_GET, "/v1/files/{}/content", mg_get_file_content, .flags = MG_ROUTE_TRANSFER},

    {MG_GET, "/v1/sessions/{}/resources", mg_get_resources, .query = LIST},
    {MG_POST, "/v1/sessions/{}/resources", mg_post_resources, .flags = MG_ROUTE_SECRET, .body_max = SECRET_BODY},
    {MG_GET, "/v1/sessions/{}/resources/{}", mg_get_resource, .query = NULL},
    {MG_POST, "/v1/sessions/{}/resources/{}", mg_post_resource, .flags = MG_ROUTE_SECRET, .body_max = SECRET_BODY},
    {MG_DELETE, "/v1/sessions/{}/resources/{}", mg_delete_resource, .body_max = SMALL_BODY},

    {MG_GET, "/v1/skills", mg_get_skills, .query = LIST_SKILLS},
    {MG_POST, "/v1/skills", mg_post_skills, .flags = MG_ROUTE_TRANSFER | MG_ROUTE_ANY_TYPE, .body_max = SKILL_BODY},
    {MG_GET, "/v1/skills/{}", mg_get_skill, .flags = OF_SESSION},
    {MG_DELETE, "/v1/skills/{}", mg_delete_skill, .body_max = SMALL_BODY},
    {MG_GET, "/v1/skills/{}/versions", mg_get_skill_versions, .flags = OF_SESSION, .query = LIST},
    {MG_POST, "/v1/skills/{}/versions", mg_post_skill_versions, .flags = MG_ROUTE_TRANSFER | MG_ROUTE_ANY_TYPE,
     .body_max = SKILL_BODY},
    {MG_GET, "/v1/skills/{}/versions/{}", mg_get_skill_version, .flags = OF_SESSION},
    {MG_DELETE, "/v1/skills/{}/versions/{}", mg_delete_skill_version, .body_max = SMALL_BODY},
    {MG_GET, "/v1/skills/{}/versions/{}/content", mg_get_skill_content, .flags = MG_ROUTE_TRANSFER | OF_SESSION},

    {MG_GET, "/v1/models", mg_get_models, .query = LIST_MODELS},
    {MG_GET, "/v1/models/{}", mg_get_model, .query = NULL},

    {MG_GET, "/v1/vaults", mg_get_vaults, .query = LIST_ARCHIVED},
    {MG_POST, "/v1/vaults", mg_post_vaults, .query = NULL},
    {MG_GET, "/v1/vaults/{}", mg_get_vault, .query = NULL},
    {MG_POST, "/v1/vaults/{}", mg_post_vault, .query = NULL},
    {MG_DELETE, "/v1/vaults/{}", mg_delete_vault, .body_max = SMALL_BODY},
    {MG_POST, "/v1/vaults/{}/archive", mg_post_vault_archive, .body_max = SMALL_BODY},
    {MG_GET, "/v1/vaults/{}/credentials", mg_get_credentials, .query = LIST_ARCHIVED},
    {MG_POST, "/v1/vaults/{}/credentials", mg_post_credentials, .flags = MG_ROUTE_SECRET, .body_max = SECRET_BODY},
    {MG_GET, "/v1/vaults/{}/credentials/{}", mg_get_credential, .query = NULL},
    {MG_POST, "/v1/vaults/{}/credentials/{}", mg_post_credential, .flags = MG_ROUTE_SECRET, .body_max = SECRET_BODY},
    {MG_DELETE, "/v1/vaults/{}/credentials/{}", mg_delete_credential, .body_max = SMALL_BODY},
    {MG_POST, "/v1/vaults/{}/credentials/{}/archive", mg_post_credential_archive, .body_max = SMALL_BODY},
    {MG_POST, "/v1/vaults/{}/credentials/{}/mcp_oauth_validate", mg_post_credential_validate, .body_max = SMALL_BODY},

    {MG_GET, "/v1/deployments", mg_get_deployments, .query = LIST_DEPLOYMENTS},
    {MG_POST, "/v1/deployments", mg_post_deployments, .flags = MG_ROUTE_SECRET},
    {MG_GET, "/v1/deployments/{}", mg_get_deployment, .query = NULL},
    {MG_POST, "/v1/deployments/{}", mg_post_deployment, .flags = MG_ROUTE_SECRET},
    {MG_POST, "/v1/deployments/{}/archive", mg_post_deployment_archive, .body_max = SMALL_BODY},
    {MG_POST, "/v1/deployments/{}/pause", mg_post_deployment_pause, .body_max = SMALL_BODY},
    {MG_POST, "/v1/deployments/{}/unpause", mg_post_deployment_unpause, .body_max = SMALL_BODY},
    {MG_POST, "/v1/deployments/{}/run", mg_post_deployment_run, .body_max = SMALL_BODY},
    {MG_GET, "/v1/deployment_runs", mg_get_deployment_runs, .query = LIST_RUNS},
    {MG_GET, "/v1/deployment_runs/{}", mg_get_deployment_run, .query = NULL},

    {MG_GET, "/v1/memory_stores", mg_get_memory_stores, .query = LIST_STORES},
    {MG_POST, "/v1/memory_stores", mg_post_memory_stores, .query = NULL},
    {MG_GET, "/v1/memory_stores/{}", mg_get_memory_store, .query = NULL},
    {MG_POST, "/v1/memory_stores/{}", mg_post_memory_store, .query = NULL},
    {MG_DELETE, "/v1/memory_stores/{}", mg_delete_memory_store, .body_max = SMALL_BODY},
    {MG_POST, "/v1/memory_stores/{}/archive", mg_post_memory_store_archive, .body_max = SMALL_BODY},
    {MG_GET, "/v1/memory_stores/{}/memories", mg_get_memories, .flags = MG_ROUTE_TOKEN, .query = LIST_MEMORIES},
    {MG_POST, "/v1/memory_stores/{}/memories", mg_post_memories, .flags = MG_ROUTE_TOKEN, .query = VIEW,
     .body_max = MEMORY_BODY},
    {MG_GET, "/v1/memory_stores/{}/memories/{}", mg_get_memory, .flags = MG_ROUTE_TOKEN, .query = VIEW},
    {MG_POST, "/v1/memory_stores/{}/memories/{}", mg_post_memory, .flags = MG_ROUTE_TOKEN, .query = VIEW,
     .body_max = MEMORY_BODY},
    {MG_DELETE, "/v1/memory_stores/{}/memories/{}", mg_delete_memory, .flags = MG_ROUTE_TOKEN, .query = DELETE_MEMORY,
     .body_max = SMALL_BODY},
    {MG_GET, "/v1/memory_stores/{}/memory_versions", mg_get_memory_versions, .query = LIST_VERSIONS},
    {MG_GET, "/v1/memory_stores/{}/memory_versions/{}", mg_get_memory_version, .query = VIEW},
    {MG_POST, "/v1/memory_stores/{}/memory_versions/{}/redact", mg_post_memory_version_redact, .body_max = SMALL_BODY},

    ABSENT("/v1/dreams"),
    ABSENT("/v1/tunnels"),
    ABSENT("/v1/user_profiles"),
    {.pattern = NULL},
};

void mg_api_setup(struct mg_http_opts *o)
{
    struct mg_app *app = o->app;
    app->tickets = mg_tickets_new();
    app->pollers = mg_pollers_new();
    o->routes = mg_routes;
    o->auth = mg_auth;
    o->resolve_stream = mg_stream_resolve;
    o->ws_send = mg_ws_send;
}

void mg_api_done(struct mg_app *app)
{
    mg_tickets_free(app->tickets);
    app->tickets = NULL;
    mg_pollers_free(app->pollers);
    app->pollers = NULL;
}
