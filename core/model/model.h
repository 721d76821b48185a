/* Client of a Messages-shaped endpoint: streaming, thinking, tool use, usage, opaque blocks kept byte for byte.
 *
 * Concurrency: one thread owns a libcurl multi handle; callbacks run on it and must be short. Names are resolved off
 * that thread. */
#ifndef MG_MODEL_MODEL_H
#define MG_MODEL_MODEL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_MODEL_RESPONSE_MAX = 4 * 1024 * 1024, /* bytes of one answer on the wire */
    MG_MODEL_LINE_MAX = 4 * 1024 * 1024,     /* bytes of one SSE line */
    MG_MODEL_IDLE_MS = 120000,               /* without any event but ping */
    MG_MODEL_TOTAL_MS = 600000,
    MG_MODEL_CONNECT_MS = 15000,
    MG_MODEL_RETRY_AFTER_MAX_S = 60,
};

struct mg_model_usage {
    int64_t input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens;
    int64_t cache_5m, cache_1h, web_search_requests, web_fetch_requests;
};

/* All that was read and written. */
static inline int64_t mg_model_usage_tokens(const struct mg_model_usage *u)
{
    return u->input_tokens + u->cache_read_input_tokens + u->cache_creation_input_tokens + u->output_tokens;
}

enum mg_block_kind { MG_BLOCK_TEXT, MG_BLOCK_THINKING, MG_BLOCK_TOOL_USE, MG_BLOCK_OTHER };

struct mg_model_block {
    enum mg_block_kind kind;
    /* The whole block as it goes back into the transcript: text deltas joined, unknown members and spellings kept. */
    struct mg_sv raw;
    struct mg_sv text;               /* TEXT: raw JSON string with quotes (escapes as they came) */
    struct mg_sv tool_id, tool_name; /* TOOL_USE: decoded */
    struct mg_sv tool_input;         /* TOOL_USE: raw JSON object; empty view when it was cut or is not an object */
};

/* Classes of failure: semantics RT5, field case 80. */
enum mg_model_fail {
    MG_MODEL_OK,
    MG_MODEL_RETRY_OVERLOADED, /* 529, overloaded_error */
    MG_MODEL_RETRY_RATE,       /* 429 */
    MG_MODEL_RETRY_SERVER,     /* 5xx, error event in mid-stream, transport, cut stream, idle, not JSON/SSE at all */
    MG_MODEL_TOO_LARGE,        /* 413, or 400 "prompt is too long" */
    MG_MODEL_BILLING,          /* 402, billing_error */
    MG_MODEL_PERMANENT,        /* 400, 401, 403, 404, other 4xx, response over a limit */
    MG_MODEL_CANCELED,
};

struct mg_model_result {
    enum mg_model_fail fail;
    char message[512];         /* names the real cause; cleaned of credentials and control characters */
    uint32_t retry_after_ms;   /* from the endpoint, capped; 0: none */
    char stop_reason[48];      /* "" when the stream ended without one (then fail is RETRY_SERVER) */
    struct mg_sv stop_details; /* raw JSON or empty */
    struct mg_model_block *blocks;
    int n_blocks;
    struct mg_model_usage usage;
    struct mg_arena *arena; /* owns all of the above */
};

struct mg_model_call_opts {
    struct mg_sv body; /* the whole request JSON with "stream":true; copied */
    struct mg_sv beta; /* anthropic-beta header or empty */
    /* Called on the client's thread. text is the raw JSON string fragment without quotes. May be NULL. */
    void (*on_delta)(void *ctx, int block_index, enum mg_block_kind kind, bool start, struct mg_sv text);
    /* Exactly once for each started call, also after cancel. Owns r (mg_model_result_free). */
    void (*on_done)(void *ctx, struct mg_model_result *r);
    void *ctx;
};

struct mg_model; /* an endpoint: HTTP or the offline model */

struct mg_model_opts {
    const char *base_url;                   /* NULL: the deterministic offline model */
    const char *api_key;                    /* NULL: none is sent */
    bool bearer;                            /* Authorization: Bearer instead of x-api-key */
    const char *ca_file;                    /* NULL: system */
    const char *proxy;                      /* NULL: none */
    uint32_t connect_ms, idle_ms, total_ms; /* 0: the defaults above */
};

mg_rc mg_model_open(const struct mg_model_opts *o, struct mg_model **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_model_close(struct mg_model *m); /* cancels what runs, joins */
bool mg_model_is_offline(const struct mg_model *m);
/* Any thread. Returns the call's number, never 0, greater than all before it: a cancel that comes late is harmless. Callbacks
 * may come before this returns. */
uint64_t mg_model_start(struct mg_model *m, const struct mg_model_call_opts *o);
void mg_model_cancel(struct mg_model *m, uint64_t call); /* any thread; on_done follows within a second */
void mg_model_result_free(struct mg_model_result *r);

#endif
