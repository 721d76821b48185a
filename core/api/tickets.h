/* Tickets for browsers, which cannot set headers on a WebSocket: single use, 30 seconds, the rights of the key that asked.
 *
 * They live in this process: a ticket is good on the node that gave it. Any thread. */
#ifndef MG_API_TICKETS_H
#define MG_API_TICKETS_H

#include "base/err.h"
#include "domain/principal.h"

enum {
    MG_TICKET_S = 30,
    MG_TICKETS_MAX = 10000, /* that wait to be used */
    MG_TICKET_TEXT = 48,    /* bytes with the NUL */
};

struct mg_tickets;
struct mg_tickets *mg_tickets_new(void);
void mg_tickets_free(struct mg_tickets *t); /* NULL is fine */
mg_rc mg_tickets_issue(struct mg_tickets *t, const struct mg_principal *who, char ret[MG_TICKET_TEXT],
                       struct mg_err *err) MG_MUSTCHECK;
/* Uses it up. MG_EAUTH: unknown, used or too old. */
mg_rc mg_tickets_take(struct mg_tickets *t, struct mg_sv text, struct mg_principal *ret,
                      struct mg_err *err) MG_MUSTCHECK;

#endif
