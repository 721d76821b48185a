/* The work queue for its callers: pollers, workers and operators (api-contract 6, semantics 12). */
#ifndef MG_SERVICE_WORK_H
#define MG_SERVICE_WORK_H

#include "domain/event.h"
#include "domain/principal.h"
#include "store/work.h"

struct mg_engine;
struct mg_step;

#define MG_WORK_TOKEN_PREFIX "sess_mango_"
enum {
    MG_WORK_TOKEN_TEXT =
        56 + MG_ID_MAX,          /* bytes of a token of ours: the prefix, 43 characters, a dot and the item's id */
    MG_WORK_FAIL_TEXT_MAX = 512, /* characters of a failure's text: semantics RT7 */
    MG_WORK_EMPTY_MS = 1000,     /* what a notification that was lost may cost */
    MG_WORK_LOOK_MS = 2000,      /* a queue is looked at from its beginning so often at most, and beside the polls */
    MG_WORK_LATE_MS = 5000,      /* an item that is committed so long after its own time is found by a look only */
    MG_WORK_POLLER_NOTE_S = 10, /* a poller's row is written so often at most: pollers of this long ago count as here */
};

/* What this process remembers of its pollers, of queues that it found empty, so that an idle poll writes nothing and, within
 * MG_WORK_EMPTY_MS of a look that found nothing, asks the database nothing, and of the tokens that it saw. Any thread. */
struct mg_pollers;
struct mg_pollers *mg_pollers_new(void);
void mg_pollers_free(struct mg_pollers *p);
/* Work may have been queued for this environment: its queue is not known to be empty any more. */
void mg_pollers_news(struct mg_pollers *p, struct mg_sv environment);

/* Whether the queue's beginning is to be looked for now; then mg_works_look is, by a thread that nobody waits for. */
bool mg_works_look_due(struct mg_pollers *p, struct mg_sv environment);
void mg_works_look(struct mg_pollers *p, struct mg_pg *pg, struct mg_sv environment);

struct mg_work_poll {
    struct mg_sv environment, worker_id;
    int64_t reclaim_ms;
    bool first; /* not woken from a wait: the environment and the poller are looked at */
};
/* ret->id empty: the queue is empty. token: of the claim, shown this once. */
mg_rc mg_works_poll(struct mg_engine *e, struct mg_pollers *pollers, struct mg_pg *pg, struct mg_arena *a,
                    const struct mg_principal *who, const struct mg_work_poll *q, struct mg_work_row *ret,
                    char token[MG_WORK_TOKEN_TEXT], struct mg_err *err) MG_MUSTCHECK;
/* Twice is fine until the first heartbeat. */
mg_rc mg_works_ack(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                   struct mg_sv environment, struct mg_sv id, int64_t ttl_s, struct mg_work_row *ret,
                   struct mg_err *err) MG_MUSTCHECK;
/* expected: ptr NULL for none, "NO_HEARTBEAT", or the text of the last answer. ret->state says what became of the item; *ret_extended whether the
 * lease runs on. MG_EPRECOND with the state in err->details. */
mg_rc mg_works_beat(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                    struct mg_sv environment, struct mg_sv id, struct mg_sv expected, int64_t ttl_s,
                    struct mg_work_row *ret, bool *ret_extended, struct mg_err *err) MG_MUSTCHECK;
/* A stopped item stays as it is. */
mg_rc mg_works_stop(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                    struct mg_sv environment, struct mg_sv id, bool force, struct mg_work_row *ret,
                    struct mg_err *err) MG_MUSTCHECK;
/* requeue: the item goes back to the queue, as another one. Otherwise the session ends with this message. MG_ECONFLICT: it is stopping or stopped. */
mg_rc mg_works_fail(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                    struct mg_sv environment, struct mg_sv id, struct mg_sv message, bool requeue,
                    struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_works_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv environment,
                      struct mg_sv id, const struct mg_json *metadata, struct mg_work_row *ret,
                      struct mg_err *err) MG_MUSTCHECK;
/* The environment is the caller's and self_hosted: MG_ENOTFOUND, MG_EINVAL. */
mg_rc mg_works_environment(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                           struct mg_sv environment, struct mg_err *err) MG_MUSTCHECK;

/* Who a token is. MG_EAUTH. */
mg_rc mg_works_principal(struct mg_pollers *p, struct mg_pg *pg, struct mg_arena *a, struct mg_sv token,
                         struct mg_principal *ret, struct mg_err *err) MG_MUSTCHECK;
/* The same from memory: which item a token is of never changes, whether its claim holds does, and is not told (live is false). For the calls of the item
 * itself, whose statements find out. False: not known here. */
bool mg_works_known(struct mg_pollers *p, struct mg_sv token, struct mg_principal *ret);
/* A worker's events, under the session's lock: results only, and only while its claim holds, which is checked and locked in this transaction. */
mg_rc mg_works_may_send(struct mg_step *s, const struct mg_principal *who, const struct mg_draft *drafts, int n,
                        struct mg_err *err) MG_MUSTCHECK;

#endif
