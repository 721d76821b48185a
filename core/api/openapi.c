/* /openapi.json: made from the route table, with a line of documentation for each route and the schemas of
 * schemas.json. */
#include "api/api.h"
#include "api/openapi-schemas.h"

static const struct doc {
    enum mg_http_method method;
    const char *pattern, *id, *summary;
    const char *request, *response; /* names of schemas; NULL: no body */
} DOCS[] = {
    {MG_GET, "/healthz", "health", "Whether the process answers.", NULL, "Health"},
    {MG_GET, "/readyz", "ready", "Whether the database takes a write; 503 when it does not.", NULL, "Health"},
    {MG_GET, "/metrics", "metrics", "Prometheus text.", NULL, NULL},
    {MG_GET, "/openapi.json", "openapi", "This description.", NULL, "Any"},
    {MG_GET, "/v1/agents", "listAgents", "Lists agents, newest first.", NULL, "AgentPage"},
    {MG_POST, "/v1/agents", "createAgent", "Creates an agent as version 1.", "AgentCreate", "Agent"},
    {MG_GET, "/v1/agents/{}", "getAgent", "The newest version, or the one that version names.", NULL, "Agent"},
    {MG_POST, "/v1/agents/{}", "updateAgent", "A new version when something changes.", "AgentUpdate", "Agent"},
    {MG_POST, "/v1/agents/{}/archive", "archiveAgent", "Refuses new sessions from now on.", NULL, "Agent"},
    {MG_GET, "/v1/agents/{}/versions", "listAgentVersions", "All versions, newest first.", NULL, "AgentPage"},
    {MG_GET, "/v1/environments", "listEnvironments", "Lists environments, newest first.", NULL, "EnvironmentPage"},
    {MG_POST, "/v1/environments", "createEnvironment", "Creates an environment.", "EnvironmentCreate", "Environment"},
    {MG_GET, "/v1/environments/{}", "getEnvironment", "One environment.", NULL, "Environment"},
    {MG_POST, "/v1/environments/{}", "updateEnvironment", "Changes an environment; its config type stays.",
     "EnvironmentUpdate", "Environment"},
    {MG_DELETE, "/v1/environments/{}", "deleteEnvironment", "Deletes an environment that no session uses.", NULL,
     "Deleted"},
    {MG_POST, "/v1/environments/{}/archive", "archiveEnvironment", "Refuses new sessions from now on.", NULL,
     "Environment"},
    {MG_GET, "/v1/environments/{}/work", "listWork", "The environment's work items, newest first.", NULL, "WorkPage"},
    {MG_GET, "/v1/environments/{}/work/poll", "pollWork",
     "Claims the oldest item, or null; the header Anthropic-Worker-ID "
     "names the worker.",
     NULL, "WorkOrNull"},
    {MG_GET, "/v1/environments/{}/work/stats", "workStats", "Depth and age of the queue.", NULL, "WorkStats"},
    {MG_GET, "/v1/environments/{}/work/{}", "getWork", "One work item.", NULL, "Work"},
    {MG_POST, "/v1/environments/{}/work/{}", "updateWork", "Changes metadata.", "WorkUpdate", "Work"},
    {MG_POST, "/v1/environments/{}/work/{}/ack", "ackWork", "Completes a claim; the lease runs from here.", NULL,
     "Work"},
    {MG_POST, "/v1/environments/{}/work/{}/heartbeat", "heartbeatWork",
     "Extends the lease when the last heartbeat is the "
     "expected one.",
     NULL, "WorkHeartbeat"},
    {MG_POST, "/v1/environments/{}/work/{}/stop", "stopWork", "Asks the worker to stop, or stops the item.", "WorkStop",
     "Work"},
    {MG_POST, "/v1/environments/{}/work/{}/fail", "failWork", "Ends the item and its session, or gives the item back.",
     "WorkFail", "Work"},
    {MG_GET, "/v1/sessions", "listSessions", "Lists sessions, newest first.", NULL, "SessionPage"},
    {MG_POST, "/v1/sessions", "createSession", "Creates a session from an agent and an environment.", "SessionCreate",
     "Session"},
    {MG_GET, "/v1/sessions/{}", "getSession", "One session.", NULL, "Session"},
    {MG_POST, "/v1/sessions/{}", "updateSession", "Changes title, metadata, or the tools of an idle session.",
     "SessionUpdate", "Session"},
    {MG_DELETE, "/v1/sessions/{}", "deleteSession", "Deletes a session that does not run.", NULL, "Deleted"},
    {MG_POST, "/v1/sessions/{}/archive", "archiveSession", "Ends a session that does not run; it stays readable.", NULL,
     "Session"},
    {MG_GET, "/v1/sessions/{}/waiting", "getSessionWaiting",
     "What the session waits for, and since when (Mango's own).", NULL, "Any"},
    {MG_POST, "/v1/sessions/{}/unwedge", "unwedgeSession",
     "Brings a session to rest: closes every open call with a result of the server (Mango's own).", NULL, "Any"},
    {MG_GET, "/v1/sessions/{}/events", "listEvents", "The session's events in the order of their receipt.", NULL,
     "EventPage"},
    {MG_POST, "/v1/sessions/{}/events", "sendEvents", "Sends events; all are accepted or none.", "EventSend",
     "EventList"},
    {MG_GET, "/v1/sessions/{}/events/stream", "streamEvents", "Server-sent events; Last-Event-ID or after resumes.",
     NULL, NULL},
    {MG_GET, "/v1/sessions/{}/events/ws", "socketEvents", "One session over a WebSocket.", NULL, NULL},
    {MG_GET, "/v1/stream", "socket", "Many sessions over one WebSocket (mango.v1).", NULL, NULL},
    {MG_POST, "/v1/stream/tickets", "createStreamTicket", "A single-use ticket for a WebSocket upgrade.", NULL,
     "StreamTicket"},
    {MG_GET, "/v1/sessions/{}/threads", "listThreads", "The session's threads.", NULL, "ThreadPage"},
    {MG_GET, "/v1/sessions/{}/threads/{}", "getThread", "One thread.", NULL, "Thread"},
    {MG_POST, "/v1/sessions/{}/threads/{}/archive", "archiveThread", "Ends a child thread.", NULL, "Thread"},
    {MG_GET, "/v1/sessions/{}/threads/{}/events", "listThreadEvents", "The thread's events.", NULL, "EventPage"},
    {MG_GET, "/v1/sessions/{}/threads/{}/stream", "streamThreadEvents", "Server-sent events of one thread.", NULL,
     NULL},
    {MG_GET, "/v1/vaults", "listVaults", "Lists vaults, newest first.", NULL, "VaultPage"},
    {MG_POST, "/v1/vaults", "createVault", "Creates a vault.", "VaultCreate", "Vault"},
    {MG_GET, "/v1/vaults/{}", "getVault", "One vault.", NULL, "Vault"},
    {MG_POST, "/v1/vaults/{}", "updateVault", "Changes name and metadata.", "VaultUpdate", "Vault"},
    {MG_DELETE, "/v1/vaults/{}", "deleteVault", "Deletes a vault and its credentials.", NULL, "Deleted"},
    {MG_POST, "/v1/vaults/{}/archive", "archiveVault", "Archives it and its credentials, whose secrets are destroyed.",
     NULL, "Vault"},
    {MG_GET, "/v1/vaults/{}/credentials", "listCredentials", "The vault's credentials, without their secrets.", NULL,
     "CredentialPage"},
    {MG_POST, "/v1/vaults/{}/credentials", "createCredential", "Stores a credential; its secrets are never shown.",
     "CredentialCreate", "Credential"},
    {MG_GET, "/v1/vaults/{}/credentials/{}", "getCredential", "One credential, without its secrets.", NULL,
     "Credential"},
    {MG_POST, "/v1/vaults/{}/credentials/{}", "updateCredential", "Replaces secrets; server and kind stay.",
     "CredentialUpdate", "Credential"},
    {MG_DELETE, "/v1/vaults/{}/credentials/{}", "deleteCredential", "Deletes a credential.", NULL, "Deleted"},
    {MG_POST, "/v1/vaults/{}/credentials/{}/archive", "archiveCredential", "Destroys its secrets; the rest stays.",
     NULL, "Credential"},
    {MG_POST, "/v1/vaults/{}/credentials/{}/mcp_oauth_validate", "validateCredential",
     "Asks the MCP server with it, and refreshes it where the server refuses it.", NULL, "CredentialValidation"},
    {MG_GET, "/v1/files", "listFiles", "Lists files, newest first; pages by cursor or by ids.", NULL, "FilePage"},
    {MG_POST, "/v1/files", "uploadFile", "Uploads a file of at most 500 MiB.", "FileUpload", "File"},
    {MG_GET, "/v1/files/{}", "getFile", "One file's metadata.", NULL, "File"},
    {MG_DELETE, "/v1/files/{}", "deleteFile", "Deletes a file.", NULL, "Deleted"},
    {MG_GET, "/v1/files/{}/content", "downloadFile", "The bytes of a file.", NULL, NULL},
    {MG_GET, "/v1/deployments", "listDeployments", "Lists deployments, newest first.", NULL, "DeploymentPage"},
    {MG_POST, "/v1/deployments", "createDeployment", "Creates a deployment; the agent's version is pinned.",
     "DeploymentCreate", "Deployment"},
    {MG_GET, "/v1/deployments/{}", "getDeployment", "One deployment.", NULL, "Deployment"},
    {MG_POST, "/v1/deployments/{}", "updateDeployment", "Changes what its sessions are made of, and when.",
     "DeploymentUpdate", "Deployment"},
    {MG_POST, "/v1/deployments/{}/archive", "archiveDeployment", "Ends the deployment for good.", NULL, "Deployment"},
    {MG_POST, "/v1/deployments/{}/pause", "pauseDeployment", "Scheduled runs stop; runs by hand do not.", NULL,
     "Deployment"},
    {MG_POST, "/v1/deployments/{}/unpause", "unpauseDeployment", "Scheduled runs go on; nothing is made up.", NULL,
     "Deployment"},
    {MG_POST, "/v1/deployments/{}/run", "runDeployment", "Makes a session now.", NULL, "DeploymentRun"},
    {MG_GET, "/v1/deployment_runs", "listDeploymentRuns", "Lists runs, newest first.", NULL, "DeploymentRunPage"},
    {MG_GET, "/v1/deployment_runs/{}", "getDeploymentRun", "One run.", NULL, "DeploymentRun"},
    {MG_GET, "/v1/memory_stores", "listMemoryStores", "Lists memory stores, newest first.", NULL, "MemoryStorePage"},
    {MG_POST, "/v1/memory_stores", "createMemoryStore", "Creates a memory store.", "MemoryStoreCreate", "MemoryStore"},
    {MG_GET, "/v1/memory_stores/{}", "getMemoryStore", "One memory store.", NULL, "MemoryStore"},
    {MG_POST, "/v1/memory_stores/{}", "updateMemoryStore", "Changes name, description and metadata.",
     "MemoryStoreUpdate", "MemoryStore"},
    {MG_DELETE, "/v1/memory_stores/{}", "deleteMemoryStore", "Deletes a store with its memories and versions.", NULL,
     "Deleted"},
    {MG_POST, "/v1/memory_stores/{}/archive", "archiveMemoryStore", "Makes the store read-only, for good.", NULL,
     "MemoryStore"},
    {MG_GET, "/v1/memory_stores/{}/memories", "listMemories", "The store's memories by path, or one level of them.",
     NULL, "MemoryPage"},
    {MG_POST, "/v1/memory_stores/{}/memories", "createMemory", "Creates a memory at a path.", "MemoryCreate", "Memory"},
    {MG_GET, "/v1/memory_stores/{}/memories/{}", "getMemory", "One memory.", NULL, "Memory"},
    {MG_POST, "/v1/memory_stores/{}/memories/{}", "updateMemory",
     "Changes content or path; precondition says what it must hold.", "MemoryUpdate", "Memory"},
    {MG_DELETE, "/v1/memory_stores/{}/memories/{}", "deleteMemory", "Deletes a memory; its versions stay.", NULL,
     "Deleted"},
    {MG_GET, "/v1/memory_stores/{}/memory_versions", "listMemoryVersions", "The store's history, newest first.", NULL,
     "MemoryVersionPage"},
    {MG_GET, "/v1/memory_stores/{}/memory_versions/{}", "getMemoryVersion", "One version.", NULL, "MemoryVersion"},
    {MG_POST, "/v1/memory_stores/{}/memory_versions/{}/redact", "redactMemoryVersion",
     "Destroys path and content of a version that is not the newest; its place stays.", NULL, "MemoryVersion"},
    {MG_GET, "/v1/sessions/{}/resources", "listResources", "What is attached to the session.", NULL, "ResourcePage"},
    {MG_POST, "/v1/sessions/{}/resources", "addResource", "Attaches a file or a repository.", "ResourceAdd",
     "Resource"},
    {MG_GET, "/v1/sessions/{}/resources/{}", "getResource", "One resource.", NULL, "Resource"},
    {MG_POST, "/v1/sessions/{}/resources/{}", "updateResource", "Another authorization_token for a repository.",
     "ResourceUpdate", "Resource"},
    {MG_DELETE, "/v1/sessions/{}/resources/{}", "deleteResource", "Takes a file or a repository out of the session.",
     NULL, "Deleted"},
    {MG_GET, "/v1/skills", "listSkills", "Lists skills, newest first.", NULL, "SkillPage"},
    {MG_POST, "/v1/skills", "createSkill", "Creates a skill from its files, or from one zip of them.", "SkillCreate",
     "Skill"},
    {MG_GET, "/v1/skills/{}", "getSkill", "One skill.", NULL, "Skill"},
    {MG_DELETE, "/v1/skills/{}", "deleteSkill", "Deletes a skill that no session holds.", NULL, "Deleted"},
    {MG_GET, "/v1/skills/{}/versions", "listSkillVersions", "Its versions, newest first.", NULL, "SkillVersionPage"},
    {MG_POST, "/v1/skills/{}/versions", "createSkillVersion", "Another version.", "SkillVersionCreate", "SkillVersion"},
    {MG_GET, "/v1/skills/{}/versions/{}", "getSkillVersion", "One version, or the latest.", NULL, "SkillVersion"},
    {MG_DELETE, "/v1/skills/{}/versions/{}", "deleteSkillVersion", "Deletes a version that no session holds.", NULL,
     "Deleted"},
    {MG_GET, "/v1/skills/{}/versions/{}/content", "downloadSkillVersion", "The version as a zip.", NULL, NULL},
    {MG_GET, "/v1/models", "listModels", "The models that this server knows of.", NULL, "ModelPage"},
    {MG_GET, "/v1/models/{}", "getModel", "One model.", NULL, "Model"},
};
enum { N_DOCS = sizeof(DOCS) / sizeof(DOCS[0]) };

