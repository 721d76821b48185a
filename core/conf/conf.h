/* Settings: one table (table.c) gives every option its name, variable, type, default, range and help.
 *
 * A value comes from, in this order: `--name=value` on the command line, the environment variable, the file
 * (libconfig), the default. An empty value counts as unset. Whatever is malformed stops the startup with MG_ECONFIG; the text names
 * the option as it was given, and never shows the value of a secret. Read-only after loading: any thread. */
#ifndef MG_CONF_CONF_H
#define MG_CONF_CONF_H

#include "base/buf.h"
#include "base/err.h"
#include "base/sv.h"

enum mg_opt {
    MG_OPT_LISTEN,
    MG_OPT_TLS_CERT,
    MG_OPT_TLS_KEY,
    MG_OPT_ORIGINS,
    MG_OPT_REQUEST_THREADS,
    MG_OPT_KEEPALIVE,
    MG_OPT_DRAIN_TIMEOUT,
    MG_OPT_METRICS_PUBLIC,
    MG_OPT_API_KEY,
    MG_OPT_STATE_DIR,
    MG_OPT_OBJECTS_DIR,
    MG_OPT_S3_BUCKET,
    MG_OPT_S3_ENDPOINT,
    MG_OPT_S3_REGION,
    MG_OPT_S3_PREFIX,
    MG_OPT_S3_ACCESS_KEY,
    MG_OPT_S3_SECRET_KEY,
    MG_OPT_S3_PATH_STYLE,
    MG_OPT_S3_CA_FILE,
    MG_OPT_UPLOAD_LEASE,
    MG_OPT_UPLOAD_LATE,
    MG_OPT_DATABASE_URL,
    MG_OPT_PG_BINDIR,
    MG_OPT_SANDBOX,
    MG_OPT_PLUGIN_DIR,
    MG_OPT_LAUNCHER,
    MG_OPT_LAUNCHER_ENVIRONMENTS,
    MG_OPT_LAUNCHER_BASE_URL,
    MG_OPT_PLUGIN_PROXY,
    MG_OPT_PLUGIN_CA_FILE,
    MG_OPT_PLUGIN_INSECURE_TLS,
    MG_OPT_SANDBOX_ORPHAN_GRACE,
    MG_OPT_SANDBOX_WAIT,
    MG_OPT_EGRESS_NETWORKS,
    MG_OPT_ALLOW_UNSAFE_LOCAL_SANDBOX,
    MG_OPT_DEFAULT_ENVIRONMENT,
    MG_OPT_MODEL_BASE_URL,
    MG_OPT_MODEL_API_KEY,
    MG_OPT_MODEL_AUTH,
    MG_OPT_MODEL_ID,
    MG_OPT_MODEL_MAX_TOKENS,
    MG_OPT_MODEL_WINDOW,
    MG_OPT_MODEL_IDLE,
    MG_OPT_MODEL_WEB_TOOLS,
    MG_OPT_PRICES_FILE,
    MG_OPT_MODEL_CA_FILE,
    MG_OPT_MODEL_PROXY,
    MG_OPT_ENGINE_THREADS,
    MG_OPT_TOOL_THREADS,
    MG_OPT_TOOL_GRACE,
    MG_OPT_NODE_TTL,
    MG_OPT_WORK_TTL,
    MG_OPT_WORK_ALLOW_ENVIRONMENT_KEY,
    MG_OPT_CALL_TIMEOUT,
    MG_OPT_MCP_TIMEOUT,
    MG_OPT_MCP_ALLOW_PRIVATE,
    MG_OPT_MCP_CA_FILE,
    MG_OPT_VAULT_KEYRING_FILE,
    MG_OPT_REPOSITORY_ALLOW_PRIVATE,
    MG_OPT_REPOSITORY_CA_FILE,
    MG_OPT_WEBHOOK_ALLOW_PRIVATE,
    MG_OPT_WEBHOOK_CA_FILE,
    MG_OPT_LOG_LEVEL,
    MG_OPT_LOG_FORMAT,
    MG_OPT_COUNT
};

