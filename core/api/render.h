/* The objects of the API as text. Every array is there, every time has the one format. */
#ifndef MG_API_RENDER_H
#define MG_API_RENDER_H

#include "api/api.h"
#include "store/agent.h"
#include "store/environment.h"
#include "store/session.h"
#include "store/thread-state.h"

void mg_render_agent(struct mg_jw *w, const struct mg_agent_row *x);
void mg_render_environment(struct mg_jw *w, const struct mg_environment_row *x);
void mg_render_session(struct mg_jw *w, struct mg_arena *a, const struct mg_session_row *x);
/* The primary thread of a session; its own share in a coordinator's is mg_thread_primary_own's business. */
void mg_thread_row_of(struct mg_arena *a, const struct mg_session_row *x, struct mg_thread_row *ret);
mg_rc mg_render_thread(struct mg_jw *w, struct mg_arena *a, struct mg_sv session_id, const struct mg_thread_row *x,
                       struct mg_err *err) MG_MUSTCHECK;

#endif
