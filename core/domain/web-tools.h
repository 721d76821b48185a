/* web_search and web_fetch of the agent toolset: what their configs may hold beyond what every tool's may (api-contract 7.1). The model endpoint runs
 * these tools, so that nobody here can be asked before a call. */
#ifndef MG_DOMAIN_WEB_TOOLS_H
#define MG_DOMAIN_WEB_TOOLS_H

#include "domain/check.h"
#include "json/write.h"

enum mg_web_tool { MG_WEB_FETCH, MG_WEB_SEARCH };
enum { MG_WEB_TOOLS = 2, MG_WEB_DOMAINS_MAX = 64 /* the contract's */ };

const char *mg_web_tool_name(enum mg_web_tool t);
/* -1: another tool. */
int mg_web_tool_of(struct mg_sv name);

/* The members that only these tools have, in this order. */
enum {
    MG_WEB_ALLOWED_DOMAINS,
    MG_WEB_BLOCKED_DOMAINS,
    MG_WEB_MAX_CONTENT_TOKENS,
    MG_WEB_URL_SOURCES,
    MG_WEB_USER_LOCATION,
    MG_WEB_MEMBERS
};
extern const char *const mg_web_members[MG_WEB_MEMBERS + 1];

/* name: of the config; m: its members in that order, NULL or null where absent. Those that are given are checked, and written into the open object. */
mg_rc mg_web_config(struct mg_arena *a, struct mg_sv name, const struct mg_json *const m[MG_WEB_MEMBERS],
                    const char *place, struct mg_jw *w, struct mg_err *err) MG_MUSTCHECK;

#endif