enum mg_conf_type {
    MG_CONF_STRING,
    MG_CONF_INT,
    MG_CONF_BOOL,     /* true/false, yes/no, on/off, 1/0 */
    MG_CONF_DURATION, /* 500ms, 15s, 5m, 2h; kept in milliseconds */
    MG_CONF_CHOICE,   /* one of the words of choices */
};

struct mg_opt_def {
    const char *name; /* of the file and, with dashes for underscores, of the command line */
    const char *env;
    const char *fallback; /* the default as text; "" when there is none */
    const char *choices;  /* CHOICE: words separated by a space */
    const char *group;    /* heading of the sample, on the first option of a group; else NULL */
    const char *help;     /* one line */
    int64_t min, max;     /* INT; DURATION in milliseconds */
    enum mg_conf_type type;
    bool secret;
};

extern const struct mg_opt_def mg_opt_table[MG_OPT_COUNT];

struct mg_conf;

struct mg_conf_source {
    const char *const *args;  /* `--name=value` and `--name` (booleans) only, NULL-terminated; may be NULL */
    const char *const *env;   /* environ; may be NULL */
    const char *file;         /* NULL: none */
    bool file_may_be_missing; /* the default file, which nobody asked for */
};

mg_rc mg_conf_load(const struct mg_conf_source *src, struct mg_conf **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_conf_free(struct mg_conf *c); /* wipes secrets; NULL is fine */
static inline void mg_conf_cleanup(struct mg_conf **c)
{
    mg_conf_free(*c);
}

/* The text of any option; never NULL, "" when it is unset and has no default. Valid as long as c. */
const char *mg_conf_str(const struct mg_conf *c, enum mg_opt o);
const char *mg_conf_strn(const struct mg_conf *c, enum mg_opt o); /* the same, but NULL for "" */
int64_t mg_conf_int(const struct mg_conf *c, enum mg_opt o);      /* INT; asserted */
int64_t mg_conf_ms(const struct mg_conf *c, enum mg_opt o);       /* DURATION; asserted */
bool mg_conf_bool(const struct mg_conf *c, enum mg_opt o);        /* BOOL; asserted */
/* The comma-separated parts of a STRING, trimmed, empty ones left out; NULL-terminated, valid as long as c. */
const char *const *mg_conf_list(const struct mg_conf *c, enum mg_opt o);
bool mg_conf_is_set(const struct mg_conf *c, enum mg_opt o); /* by anything but the default */
/* Where the value came from: "--listen", "MANGO_LISTEN", "mango.conf:12" or "default"; for messages. */
const char *mg_conf_origin(const struct mg_conf *c, enum mg_opt o);

/* A setting of a plugin, or NULL. A name in capitals (E2B_API_KEY) is looked up in the environment as it is, unless
 * it is one of the server's own (MANGO_..., PG...); any other (base_dir of local) as MANGO_LOCAL_BASE_DIR. Behind the
 * environment comes the file's section `plugins: { local: { base_dir = "..."; }; }`, where E2B_API_KEY of e2b may be
 * written e2b_api_key or api_key too. Valid as long as c. */
const char *mg_conf_plugin(const struct mg_conf *c, const char *plugin, const char *name);
/* The plugin's section of the file as a JSON object of strings, numbers and booleans, values from MANGO_PLUGIN_NAME
 * variables put over it; "{}" when there are none. */
mg_rc mg_conf_plugin_json(const struct mg_conf *c, const char *plugin, struct mg_buf *out) MG_MUSTCHECK;

/* `name = value   # origin` lines of all options; secrets as ***. */
mg_rc mg_conf_print(const struct mg_conf *c, struct mg_buf *out) MG_MUSTCHECK;
/* The commented sample mango.conf with every option at its default. */
mg_rc mg_conf_sample(struct mg_buf *out) MG_MUSTCHECK;
/* The option lines of --help. */
mg_rc mg_conf_help(struct mg_buf *out) MG_MUSTCHECK;

/* Moves the environment to memory that /proc/PID/environ does not show, drops the variables of secret options from it,
 * and overwrites secrets in argv, so that no child reads them. Call once, after loading, before other threads start. */
void mg_conf_hide(char **argv);

#endif
