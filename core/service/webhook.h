/* Sends what webhooks are to be told: one thread of the process, which claims due deliveries, signs and posts them, and notes what became of them.
 *
 * While no webhook is active it does nothing but look for what is too old every ten minutes.
 *
 * A delivery is claimed by one node under a lease of MG_WEBHOOK_CLAIM_S. A node that dies while it sends leaves the delivery to whoever comes next:
 * it may come twice then, under the same webhook-id. */
#ifndef MG_SERVICE_WEBHOOK_H
#define MG_SERVICE_WEBHOOK_H

#include "base/buf.h"
#include "base/err.h"
#include "domain/id.h"
#include "store/keyring.h"
#include "store/pg.h"

enum {
    MG_WEBHOOK_SEND_MS = 15000, /* one try, name lookup included */
    MG_WEBHOOK_SENDING_MAX = 32 /* tries at once, of one node */
};

struct mg_webhooks;

struct mg_webhooks_opts {
    const char *conninfo;
    const struct mg_keyring *keyring; /* signing keys are sealed with it; outlives the sender */
    struct mg_id organization;        /* what notices name as organization_id */
    const char *ca_file;              /* NULL: the system's */
    bool allow_private;               /* any address and port, and http */
};

mg_rc mg_webhooks_start(const struct mg_webhooks_opts *o, struct mg_webhooks **ret, struct mg_err *err) MG_MUSTCHECK;
/* Ends what is being sent, which another node may send again; NULL is fine. */
void mg_webhooks_stop(struct mg_webhooks *w);
/* Webhooks may have been made or ended: from any thread. w NULL is fine. */
void mg_webhooks_changed(struct mg_webhooks *w);
/* w NULL: this server sends none. */
void mg_webhooks_metrics(struct mg_webhooks *w, struct mg_pg *pg, struct mg_buf *out);

/* Whether notices may go there, as far as the URL alone tells: https, port 443, no literal address that is private. Names are looked at when they
 * are resolved, each time. */
mg_rc mg_webhook_url_check(struct mg_sv url, bool allow_private, struct mg_err *err) MG_MUSTCHECK;

#endif