static const struct doc *doc_of(const struct mg_route *r)
{
    for (int i = 0; i < N_DOCS; i++)
        if (DOCS[i].method == r->method && strcmp(DOCS[i].pattern, r->pattern) == 0)
            return &DOCS[i];
    return NULL;
}

static const char *method_name(enum mg_http_method m)
{
    return m == MG_GET ? "get" : m == MG_POST ? "post" : "delete";
}

/* Names for the {} of a pattern, by the segment before them. */
static const struct {
    const char *segment, *name;
} PARAMS[] = {
    {"agents", "agent_id"},
    {"environments", "environment_id"},
    {"sessions", "session_id"},
    {"threads", "thread_id"},
    {"models", "model_id"},
    {"work", "work_id"},
    {"vaults", "vault_id"},
    {"credentials", "credential_id"},
    {"memory_stores", "memory_store_id"},
    {"deployments", "deployment_id"},
    {"deployment_runs", "deployment_run_id"},
    {"memories", "memory_id"},
    {"memory_versions", "memory_version_id"},
    {"files", "file_id"},
    {"resources", "resource_id"},
    {"skills", "skill_id"},
    {"versions", "version"},
};
enum { N_PARAMS = sizeof(PARAMS) / sizeof(PARAMS[0]), PATH_PARAMS_MAX = 4 };

