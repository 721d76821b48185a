/* Calls to a sandbox service over HTTP: what every adapter of such a service needs.
 *
 * A call is tried again when that cannot do harm: when nothing of it went out, when the service refused it for the moment
 * (429, 503 with Retry-After), or when its caller says that it may happen twice (REMOTE_SAFE). Waits grow, have jitter, follow
 * Retry-After, and end with the call's token and deadline.
 *
 * A struct remote does not change after remote_open; any thread may use it. Nothing of it is logged, and its secrets are cut
 * out of every text that a service sends. */
#ifndef MANGO_COMMON_REMOTE_H
#define MANGO_COMMON_REMOTE_H

#include "common/host.h"
#include "common/json.h"
#include "common/text.h"

enum {
    REMOTE_CALL_MS = 30000,    /* one try of a call that moves no content */
    REMOTE_CONNECT_MS = 15000, /* name, TCP and TLS */
    REMOTE_IDLE_MS = 60000,    /* silence in the middle of content */
    REMOTE_TRIES = 6,          /* of one call */
    REMOTE_WAIT_MIN_MS = 150,  /* before the second try; doubled for each more, and spread over [1/2, 1] of it */
    REMOTE_WAIT_MAX_MS = 4000, /* before any try */
    REMOTE_RETRY_AFTER_MAX_MS = 15000,  /* what a service may ask for before the core is told instead */
    REMOTE_BODY_MAX = 16 * 1024 * 1024, /* bytes of an answer that is kept: a page of a list */
    REMOTE_ERROR_MAX = 64 * 1024,       /* bytes of a refusal that are kept; the rest is dropped */
    REMOTE_HEADERS_MAX = 16,
    REMOTE_SECRETS_MAX = 4,
    REMOTE_SETTING_MAX = 4096,   /* bytes of a setting */
    REMOTE_CA_MAX = 1024 * 1024, /* bytes of a file of certificates */
    REMOTE_URL_MAX = 8192,       /* bytes */
    REMOTE_REQUEST_ID_MAX = 80,  /* bytes of the service's name for a request, for people */
};

struct remote {
    const struct mango_host *host;
    const char *service; /* "E2B": in texts for people */
    char *proxy, *ca;    /* empty: the server's; ca is PEM */
    char *secrets[REMOTE_SECRETS_MAX];
};

/* ---- settings.c ---- */

/* The variable of that name, or the setting of the plugin; malloc memory, NULL when it is not set or empty. */
char *remote_setting(const struct mango_host *h, const char *name);
/* A URL of http or https, without '/' at its end. otherwise may be NULL: then it must be set. */
mango_status remote_url(const struct mango_host *h, const struct mango_call *call, const char *name,
                        const char *otherwise, char **ret);
/* A time: "300", "300s", "5m", "2h"; in seconds. */
mango_status remote_seconds(const struct mango_host *h, const struct mango_call *call, const char *name,
                            uint64_t otherwise, uint64_t min, uint64_t max, uint64_t *ret);
/* "1", "true", "yes" or "0", "false", "no". */
mango_status remote_bool(const struct mango_host *h, const struct mango_call *call, const char *name, bool otherwise,
                         bool *ret);
/* Reads PREFIX_PROXY and PREFIX_CA_FILE. r is zeroed; remote_close also after a failure. */
mango_status remote_open(struct remote *r, const struct mango_host *h, const struct mango_call *call,
                         const char *service, const char *prefix);
void remote_close(struct remote *r);
/* A text that no error may show: the key, a token. Copied; NULL is fine. Before the first call. */
bool remote_secret(struct remote *r, const char *secret);

/* ---- call.c ---- */

enum {
    REMOTE_SAFE = 1,   /* may happen twice: reads, deletes, what the service recognises by a name of ours */
    REMOTE_JSON = 2,   /* a good answer is JSON; without whole JSON none came */
    REMOTE_ONCE = 4,   /* the host must not send it again either; costs a connection */
    REMOTE_SINGLE = 8, /* no second try here at all: the caller has its own way */
    REMOTE_STREAM = 16 /* no limit for a try but the call's own deadline and idle_ms */
};

