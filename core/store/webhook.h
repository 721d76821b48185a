/* Webhooks, what there is to tell them, and the deliveries. Events are written by triggers (migrations/0021_webhooks.sql), in the transaction
 * of what they tell; the triggers are enabled while a webhook is active. */
#ifndef MG_STORE_WEBHOOK_H
#define MG_STORE_WEBHOOK_H

#include "domain/id.h"
#include "domain/webhook.h"
#include "store/keyring.h"
#include "store/pg.h"

enum { MG_WEBHOOK_CLAIM_S = 60 /* longer than a try may take: a node that died holds a delivery so long */ };

struct mg_webhook_row {
    struct mg_sv id, workspace, url;
    struct mg_sv types;              /* "a,b" */
    int64_t created_us, disabled_us; /* INT64_MIN: it is active */
    int64_t pending, failed;         /* deliveries */
    struct mg_sv last_error;         /* of the newest one that was not delivered; ptr NULL: none */
};

/* Makes it and its key, whose text goes into secret (shown once, never read back). Its URL was checked. Enables the triggers first. */
mg_rc mg_webhook_create(struct mg_arena *a, struct mg_pg *pg, const struct mg_keyring *k, struct mg_sv workspace,
                        struct mg_sv url, const struct mg_sv *types, int n_types, struct mg_id *ret_id,
                        char secret[MG_WEBHOOK_SECRET_MAX], struct mg_err *err) MG_MUSTCHECK;
/* workspace empty: of all. Arena memory. */
mg_rc mg_webhook_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_webhook_row **ret,
                      int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Nothing more is sent to it, what waits neither. MG_ENOTFOUND. */
mg_rc mg_webhook_disable(struct mg_pg *pg, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_webhook_delete(struct mg_pg *pg, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;
/* Brings the triggers to what the webhooks need; for the start of a server: a command may have been killed in between. */
mg_rc mg_webhook_settle(struct mg_pg *pg, struct mg_err *err) MG_MUSTCHECK;
/* Whether there is one that is active. Every node is told by mg_notify when this may have changed. */
mg_rc mg_webhook_any(struct mg_pg *pg, bool *ret, struct mg_err *err) MG_MUSTCHECK;
/* Seals every signing key with the active one; *n grows by their number. */
mg_rc mg_webhook_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *n, struct mg_err *err) MG_MUSTCHECK;

struct mg_delivery {
    struct mg_sv webhook, seq, url;
    struct mg_sv key_id, sealed;
    struct mg_webhook_event event;
    int64_t tries; /* that failed */
};
/* At most limit deliveries that are due, for this claim: of each webhook and subject only the oldest. Views of *ret_res. */
mg_rc mg_deliveries_claim(struct mg_arena *a, struct mg_pg *pg, struct mg_sv claim, int limit, struct mg_res **ret_res,
                          struct mg_delivery **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* The signing key; out is a secret buffer with room. */
mg_rc mg_delivery_key(const struct mg_keyring *k, const struct mg_delivery *d, struct mg_buf *out,
                      struct mg_err *err) MG_MUSTCHECK;

/* What became of a try. */
struct mg_delivery_end {
    struct mg_sv webhook, seq, claim;
    struct mg_sv error; /* ptr NULL: it was delivered */
    int64_t retry_ms;   /* from now, where tries are left */
};
/* Nothing when the claim is another's by now. */
mg_rc mg_delivery_done(struct mg_arena *a, struct mg_pg *pg, const struct mg_delivery_end *e,
                       struct mg_err *err) MG_MUSTCHECK;
/* Given back: any node may send it at once. */
mg_rc mg_deliveries_release(struct mg_pg *pg, struct mg_sv claim, struct mg_err *err) MG_MUSTCHECK;
/* Removes at most limit events that are older than MG_WEBHOOK_KEPT_DAYS. */
mg_rc mg_webhook_purge(struct mg_arena *a, struct mg_pg *pg, int limit, struct mg_err *err) MG_MUSTCHECK;
/* Deliveries that wait, and for how long the oldest one has (0: none does). */
mg_rc mg_deliveries_waiting(struct mg_pg *pg, int64_t *ret_n, int64_t *ret_oldest_s, struct mg_err *err) MG_MUSTCHECK;

#endif