struct path {
    char text[160];
    const char *names[PATH_PARAMS_MAX];
    int n;
};

static const char *param_name(struct mg_sv segment)
{
    for (int i = 0; i < N_PARAMS; i++)
        if (mg_sv_eqz(segment, PARAMS[i].segment))
            return PARAMS[i].name;
    return "id";
}

/* "/v1/sessions/{}" gives "/v1/sessions/{session_id}". */
static struct path path_of(const char *pattern)
{
    struct path p = {.n = 0};
    struct mg_sv rest = mg_sv_from(mg_sv_of(pattern), 1), before = MG_SV("");
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(sizeof(p.text) - 1);
    while (rest.len) {
        struct mg_sv seg = mg_sv_split(&rest, '/');
        bool wild = mg_sv_eqz(seg, "{}");
        if (wild && p.n < PATH_PARAMS_MAX)
            p.names[p.n++] = param_name(before);
        (void)mg_buf_printf(&b, wild ? "/{%.*s}" : "/%.*s", wild ? (int)strlen(p.names[p.n - 1]) : (int)seg.len,
                            wild ? p.names[p.n - 1] : seg.ptr);
        before = seg;
    }
    memcpy(p.text, mg_buf_view(&b).ptr, b.len);
    return p;
}

static void write_parameter(struct mg_jw *w, const char *name, const char *in, bool array)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "name", name);
    mg_jw_kstrz(w, "in", in);
    mg_jw_kbool(w, "required", strcmp(in, "path") == 0);
    mg_jw_kraw(w, "schema",
               array ? MG_SV("{\"type\":\"array\",\"items\":{\"type\":\"string\"}}") : MG_SV("{\"type\":\"string\"}"));
    mg_jw_obj_end(w);
}