struct remote_req {
    const char *method, *url; /* url: whole */
    const char *what;         /* "create the sandbox": for people, after "could not" */
    uint32_t flags;           /* REMOTE_* */
    uint32_t ms;              /* limit of one try; 0: REMOTE_CALL_MS, none with REMOTE_STREAM */
    uint32_t idle_ms;         /* 0: REMOTE_IDLE_MS */
    const struct mango_http_header *headers;
    uint64_t n_headers;
    struct mango_sv body;
    const char *type;        /* of body or source; NULL: application/json */
    mango_source_fn *source; /* instead of body; never tried again once it was asked */
    void *source_ctx;
    int64_t source_len;
    mango_sink_fn *sink; /* gets the body of a 2xx answer as it comes; never tried again once it was called */
    void *sink_ctx;
    mango_http_header_fn *on_header; /* of the last try's answer, or NULL */
    void *header_ctx;
    const char *connect_to; /* "host:port" instead of the URL's, or NULL */
};

struct remote_res {
    int status;             /* HTTP; 0: no answer came */
    struct mango_buf *body; /* of any answer that no sink took */
    uint32_t retry_after_ms;
    bool sent;     /* some of the last try went out: what it asks for may have happened */
    bool given;    /* the sink was called */
    bool not_json; /* the body is no JSON: a proxy's page, or half an answer */
    char request_id[REMOTE_REQUEST_ID_MAX];
};

/* MANGO_OK: an answer came, good or bad, after as many tries as made sense. Otherwise the error is set. The caller frees the
 * answer in every case. */
mango_status remote_call(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                         struct remote_res *ret);
void remote_free(const struct remote *r, struct remote_res *res);
bool remote_good(const struct remote_res *res); /* 2xx, and JSON when that was asked for */
/* Checked JSON, or empty. */
struct mango_sv remote_body(const struct remote *r, const struct remote_res *res);
/* The error of an answer that is no good: the service's own words behind what was tried. not_found is the class of a 404. */
mango_status remote_fail(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                         const struct remote_res *res, mango_status not_found);
/* The class of an HTTP status. */
mango_status remote_class(int status, mango_status not_found);

/* call with another limit: ms from now, or call's own deadline when that comes first. */
struct mango_call remote_within(const struct mango_host *h, const struct mango_call *call, uint64_t ms);
/* The same without the token: for what must be done although the caller has given up. */
struct mango_call remote_anyway(const struct mango_host *h, const struct mango_call *call, uint64_t ms);
/* A call that undoes what a failed one has begun: without token and error, since what is told is why that one failed. */
struct mango_call remote_undo(const struct mango_host *h, uint64_t ms);
/* A failure that no other try of the same call will change. */
bool remote_final(mango_status s);
/* Waits; MANGO_ECANCELED or MANGO_ETIMEOUT when the call ends first. */
mango_status remote_wait(const struct mango_host *h, const struct mango_call *call, uint64_t ms);
/* How long to wait before try number n (1 is the first repetition), with jitter. */
uint64_t remote_back_off_ms(unsigned n);

/* Words of a service for people: control characters gone, secrets cut out, at most size - 1 bytes. */
void remote_words(const struct remote *r, struct mango_sv text, char *out, size_t size);
/* Ids come from the service and go into URLs and host names: letters, digits, '.', '_' and '-' only, at most 128. */
bool remote_id_ok(struct mango_sv id);
/* A host of an allow list that takes names only: with a dot, and no address. */
bool remote_name_ok(struct mango_sv host);

static inline void remote_header(struct mango_http_header *list, uint64_t *n, const char *name, const char *value)
{
    if (value && *value && *n < REMOTE_HEADERS_MAX)
        list[(*n)++] = (struct mango_http_header){sv_z(name), sv_z(value)};
}

#endif
