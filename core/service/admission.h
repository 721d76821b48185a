/* Admission: client events into a session, in one transaction with the status change and the claim of the turn by this node (semantics 2.3). */
#ifndef MG_SERVICE_ADMISSION_H
#define MG_SERVICE_ADMISSION_H

#include "base/buf.h"
#include "domain/event.h"
#include "domain/principal.h"
#include "store/pg.h"

struct mg_engine;

/* Accepts all drafts or none. out gets the JSON array of the stored events, in the order sent. ret_ids (may be NULL) gets n ids.
 * Files that drafts name are read and checked first (content-file.h). MG_ENOTFOUND unknown session or another workspace's; MG_ECONFLICT archived, deleting or
 * terminated. */
mg_rc mg_admit(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
               struct mg_sv session_id, struct mg_draft *drafts, int n, struct mg_buf *out, struct mg_id *ret_ids,
               struct mg_err *err) MG_MUSTCHECK;

/* For session create, whose drafts' files were read before: the same inside the caller's transaction, on a session whose rows were just inserted: fresh has its ids,
 * and whether it is self_hosted and a coordinator's. Publish after the commit. */
struct mg_admitted;
struct mg_session_state;
mg_rc mg_admit_in(struct mg_engine *e, struct mg_txn *t, struct mg_arena *a, const struct mg_session_state *fresh,
                  const struct mg_draft *drafts, int n, struct mg_admitted **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_admitted_publish(struct mg_engine *e,
                         struct mg_admitted *x); /* after the commit: streams are told, the turn starts */
/* Status of the session after admission: "running" or "idle". */
const char *mg_admitted_status(const struct mg_admitted *x);

#endif