static bool is_list(const char *name)
{
    return strcmp(name, "types") == 0 || strcmp(name, "statuses") == 0 || strcmp(name, "event_deltas") == 0 ||
           strcmp(name, "lifecycle") == 0 || strcmp(name, "ids") == 0;
}

static void write_parameters(struct mg_jw *w, const struct mg_route *r, const struct path *p)
{
    mg_jw_key(w, "parameters");
    mg_jw_arr(w);
    for (int i = 0; i < p->n; i++)
        write_parameter(w, p->names[i], "path", false);
    for (const char *const *q = r->query; q && *q; q++)
        write_parameter(w, *q, "query", is_list(*q));
    mg_jw_arr_end(w);
}

static void write_content(struct mg_jw *w, const char *type, const char *schema)
{
    mg_jw_key(w, "content");
    mg_jw_obj(w);
    mg_jw_key(w, type);
    mg_jw_obj(w);
    mg_jw_key(w, "schema");
    mg_jw_obj(w);
    if (schema) {
        mg_jw_key(w, "$ref");
        mg_auto(buf) struct mg_buf ref = MG_BUF_INIT(128);
        (void)mg_buf_printf(&ref, "#/components/schemas/%s", schema);
        mg_jw_str(w, mg_buf_view(&ref));
    } else {
        mg_jw_kstrz(w, "type", "string");
    }
    mg_jw_obj_end(w);
    mg_jw_obj_end(w);
    mg_jw_obj_end(w);
}

