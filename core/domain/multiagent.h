/* An agent's multiagent configuration: which agents it may give tasks to, and which model it may ask. Both forms of the contract (coordinator,
 * multiagent_20261001) are one roster here; workflows are refused by name. A reference becomes a version when the agent is written, and the whole
 * agent when a session is made. */
#ifndef MG_DOMAIN_MULTIAGENT_H
#define MG_DOMAIN_MULTIAGENT_H

#include "domain/check.h"

enum {
    MG_ROSTER_MAX = 20,         /* agents: the contract's */
    MG_ADVISOR_MODEL_MAX = 256, /* characters of its model, as of any */
};

/* The name that the advisor has in a roster and in events; no other member may have it. */
#define MG_ADVISOR_NAME "anthropic.advisor"

struct mg_roster_ref {
    struct mg_sv id;   /* empty for self */
    int64_t version;   /* 0: the latest */
    bool self;         /* the agent that owns the configuration */
    const char *place; /* "multiagent.agents[2]"; for errors */
};

struct mg_multiagent {
    bool coordinator;   /* the older form */
    bool subagents;     /* multiagent_20261001: subagents are enabled */
    bool inline_agents; /* then: it may define agents itself */
    struct mg_roster_ref refs[MG_ROSTER_MAX];
    int n;
    struct mg_sv advisor; /* its model as a raw JSON string; len 0: there is none */
    int advisor_at;       /* coordinator: how many agents stand before it */
};

/* A body's member, which is not null. stored: what the agent has now, finished text ("null": nothing): multiagent_20261001 is merged into it. */
mg_rc mg_multiagent_parse(struct mg_arena *a, const struct mg_json *v, struct mg_sv stored, struct mg_multiagent *ret,
                          struct mg_err *err) MG_MUSTCHECK;
/* Stored text; "null" gives an empty roster. */
mg_rc mg_multiagent_load(struct mg_arena *a, struct mg_sv stored, struct mg_multiagent *ret,
                         struct mg_err *err) MG_MUSTCHECK;
/* The finished text with these entries (n of them, JSON objects). */
struct mg_sv mg_multiagent_format(struct mg_arena *a, const struct mg_multiagent *m, const struct mg_sv *entries);
/* {"type":"agent","id":..,"version":..} */
struct mg_sv mg_roster_entry(struct mg_arena *a, struct mg_sv id, int64_t version);

#endif
