/* Fan-out of committed events to the streams of this process.
 *
 * A topic exists for each session that has a subscriber. It holds a bounded ring of the newest events (shared, reference-counted text)
 * and each subscriber has only a cursor: the sequence number that it has been given. A subscriber whose cursor is older than
 * the ring reads pages from the database, one page at a time, only when it asks for more: a slow reader costs no memory.
 *
 * The database is the only truth: mg_hub_publish after a commit is a shortcut, mg_hub_wake (from NOTIFY, another replica or the
 * repair timer) says that there may be more. Events reach a subscriber in sequence order, each exactly once, whatever
 * the order of publishes.
 *
 * Concurrency: publish, wake and preview may be called from any thread; they put a message in an inbox and call opts.wakeup. All the
 * rest runs on the owner's thread (the HTTP loop). Database pages are loaded by opts.load, which must not block: it hands the job to
 * the request pool, whose thread then calls mg_hub_loaded (any thread). */
#ifndef MG_EVENTS_HUB_H
#define MG_EVENTS_HUB_H

#include "base/err.h"
#include "base/sv.h"
#include "domain/id.h"

/* One event, immutable, reference-counted. json is the whole object as clients see it. */
struct mg_event {
    int64_t seq;                 /* 0 for previews */
    uint8_t preview;             /* 0: a stored event; 1: preview of agent.message; 2: of agent.thinking */
    struct mg_sv id, type, json; /* views of memory behind this struct */
    struct mg_sv thread_id;      /* empty: the primary thread */
    unsigned refs;               /* atomic */
};
struct mg_event *mg_event_new(int64_t seq, struct mg_sv id, struct mg_sv type, struct mg_sv thread_id,
                              struct mg_sv json);
struct mg_event *mg_event_ref(struct mg_event *e);
void mg_event_unref(struct mg_event *e);

enum {
    MG_HUB_RING_EVENTS = 256,        /* newest events kept per topic */
    MG_HUB_RING_BYTES = 1024 * 1024, /* and their text together; a larger single event is not kept */
    MG_HUB_PAGE_EVENTS = 200,        /* of one load */
    MG_HUB_PAGE_BYTES = 1024 * 1024,
    MG_HUB_SUB_EVENTS = 64, /* of a page for one subscriber that is behind the ring: what a slow reader may cost */
    MG_HUB_SUB_BYTES = 64 * 1024,
    MG_HUB_SUB_PREVIEWS =
        128, /* waiting previews of one subscriber; over it they are dropped until the next event_start */
    MG_HUB_REPAIR_MS = 2000, /* topics are compared with the database this often when other nodes live */
};

struct mg_hub;
struct mg_sub;

struct mg_hub_opts {
    void (*wakeup)(void *ctx); /* any thread; makes the owner call mg_hub_run soon */
    /* Owner's thread. Load events of session with seq > after, in order, at most limit of them and about max_bytes (at least one); answer by
     * mg_hub_loaded with the same token. A session that is gone is MG_ENOTFOUND. */
    void (*load)(void *ctx, const struct mg_id *session, int64_t after, int limit, size_t max_bytes, uint64_t token);
    void *ctx;
};

struct mg_hub *mg_hub_new(const struct mg_hub_opts *o);
void mg_hub_free(struct mg_hub *h);

/* Any thread. The events of one commit, in order; references are taken over. */
void mg_hub_publish(struct mg_hub *h, const struct mg_id *session, struct mg_event **events, int n);
/* Ephemeral event_start (type "event_start") or event_delta; e->preview is set, e->id is the id of the event to come. Takes the reference. */
void mg_hub_preview(struct mg_hub *h, const struct mg_id *session, struct mg_event *e);
void mg_hub_wake(struct mg_hub *h, const struct mg_id *session, int64_t head_seq); /* 0: unknown */
void mg_hub_tick(struct mg_hub *h); /* now and then: loads that failed are tried again */
/* Runs fn on the owner's thread; for mg_hub_each_topic. */
void mg_hub_call(struct mg_hub *h, void (*fn)(void *ctx, struct mg_hub *hub), void *ctx);
bool mg_hub_idle(const struct mg_hub *h); /* no subscriber at all: a publisher may skip building events */
void mg_hub_loaded(struct mg_hub *h, uint64_t token, struct mg_event **events, int n, mg_rc rc);
void mg_hub_revoke(struct mg_hub *h, struct mg_sv key_id); /* ends the streams of a credential */

/* Owner's thread only. */
void mg_hub_run(struct mg_hub *h); /* handles the inbox */

enum mg_sub_end { MG_SUB_DELETED = 1, MG_SUB_REVOKED, MG_SUB_LEASE_LOST, MG_SUB_ERROR };
struct mg_sub_opts {
    struct mg_id session, key_id;
    int64_t after_seq;
    bool deltas_message, deltas_thinking;
    void (*ready)(void *ctx); /* there is something for mg_sub_next; do not call back into the hub from it */
    void *ctx;
};
struct mg_sub *mg_sub_new(struct mg_hub *h, const struct mg_sub_opts *o);
void mg_sub_free(struct mg_sub *s);
/* The next event, a reference for the caller, or NULL when there is none now (ready is called when there is). Previews come only in their
 * order: never after the final event of their id. *ret_live turns true once history is done. *ret_end is set when the stream is over. */
struct mg_event *mg_sub_next(struct mg_sub *s, bool *ret_live, enum mg_sub_end *ret_end);
/* Why the stream is over, or 0, without taking an event: for a subscriber that may take none now. */
enum mg_sub_end mg_sub_ended(const struct mg_sub *s);
/* Sessions with subscribers, for the repair query; called with the topic's head. */
void mg_hub_each_topic(struct mg_hub *h, void (*fn)(void *ctx, const struct mg_id *session, int64_t head), void *ctx);

#endif
