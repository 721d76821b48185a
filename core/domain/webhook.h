/* Webhooks: the types that can be asked for, when a failed try is repeated, and the notice as it goes out. No I/O. */
#ifndef MG_DOMAIN_WEBHOOK_H
#define MG_DOMAIN_WEBHOOK_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum {
    MG_WEBHOOK_TYPES_MAX = 64, /* of one webhook: semantics WH1, as the next ones */
    MG_WEBHOOK_TRIES = 3,
    MG_WEBHOOK_RETRY_MIN_S = 5,
    MG_WEBHOOK_RETRY_MIDDLE_S = 30, /* where the second try is at the latest, and the third at the earliest */
    MG_WEBHOOK_RETRY_MAX_S = 120,
    MG_WEBHOOK_KEPT_DAYS = 30, /* events, with what became of them */
    MG_WEBHOOK_KEY = 32,       /* bytes of the signing key */
    MG_WEBHOOK_SECRET_MAX = 64 /* bytes of its text, "whsec_" and base64, and the NUL */
};

/* Every type, in the order of the documentation; ends with NULL. */
extern const char *const mg_webhook_types[];

/* "a,b" or "all": *ret are the types, each once, in the order of mg_webhook_types; *ret has n of them. MG_EINVAL names
 * what is unknown and lists what there is. */
mg_rc mg_webhook_types_parse(struct mg_arena *a, struct mg_sv list, struct mg_sv **ret, int *ret_n,
                             struct mg_err *err) MG_MUSTCHECK;

/* Milliseconds from the nth failed try (from 1) to the next one, jittered. */
int64_t mg_webhook_retry_ms(int n);

struct mg_webhook_event {
    struct mg_sv id, type, subject, workspace;
    struct mg_sv session_thread, vault; /* ptr NULL: none */
    int64_t created_us;
};
/* The same bytes each time. */
mg_rc mg_webhook_body(const struct mg_webhook_event *e, struct mg_sv organization, struct mg_buf *out) MG_MUSTCHECK;
/* "v1,BASE64" over "ID.TIMESTAMP.BODY": Standard Webhooks. */
mg_rc mg_webhook_sign(struct mg_sv key, struct mg_sv id, int64_t timestamp_s, struct mg_sv body,
                      struct mg_buf *out) MG_MUSTCHECK;

#endif
