/* Agents: from a request body to the resolved agent that is stored, and from that to what clients see. */
#ifndef MG_DOMAIN_AGENT_H
#define MG_DOMAIN_AGENT_H

#include "domain/check.h"
#include "domain/multiagent.h"

/* Each member is finished JSON text in arena memory (or a literal): name and so on as a string, description and system null when unset. */
struct mg_agent {
    struct mg_sv name, description, system, model, tools, mcp_servers, skills, multiagent, execution_identity, metadata;
    struct mg_multiagent
        *roster; /* as a body gave it, to be pinned (service/roster.h) and written into multiagent; else NULL */
};

enum {
    MG_AGENT_NAME_MAX = 256,         /* characters */
    MG_AGENT_DESCRIPTION_MAX = 2048, /* characters */
    MG_AGENT_SYSTEM_MAX = 100000,    /* characters: the contract's */
};

mg_rc mg_agent_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_agent *ret,
                            struct mg_err *err) MG_MUSTCHECK;
/* base with the changes of an update. *ret_version: the version that the client expects, 0 when it does not say. */
mg_rc mg_agent_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_agent *base,
                            struct mg_agent *ret, int64_t *ret_version, struct mg_err *err) MG_MUSTCHECK;
/* agent_versions.body and back. */
struct mg_sv mg_agent_format(struct mg_arena *a, const struct mg_agent *x);
mg_rc mg_agent_load(struct mg_arena *a, struct mg_sv text, struct mg_agent *ret, struct mg_err *err) MG_MUSTCHECK;
bool mg_agent_same(struct mg_arena *a, const struct mg_agent *x, const struct mg_agent *y);

/* The SessionAgent object: without metadata and times. */
struct mg_sv mg_agent_session_format(struct mg_arena *a, struct mg_sv id, int64_t version, const struct mg_agent *x);
/* The SessionThreadAgent object: that without multiagent. */
struct mg_sv mg_agent_thread_format(struct mg_arena *a, struct mg_sv id, int64_t version, const struct mg_agent *x);

/* The InlineAgent object: a SessionThreadAgent's members without id and version. */
struct mg_sv mg_agent_inline_format(struct mg_arena *a, const struct mg_agent *x);

/* The agent of a session body: who, which version, and what it overrides. */
struct mg_agent_ref {
    struct mg_sv id;
    int64_t version;                 /* 0: the latest */
    const struct mg_json *overrides; /* the agent_with_overrides object, or NULL */
};
mg_rc mg_agent_ref_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_agent_ref *ret,
                         struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_agent_override(struct mg_arena *a, const struct mg_json *overrides, const struct mg_agent *base,
                        struct mg_agent *ret, struct mg_err *err) MG_MUSTCHECK;
/* The agent member of a session update: tools and mcp_servers only. */
mg_rc mg_agent_session_update(struct mg_arena *a, const struct mg_json *v, const struct mg_agent *base,
                              struct mg_agent *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
