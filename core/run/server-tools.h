/* Tools that the model endpoint runs itself: declared in its own terms, shown as events, never a barrier. Their blocks stay in the transcript byte for
 * byte. */
#ifndef MG_RUN_SERVER_TOOLS_H
#define MG_RUN_SERVER_TOOLS_H

#include "json/json.h"
#include "model/model.h"
#include "run/step.h"

enum mg_web_mode {
    MG_WEB_NAMED, /* those that the agent's toolset names in its configs */
    MG_WEB_ALL,   /* also those that are on by default */
    MG_WEB_NONE,
};

/* The toolset (of the built-in tools) has the web tool of this name. */
bool mg_web_tool_on(struct mg_arena *a, const struct mg_json *toolset, enum mg_web_mode mode, struct mg_sv name);
/* Adds the agent's web tools to the request's definitions, a raw array. *ret_fetch: web_fetch is among them. */
struct mg_sv mg_web_definitions(struct mg_arena *a, const struct mg_json *agent, enum mg_web_mode mode,
                                struct mg_sv tools, bool *ret_fetch);
/* The events of one of an answer's blocks of kind OTHER: agent.tool_use for a server_tool_use, agent.tool_result for a result; none for others. The
 * answer's entry is in the step already. */
mg_rc mg_server_tool_event(struct mg_step *s, const struct mg_model_result *res, int block,
                           struct mg_err *err) MG_MUSTCHECK;
/* A server_tool_use that this answer holds no result for. */
bool mg_server_tool_open(struct mg_arena *a, const struct mg_model_result *res, int block);

#endif