static void write_response(struct mg_jw *w, const char *status, const char *text, const char *type, const char *schema)
{
    mg_jw_key(w, status);
    mg_jw_obj(w);
    mg_jw_kstrz(w, "description", text);
    if (type)
        write_content(w, type, schema);
    mg_jw_obj_end(w);
}

static const char *plain_type(const struct mg_route *r)
{
    return r->flags & MG_ROUTE_TRANSFER ? "application/octet-stream" : "text/plain";
}

static void write_responses(struct mg_jw *w, const struct mg_route *r, const struct doc *d)
{
    mg_jw_key(w, "responses");
    mg_jw_obj(w);
    if (r->flags & MG_ROUTE_WS)
        write_response(w, "101", "The connection is a WebSocket now.", NULL, NULL);
    else if (r->flags & MG_ROUTE_STREAM)
        write_response(w, "200", "A stream of events.", "text/event-stream", NULL);
    else
        write_response(w, "200", "Done.", d->response ? "application/json" : plain_type(r), d->response);
    write_response(w, "default", "What went wrong, and which field.", "application/json", "Error");
    mg_jw_obj_end(w);
}

static void write_operation(struct mg_jw *w, const struct mg_route *r, const struct doc *d, const struct path *p)
{
    mg_jw_key(w, method_name(r->method));
    mg_jw_obj(w);
    mg_jw_kstrz(w, "operationId", d->id);
    mg_jw_kstrz(w, "summary", d->summary);
    write_parameters(w, r, p);
    if (d->request) {
        mg_jw_key(w, "requestBody");
        mg_jw_obj(w);
        mg_jw_kbool(w, "required", true);
        write_content(w, r->flags & MG_ROUTE_ANY_TYPE ? "multipart/form-data" : "application/json", d->request);
        mg_jw_obj_end(w);
    }
    write_responses(w, r, d);
    if (r->flags & MG_ROUTE_PUBLIC)
        mg_jw_kraw(w, "security", MG_SV("[]"));
    mg_jw_obj_end(w);
}

