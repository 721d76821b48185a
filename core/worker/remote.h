/* The API as a worker speaks it: base URL, one credential, the headers, and the retries of the official clients. Nothing here is of Mango
 * alone.
 *
 * Concurrency: a remote does not change once it is made; any thread may call. */
#ifndef MG_WORKER_REMOTE_H
#define MG_WORKER_REMOTE_H

#include "base/buf.h"
#include "base/cancel.h"
#include "json/json.h"
#include "net/loop.h"

#define MG_REMOTE_HOSTED "https://api.anthropic.com" /* where no base URL is given, as with the official clients */
#define MG_REMOTE_VERSION "2026-10-21"               /* the anthropic-version of the newest official clients */
#define MG_REMOTE_BETA "managed-agents-2026-04-01"

enum {
    MG_REMOTE_RETRIES = 2,                  /* further tries of one request, as in the official clients */
    MG_REMOTE_CALL_MS = 60000,              /* one try */
    MG_REMOTE_ANSWER_MAX = 4 * 1024 * 1024, /* bytes of an answer where a request names no limit */
    MG_REMOTE_HEADERS_MAX = 8,
    MG_REMOTE_CODE_MAX = 64,
};

struct mg_remote {
    struct mg_net *net;
    char *base;         /* without a slash at its end */
    char *token;        /* the bearer; wiped at the end */
    const char *helper; /* static: which part of a worker asks; for the server's logs */
};

struct mg_remote *mg_remote_new(struct mg_net *net, const char *base, const char *token, const char *helper);
void mg_remote_free(struct mg_remote *r); /* NULL is fine */
static inline void mg_remote_cleanup(struct mg_remote **r)
{
    mg_remote_free(*r);
}

struct mg_remote_req {
    const char *method;       /* "GET", "POST" */
    const char *path;         /* "/v1/...", with the query; ids in it are percent-encoded (mg_buf_percent) */
    struct mg_sv body;        /* JSON; empty: none */
    const char *helper;       /* instead of the remote's; or NULL */
    const char *worker_id;    /* Anthropic-Worker-ID; or NULL */
    const char *accept;       /* NULL: application/json */
    const char *beta;         /* NULL: MG_REMOTE_BETA; "": none */
    int retries;              /* 0: MG_REMOTE_RETRIES; negative: none */
    uint32_t call_ms;         /* of one try; 0: MG_REMOTE_CALL_MS */
    uint64_t deadline_ns;     /* of all tries; 0: none */
    size_t max_bytes;         /* 0: MG_REMOTE_ANSWER_MAX */
    struct mg_cancel *cancel; /* may be NULL */
};

struct mg_remote_answer {
    int status;                    /* of the last answer; 0: none came */
    char code[MG_REMOTE_CODE_MAX]; /* error.details.error_code of a refusal, or "" */
    bool again;                    /* by the status and the server's word, another try may help */
    uint32_t wait_ms;              /* what the server asks for before it; 0: nothing */
    struct mg_buf body;            /* of the last answer, whatever its status */
};
static inline void mg_remote_answer_cleanup(struct mg_remote_answer *a)
{
    mg_buf_done(&a->body);
}

/* Fills headers for a request; returns their number. They point into r, q and bearer. */
int mg_remote_headers(const struct mg_remote *r, const struct mg_remote_req *q, struct mg_buf *bearer,
                      struct mg_net_header h[MG_REMOTE_HEADERS_MAX]);
/* MG_OK: an answer of 2xx. MG_ECANCELED, MG_ETOOBIG; everything else with the last status in ret and what happened in err. ret is always
 * filled and the caller's. Blocks; not on a loop's thread. */
mg_rc mg_remote_call(const struct mg_remote *r, const struct mg_remote_req *q, struct mg_remote_answer *ret,
                     struct mg_err *err) MG_MUSTCHECK;
/* What a refusal says, and its code: "404 not_found_error: ...". */
mg_rc mg_remote_refused(int status, struct mg_sv body, char code[MG_REMOTE_CODE_MAX], struct mg_err *err);

#endif
