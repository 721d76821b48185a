/* What a runner reads of a session's event; the rest is skipped. */
#ifndef MG_WORKER_EVENT_H
#define MG_WORKER_EVENT_H

#include "base/list.h"
#include "json/json.h"

enum mg_event_kind {
    MG_EVENT_OTHER,
    MG_EVENT_CALL,              /* agent.tool_use, agent.custom_tool_use */
    MG_EVENT_RESULT,            /* user.tool_result, user.custom_tool_result */
    MG_EVENT_CONFIRMATION,      /* user.tool_confirmation */
    MG_EVENT_THREAD_TERMINATED, /* session.thread_status_terminated */
    MG_EVENT_IDLE,              /* session.status_idle */
    MG_EVENT_OVER,              /* session.status_terminated, session.deleted */
};

enum mg_event_permission {
    MG_PERMIT_ALLOW, /* also where the event says nothing */
    MG_PERMIT_ASK,   /* also what this release does not know: it must not run unconfirmed */
    MG_PERMIT_DENY,
};

/* Views live as long as the arena and the text they were read from. */
struct mg_event {
    enum mg_event_kind kind;
    struct mg_sv id;     /* of a call; for a result and a confirmation: of the call that they are about */
    struct mg_sv name;   /* of a call's tool */
    struct mg_sv input;  /* of a call: raw JSON */
    struct mg_sv thread; /* session_thread_id, or empty */
    bool custom;         /* agent.custom_tool_use */
    enum mg_event_permission permission;
    bool allow;     /* of a confirmation; anything but "allow" is a denial */
    bool ends_turn; /* of an idle: any reason but requires_action */
};

/* False: v is no event (no object, no type). */
bool mg_event_read(struct mg_arena *a, const struct mg_json *v, struct mg_event *ret);

/* A call of its own, to be run. */
struct mg_call {
    struct mg_list link;
    char *id, *name, *thread;
    char *input; /* NUL-terminated */
    size_t input_len;
    bool custom;
    enum mg_event_permission permission;
    bool gated; /* ran because a confirmation allowed it */
};

struct mg_call *mg_call_new(const struct mg_event *e);
void mg_call_free(struct mg_call *c);

#endif
