/* Session bodies (api-contract 2.4). */
#ifndef MG_DOMAIN_SESSION_H
#define MG_DOMAIN_SESSION_H

#include "domain/agent.h"
#include "domain/event.h"
#include "domain/resource.h"
#include "domain/usage.h"

enum { MG_SESSION_TITLE_MAX = 512 /* characters */ };

struct mg_session_create {
    struct mg_agent_ref agent;
    struct mg_sv environment_id;
    struct mg_sv title;     /* decoded; ptr NULL: none */
    struct mg_sv metadata;  /* JSON text */
    struct mg_sv vault_ids; /* JSON text; its items: */
    struct mg_sv *vaults;
    int n_vaults;
    struct mg_resource_spec *resources;
    int n_resources;
    struct mg_draft *events;
    int n_events;
    int64_t budget_nano; /* MG_BUDGET_NONE: none */
};
mg_rc mg_session_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_session_create *ret,
                              struct mg_err *err) MG_MUSTCHECK;

/* The same for a session that a deployment makes: its events may end with a system.message. */
mg_rc mg_session_parse_deployed(struct mg_arena *a, const struct mg_json *body, struct mg_session_create *ret,
                                struct mg_err *err) MG_MUSTCHECK;

struct mg_session_update {
    bool has_budget;
    int64_t budget_nano; /* MG_BUDGET_NONE removes it */
    bool has_title;
    struct mg_sv title;             /* decoded; ptr NULL clears */
    const struct mg_json *metadata; /* the patch, or NULL */
    const struct mg_json *agent;    /* {tools, mcp_servers}, or NULL */
};
mg_rc mg_session_parse_update(struct mg_arena *a, const struct mg_json *body, struct mg_session_update *ret,
                              struct mg_err *err) MG_MUSTCHECK;

#endif
