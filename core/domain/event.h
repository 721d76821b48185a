/* Session events: the one table of types, and what clients may send (api-contract 4). */
#ifndef MG_DOMAIN_EVENT_H
#define MG_DOMAIN_EVENT_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"
#include "domain/id.h"
#include "json/json.h"

enum mg_event_type {
    MG_EV_USER_MESSAGE,
    MG_EV_USER_INTERRUPT,
    MG_EV_USER_TOOL_CONFIRMATION,
    MG_EV_USER_CUSTOM_TOOL_RESULT,
    MG_EV_USER_TOOL_RESULT,
    MG_EV_USER_DEFINE_OUTCOME,
    MG_EV_SYSTEM_MESSAGE,
    MG_EV_AGENT_MESSAGE,
    MG_EV_AGENT_THINKING,
    MG_EV_AGENT_TOOL_USE,
    MG_EV_AGENT_TOOL_RESULT,
    MG_EV_AGENT_CUSTOM_TOOL_USE,
    MG_EV_AGENT_MCP_TOOL_USE,
    MG_EV_AGENT_MCP_TOOL_RESULT,
    MG_EV_AGENT_CONTEXT_COMPACTED,
    MG_EV_STATUS_RUNNING,
    MG_EV_STATUS_RESCHEDULED,
    MG_EV_STATUS_IDLE,
    MG_EV_STATUS_TERMINATED,
    MG_EV_SESSION_ERROR,
    MG_EV_SESSION_UPDATED,
    MG_EV_SESSION_USAGE,
    MG_EV_SESSION_DELETED,
    MG_EV_MODEL_REQUEST_START,
    MG_EV_MODEL_REQUEST_END,
    MG_EV_THREAD_MESSAGE_SENT,
    MG_EV_THREAD_MESSAGE_RECEIVED,
    MG_EV_THREAD_CREATED,
    MG_EV_THREAD_RUNNING,
    MG_EV_THREAD_RESCHEDULED,
    MG_EV_THREAD_IDLE,
    MG_EV_THREAD_TERMINATED,
    MG_EV_OUTCOME_START,
    MG_EV_OUTCOME_ONGOING,
    MG_EV_OUTCOME_END,
    MG_EV__COUNT,
};

/* "user.message" and so on. */
const char *mg_event_type_name(enum mg_event_type t);
bool mg_event_type_from(struct mg_sv name, enum mg_event_type *ret);
/* True for every type that the contract names, also those that this server never writes: valid in filters. */
bool mg_event_type_is_contract(struct mg_sv name);

/* One checked client event. Everything is raw JSON text of the client unless it says decoded. */
struct mg_draft {
    enum mg_event_type type;
    struct mg_sv
        members; /* all members but id, type and processed_at, in the client's spelling: `"content":[...]`; may be empty */
    struct mg_sv content;             /* the content array; empty view when absent */
    struct mg_sv ref_id;              /* decoded tool_use_id or custom_tool_use_id */
    struct mg_sv thread_id;           /* decoded session_thread_id, or empty */
    struct mg_sv deny_message;        /* decoded */
    struct mg_sv description, rubric; /* of an outcome, decoded */
    struct mg_sv rubric_file;         /* id of the file that holds the rubric, or empty */
    struct mg_sv *files; /* ids of the files that its blocks name: filled in by the service that read them */
    int n_files;
    int64_t max_iterations;
    bool allow;    /* confirmation */
    bool is_error; /* results */
    struct mg_id
        id; /* "" as parsed: admission makes one. Set for a send with an idempotency key: then it is the event's id */
};

/* The members of an answer to a call anew, with the call's id as ref says, and with session_thread_id where thread is not empty. */
struct mg_sv mg_draft_members(struct mg_arena *a, const struct mg_draft *d, struct mg_sv ref, struct mg_sv thread);

enum { MG_EVENTS_PER_POST_MAX = 100 /* drafts of one request: bounds one transaction */ };

/* Where an array of events comes from, and so which may be in it. */
enum { MG_DRAFTS_POST, MG_DRAFTS_INITIAL, MG_DRAFTS_DEPLOYMENT };
/* Checks {"events":[...]} (or an initial_events array: only user.message and user.define_outcome, of a deployment also system.message, at most 50). Errors name
 * the place: "events[2].content[0].type: ...". Whether the files that they name are there is not known here. */
mg_rc mg_drafts_parse(struct mg_arena *a, const struct mg_json *events, const char *path, int where,
                      struct mg_draft **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

#endif
