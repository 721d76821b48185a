/* The one table of all options. The sample file, --help and the documentation are printed from it. */
#include "conf/conf.h"

enum { SECOND = 1000 /* milliseconds */, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

const struct mg_opt_def mg_opt_table[MG_OPT_COUNT] = {
    [MG_OPT_LISTEN] =
        {
            .name = "listen",
            .env = "MANGO_LISTEN",
            .type = MG_CONF_STRING,
            .fallback = "127.0.0.1:8080",
            .group = "The server",
            .help = "Address and port to serve on; [::]:8080 is every interface, port 0 picks a free one",
        },
    [MG_OPT_TLS_CERT] =
        {
            .name = "tls_cert",
            .env = "MANGO_TLS_CERT",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file with the certificate and its chain; without it the server speaks plain HTTP",
        },
    [MG_OPT_TLS_KEY] =
        {
            .name = "tls_key",
            .env = "MANGO_TLS_KEY",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file with the certificate's private key",
        },
    [MG_OPT_ORIGINS] =
        {
            .name = "origins",
            .env = "MANGO_ORIGINS",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Origins, comma-separated, whose pages may open WebSockets beside the server's own",
        },
    [MG_OPT_REQUEST_THREADS] =
        {
            .name = "request_threads",
            .env = "MANGO_REQUEST_THREADS",
            .type = MG_CONF_INT,
            .fallback = "16",
            .min = 1,
            .max = 32,
            .help = "Threads that answer requests at most, each with a database connection; four stay when idle",
        },
    [MG_OPT_KEEPALIVE] =
        {
            .name = "keepalive",
            .env = "MANGO_KEEPALIVE",
            .type = MG_CONF_DURATION,
            .fallback = "10s",
            .min = 1 * SECOND,
            .max = 1 * MINUTE,
            .help = "Time between the keep-alives of an idle event stream",
        },
    [MG_OPT_DRAIN_TIMEOUT] =
        {
            .name = "drain_timeout",
            .env = "MANGO_DRAIN_TIMEOUT",
            .type = MG_CONF_DURATION,
            .fallback = "20s",
            .min = 0,
            .max = 10 * MINUTE,
            .help = "Time that running requests get to end when the server stops",
        },
    [MG_OPT_METRICS_PUBLIC] =
        {
            .name = "metrics_public",
            .env = "MANGO_METRICS_PUBLIC",
            .type = MG_CONF_BOOL,
            .fallback = "false",
            .help = "Serve /metrics without an API key",
        },
    [MG_OPT_API_KEY] =
        {
            .name = "api_key",
            .env = "MANGO_API_KEY",
            .type = MG_CONF_STRING,
            .fallback = "",
            .secret = true,
            .help = "Bootstrap key of the default workspace; a changed value replaces the old one at the next start",
        },
    [MG_OPT_STATE_DIR] =
        {
            .name = "state_dir",
            .env = "MANGO_STATE_DIR",
            .type = MG_CONF_STRING,
            .fallback = "/var/lib/mango",
            .group = "Storage",
            .help = "Folder of the private database and of local workspaces",
        },
    [MG_OPT_OBJECTS_DIR] =
        {
            .name = "objects_dir",
            .env = "MANGO_OBJECTS_DIR",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Folder of uploaded files; state_dir/objects when unset. Replicas need a shared one",
        },
    [MG_OPT_S3_BUCKET] =
        {
            .name = "s3_bucket",
            .env = "MANGO_S3_BUCKET",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Bucket of an S3-compatible store for uploaded files; unset: a folder",
        },
    [MG_OPT_S3_ENDPOINT] =
        {
            .name = "s3_endpoint",
            .env = "MANGO_S3_ENDPOINT",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "URL of the S3-compatible store; unset: that of AWS in s3_region",
        },
    [MG_OPT_S3_REGION] =
        {
            .name = "s3_region",
            .env = "MANGO_S3_REGION",
            .type = MG_CONF_STRING,
            .fallback = "us-east-1",
            .help = "Region that requests to the store are signed for",
        },
    [MG_OPT_S3_PREFIX] =
        {
            .name = "s3_prefix",
            .env = "MANGO_S3_PREFIX",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Put before the names of all objects, such as mango/",
        },
    [MG_OPT_S3_ACCESS_KEY] =
        {
            .name = "s3_access_key",
            .env = "MANGO_S3_ACCESS_KEY",
            .type = MG_CONF_STRING,
            .fallback = "",
            .secret = true,
            .help = "Access key of the store",
        },
    [MG_OPT_S3_SECRET_KEY] =
        {
            .name = "s3_secret_key",
            .env = "MANGO_S3_SECRET_KEY",
            .type = MG_CONF_STRING,
            .fallback = "",
            .secret = true,
            .help = "Secret key of the store",
        },
    [MG_OPT_S3_PATH_STYLE] =
        {
            .name = "s3_path_style",
            .env = "MANGO_S3_PATH_STYLE",
            .type = MG_CONF_BOOL,
            .fallback = "true",
            .help = "Name the bucket in the path, not in the host",
        },
    [MG_OPT_S3_CA_FILE] =
        {
            .name = "s3_ca_file",
            .env = "MANGO_S3_CA_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file of the authorities of the store",
        },
    [MG_OPT_UPLOAD_LEASE] =
        {
            .name = "upload_lease",
            .env = "MANGO_UPLOAD_LEASE",
            .type = MG_CONF_DURATION,
            .fallback = "60s",
            .min = 1 * SECOND,
            .max = 10 * MINUTE,
            .help = "Lease of an upload, renewed every third of it; what a crash left is removed that much later",
        },
    [MG_OPT_UPLOAD_LATE] =
        {
            .name = "upload_late",
            .env = "MANGO_UPLOAD_LATE",
            .type = MG_CONF_DURATION,
            .fallback = "15m",
            .min = 1 * SECOND,
            .max = 24 * HOUR,
            .help = "Time after which a write of a dead server can no longer arrive in the store",
        },
    [MG_OPT_DATABASE_URL] =
        {
            .name = "database_url",
            .env = "MANGO_DATABASE_URL",
            .type = MG_CONF_STRING,
            .fallback = "",
            .secret = true,
            .help = "PostgreSQL to use (postgresql://...); without it the server runs a private one in state_dir",
        },
    [MG_OPT_PG_BINDIR] =
        {
            .name = "pg_bindir",
            .env = "MANGO_PG_BINDIR",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Folder of initdb and postgres for the private database; found by itself when unset",
        },
    [MG_OPT_SANDBOX] =
        {
            .name = "sandbox",
            .env = "MANGO_SANDBOX",
            .type = MG_CONF_STRING,
            .fallback = "",
            .group = "Sandboxes",
            .help = "Backend of cloud environments: the name of a plugin, such as local",
        },
    [MG_OPT_PLUGIN_DIR] =
        {
            .name = "plugin_dir",
            .env = "MANGO_PLUGIN_DIR",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Folder of the plugins; the installed one when unset",
        },
    [MG_OPT_LAUNCHER] =
        {
            .name = "launcher",
            .env = "MANGO_LAUNCHER",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Launcher plugin that serves launcher_environments from this server, such as docker",
        },
    [MG_OPT_LAUNCHER_ENVIRONMENTS] =
        {
            .name = "launcher_environments",
            .env = "MANGO_LAUNCHER_ENVIRONMENTS",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Ids of the self_hosted environments whose work the launcher takes, comma-separated",
        },
    [MG_OPT_LAUNCHER_BASE_URL] =
        {
            .name = "launcher_base_url",
            .env = "MANGO_LAUNCHER_BASE_URL",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "URL of this server as the launcher's boxes reach it; the listening address when unset",
        },
    [MG_OPT_PLUGIN_PROXY] =
        {
            .name = "plugin_proxy",
            .env = "MANGO_PLUGIN_PROXY",
            .type = MG_CONF_STRING,
            .fallback = "",
            .secret = true,
            .help =
                "Proxy for requests of plugins (http:// or socks5://user:password@host:port); unix sockets use none",
        },
    [MG_OPT_PLUGIN_CA_FILE] =
        {
            .name = "plugin_ca_file",
            .env = "MANGO_PLUGIN_CA_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file with the authorities to trust for requests of plugins; the system's when unset",
        },
    [MG_OPT_PLUGIN_INSECURE_TLS] =
        {
            .name = "plugin_insecure_tls",
            .env = "MANGO_PLUGIN_INSECURE_TLS",
            .type = MG_CONF_BOOL,
            .fallback = "false",
            .help = "Let plugins that ask for it leave certificates unchecked; for tests",
        },
    [MG_OPT_SANDBOX_ORPHAN_GRACE] =
        {
            .name = "sandbox_orphan_grace",
            .env = "MANGO_SANDBOX_ORPHAN_GRACE",
            .type = MG_CONF_DURATION,
            .fallback = "15m",
            .min = 0,
            .max = 7 * 24 * HOUR,
            .help = "Age at which a sandbox that no session owns is destroyed; 0s: never",
        },
    [MG_OPT_SANDBOX_WAIT] =
        {
            .name = "sandbox_wait",
            .env = "MANGO_SANDBOX_WAIT",
            .type = MG_CONF_DURATION,
            .fallback = "24h",
            .min = 0,
            .max = 7 * 24 * HOUR,
            .help =
                "How long a turn waits for a sandbox backend that is down before it ends with an error; 0s: for ever",
        },
    [MG_OPT_EGRESS_NETWORKS] =
        {
            .name = "egress_networks",
            .env = "MANGO_EGRESS_NETWORKS",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Networks (10.1.0.0/16, ...) that limited sandboxes may reach by an allowed name though they are "
                    "not public",
        },
    [MG_OPT_ALLOW_UNSAFE_LOCAL_SANDBOX] =
        {
            .name = "allow_unsafe_local_sandbox",
            .env = "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX",
            .type = MG_CONF_BOOL,
            .fallback = "false",
            .help = "Let a model on the network run commands on this machine through the backend local",
        },
    [MG_OPT_DEFAULT_ENVIRONMENT] =
        {
            .name = "default_environment",
            .env = "MANGO_DEFAULT_ENVIRONMENT",
            .type = MG_CONF_CHOICE,
            .fallback = "self_hosted",
            .choices = "self_hosted cloud",
            .help = "Type of an environment that is created without a config",
        },
    [MG_OPT_MODEL_BASE_URL] =
        {
            .name = "model_base_url",
            .env = "MANGO_MODEL_BASE_URL",
            .type = MG_CONF_STRING,
            .fallback = "",
            .group = "The model",
            .help = "Base URL of a Messages endpoint; without it the offline model answers",
        },
    [MG_OPT_MODEL_API_KEY] =
        {
            .name = "model_api_key",
            .env = "MANGO_MODEL_API_KEY",
            .type = MG_CONF_STRING,
            .fallback = "",
            .secret = true,
            .help = "Key for the model endpoint",
        },
    [MG_OPT_MODEL_AUTH] =
        {
            .name = "model_auth",
            .env = "MANGO_MODEL_AUTH",
            .type = MG_CONF_CHOICE,
            .fallback = "x-api-key",
            .choices = "x-api-key bearer",
            .help = "Header that carries the key",
        },
    [MG_OPT_MODEL_ID] =
        {
            .name = "model_id",
            .env = "MANGO_MODEL_ID",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Model of every request, whatever its agent names; the agent's when unset",
        },
    [MG_OPT_MODEL_MAX_TOKENS] =
        {
            .name = "model_max_tokens",
            .env = "MANGO_MODEL_MAX_TOKENS",
            .type = MG_CONF_INT,
            .fallback = "4096",
            .min = 1,
            .max = 1000000,
            .help = "Most tokens of one answer",
        },
    [MG_OPT_MODEL_WINDOW] =
        {
            .name = "model_window",
            .env = "MANGO_MODEL_WINDOW",
            .type = MG_CONF_INT,
            .fallback = "0",
            .min = 0,
            .max = 100000000,
            .help = "Tokens of the model's context window, answer included; 0: by the model's name, else 200000",
        },
    [MG_OPT_MODEL_IDLE] =
        {
            .name = "model_idle",
            .env = "MANGO_MODEL_IDLE",
            .type = MG_CONF_DURATION,
            .fallback = "120s",
            .min = 100,
            .max = 3600000,
            .help = "Silence after which a model's answer counts as broken off, pings not counted",
        },
    [MG_OPT_MODEL_WEB_TOOLS] =
        {
            .name = "model_web_tools",
            .env = "MANGO_MODEL_WEB_TOOLS",
            .type = MG_CONF_CHOICE,
            .fallback = "auto",
            .choices = "auto on off",
            .help = "Whether the endpoint runs web_search and web_fetch; auto: those that an agent's configs name, and "
                    "all at anthropic.com",
        },
    [MG_OPT_PRICES_FILE] =
        {
            .name = "prices_file",
            .env = "MANGO_PRICES_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "Price list that budgets and list costs count with; the installed prices.conf when unset",
        },
    [MG_OPT_MODEL_CA_FILE] =
        {
            .name = "model_ca_file",
            .env = "MANGO_MODEL_CA_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file with the authorities to trust for the endpoint; the system's when unset",
        },
    [MG_OPT_MODEL_PROXY] =
        {
            .name = "model_proxy",
            .env = "MANGO_MODEL_PROXY",
            .type = MG_CONF_STRING,
            .fallback = "",
            .secret = true,
            .help = "Proxy for model requests (http://user:password@host:port); may hold a password",
        },
    [MG_OPT_ENGINE_THREADS] =
        {
            .name = "engine_threads",
            .env = "MANGO_ENGINE_THREADS",
            .type = MG_CONF_INT,
            .fallback = "8",
            .min = 1,
            .max = 32,
            .group = "Turns and work",
            .help = "Threads that advance turns at most, each with a database connection; four stay when idle",
        },
    [MG_OPT_TOOL_THREADS] =
        {
            .name = "tool_threads",
            .env = "MANGO_TOOL_THREADS",
            .type = MG_CONF_INT,
            .fallback = "1024",
            .min = 1,
            .max = 16384,
            .help = "Most tool calls that run at once on this node",
        },
    [MG_OPT_TOOL_GRACE] =
        {
            .name = "tool_grace",
            .env = "MANGO_TOOL_GRACE",
            .type = MG_CONF_DURATION,
            .fallback = "1m",
            .min = SECOND,
            .max = HOUR,
            .help = "On top of a tool's own limit: a call whose sandbox has not answered by then is given up, and "
                    "reported so",
        },
    [MG_OPT_NODE_TTL] =
        {
            .name = "node_ttl",
            .env = "MANGO_NODE_TTL",
            .type = MG_CONF_DURATION,
            .fallback = "15s",
            .min = 2 * SECOND,
            .max = 5 * MINUTE,
            .help = "Lease of a node; its turns move to others when it is silent for that long",
        },
    [MG_OPT_WORK_TTL] =
        {
            .name = "work_ttl",
            .env = "MANGO_WORK_TTL",
            .type = MG_CONF_DURATION,
            .fallback = "60s",
            .min = 1 * SECOND,
            .max = 5 * MINUTE,
            .help = "Lease of a worker on its item between two heartbeats; workers beat twice as often",
        },
    [MG_OPT_WORK_ALLOW_ENVIRONMENT_KEY] =
        {
            .name = "work_allow_environment_key",
            .env = "MANGO_WORK_ALLOW_ENVIRONMENT_KEY",
            .type = MG_CONF_BOOL,
            .fallback = "false",
            .help = "Let workers of older SDKs use the environment key for the sessions that they hold",
        },
    [MG_OPT_CALL_TIMEOUT] =
        {
            .name = "call_timeout",
            .env = "MANGO_CALL_TIMEOUT",
            .type = MG_CONF_DURATION,
            .fallback = "24h",
            .min = 0,
            .max = (int64_t)720 * HOUR,
            .help = "Time a tool call waits for the result of a worker before the server answers it; 0 is for ever",
        },
    [MG_OPT_MCP_TIMEOUT] =
        {
            .name = "mcp_timeout",
            .env = "MANGO_MCP_TIMEOUT",
            .type = MG_CONF_DURATION,
            .fallback = "60s",
            .min = 100,
            .max = 10 * MINUTE,
            .group = "MCP servers",
            .help = "Time that an MCP server gets for an answer; one that tells of its progress gets ten times that",
        },
    [MG_OPT_MCP_ALLOW_PRIVATE] =
        {
            .name = "mcp_allow_private",
            .env = "MANGO_MCP_ALLOW_PRIVATE",
            .type = MG_CONF_BOOL,
            .fallback = "false",
            .help = "Let agents name MCP servers at private and loopback addresses, which this host can reach",
        },
    [MG_OPT_MCP_CA_FILE] =
        {
            .name = "mcp_ca_file",
            .env = "MANGO_MCP_CA_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file with the authorities to trust for MCP servers; the system's when unset",
        },
    [MG_OPT_VAULT_KEYRING_FILE] =
        {
            .name = "vault_keyring_file",
            .env = "MANGO_VAULT_KEYRING_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "JSON file with the keys that credentials are sealed with (mango vault new-key); empty: vaults "
                    "keep none",
        },
    [MG_OPT_REPOSITORY_ALLOW_PRIVATE] =
        {
            .name = "repository_allow_private",
            .env = "MANGO_REPOSITORY_ALLOW_PRIVATE",
            .type = MG_CONF_BOOL,
            .fallback = "false",
            .help = "Let sessions name repositories at private and loopback addresses, which this host can reach",
        },
    [MG_OPT_REPOSITORY_CA_FILE] =
        {
            .name = "repository_ca_file",
            .env = "MANGO_REPOSITORY_CA_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file with the authorities to trust for hosts of repositories; the system's when unset",
        },
    [MG_OPT_WEBHOOK_ALLOW_PRIVATE] =
        {
            .name = "webhook_allow_private",
            .env = "MANGO_WEBHOOK_ALLOW_PRIVATE",
            .type = MG_CONF_BOOL,
            .fallback = "false",
            .help = "Let webhooks be at private and loopback addresses, at other ports than 443, and without TLS",
        },
    [MG_OPT_WEBHOOK_CA_FILE] =
        {
            .name = "webhook_ca_file",
            .env = "MANGO_WEBHOOK_CA_FILE",
            .type = MG_CONF_STRING,
            .fallback = "",
            .help = "PEM file with the authorities to trust for webhooks; the system's when unset",
        },
    [MG_OPT_LOG_LEVEL] =
        {
            .name = "log_level",
            .env = "MANGO_LOG_LEVEL",
            .type = MG_CONF_CHOICE,
            .fallback = "info",
            .choices = "error warn info debug",
            .group = "Logging",
            .help = "Least severe lines to write",
        },
    [MG_OPT_LOG_FORMAT] =
        {
            .name = "log_format",
            .env = "MANGO_LOG_FORMAT",
            .type = MG_CONF_CHOICE,
            .fallback = "text",
            .choices = "text json",
            .help = "One line of text, or one JSON object a line",
        },
};