/* All methods of the pattern under one path; only at its first route. */
static void write_path(struct mg_jw *w, const struct mg_route *routes, const struct mg_route *r)
{
    for (const struct mg_route *q = routes; q < r; q++)
        if (strcmp(q->pattern, r->pattern) == 0)
            return;
    const struct path p = path_of(r->pattern);
    mg_jw_key(w, p.text);
    mg_jw_obj(w);
    for (const struct mg_route *q = r; q->pattern; q++)
        if (strcmp(q->pattern, r->pattern) == 0 && doc_of(q))
            write_operation(w, q, doc_of(q), &p);
    mg_jw_obj_end(w);
}

mg_rc mg_openapi_write(struct mg_buf *out, const struct mg_route *routes)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "openapi", "3.1.0");
    mg_jw_kraw(&w, "info",
               MG_SV("{\"title\":\"Mango\",\"version\":\"" MANGO_VERSION
                     "\",\"description\":\"Control plane for long-running AI "
                     "agents. The shapes are those of the Claude Managed Agents API.\",\"license\":{\"name\":\"See "
                     "LICENSE\"}}"));
    mg_jw_kraw(&w, "security", MG_SV("[{\"bearer\":[]},{\"apiKey\":[]}]"));
    mg_jw_key(&w, "paths");
    mg_jw_obj(&w);
    for (const struct mg_route *r = routes; r->pattern; r++)
        if (doc_of(r))
            write_path(&w, routes, r);
    mg_jw_obj_end(&w);
    mg_jw_key(&w, "components");
    mg_jw_obj(&w);
    mg_jw_kraw(&w, "securitySchemes",
               MG_SV("{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
                     "\"apiKey\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"x-api-key\"}}"));
    mg_jw_kraw(&w, "schemas", mg_sv_of(mg_openapi_schemas));
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    return mg_buf_ok(out) ? MG_OK : MG_EINTERNAL;
}
