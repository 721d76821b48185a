/* Outcomes: the agent works, a grader judges, the agent revises, until the outcome is satisfied or its cycles are used up (semantics 7.3). The grader's
 * request takes the place of a request of the turn: same step, same back-off, same fence; only how it is built and what its answer means differ. All
 * functions are for a locked session. */
#ifndef MG_RUN_OUTCOME_H
#define MG_RUN_OUTCOME_H

#include "model/model.h"
#include "model/request.h"
#include "run/step.h"
#include "store/outcome.h"

enum {
    MG_GRADER_TOKENS = 1024,      /* of the grader's answer: semantics OU1 */
    MG_GRADER_ONGOING_MS = 30000, /* between two signs of life of an evaluation: semantics OU2 */
    MG_GRADER_WORK_MAX = 200000,  /* bytes of the conversation that the grader reads: its newest part */
};

struct mg_draft;

/* user.define_outcome was stored as the step's last event: its outcome waits for its turn. MG_ECONFLICT while another one is open. */
mg_rc mg_outcome_define(struct mg_step *s, const struct mg_draft *d, const struct mg_id *outcome, const char *place,
                        struct mg_err *err) MG_MUSTCHECK;
/* The queued outcome's turn begins: its text is the next entry of the transcript. */
mg_rc mg_outcome_begin(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* The agent says that it is done: opens the evaluation and its request. */
mg_rc mg_outcome_grade(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* The grader's answer: satisfied, another cycle, or the end. */
mg_rc mg_outcome_judge(struct mg_step *s, const struct mg_model_result *res, struct mg_err *err) MG_MUSTCHECK;
/* The turn ends otherwise; result is "interrupted" or "failed". No-op without an outcome that has begun; all also ends one that waits. */
mg_rc mg_outcome_end(struct mg_step *s, const char *result, const char *explanation, bool all,
                     struct mg_err *err) MG_MUSTCHECK;
/* span.outcome_evaluation_ongoing, while the evaluation runs. */
mg_rc mg_outcome_ongoing(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* Turns the request of the agent's context into the grader's, which reads what the agent would have read: summary and all. Arena memory. */
void mg_outcome_request(struct mg_arena *a, const struct mg_outcome *o, struct mg_request *ret);

/* What was said and done, in words, for a model that takes no part: the newest max bytes. Arena memory. */
struct mg_sv mg_outcome_record(struct mg_arena *a, const struct mg_request_entry *entries, int n, size_t max);

enum mg_verdict { MG_VERDICT_SATISFIED, MG_VERDICT_REVISE, MG_VERDICT_FAILED };
/* Reads a grader's answer, which must be one JSON object; anything else is a failure of the outcome. explanation in arena memory. */
enum mg_verdict mg_outcome_verdict(struct mg_arena *a, struct mg_sv text, struct mg_sv *ret_explanation);

#endif
