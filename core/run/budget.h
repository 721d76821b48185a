/* The budget of a session: counted with each model answer, asked before each model request. Under the session's lock. */
#ifndef MG_RUN_BUDGET_H
#define MG_RUN_BUDGET_H

#include "conf/prices.h"
#include "run/step.h"

struct mg_model_usage;

/* The list cost of an answer joins the session's total, in the step that commits it. price NULL: the model has none. */
void mg_budget_charge(struct mg_step *s, const struct mg_price *price, const struct mg_model_usage *u);
/* No further model request may be made. A cost that is not known counts as reached. */
bool mg_budget_reached(const struct mg_session_state *st);
/* session.usage: the totals and the budget. */
mg_rc mg_budget_event(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* Instead of a request: session.usage, idle with budget_reached, step paused. */
mg_rc mg_budget_pause(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
extern const char MG_BUDGET_STOP[]; /* the stop_reason */

#endif
