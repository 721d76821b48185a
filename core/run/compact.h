/* Compaction: the beginning of a context that fills its window is told by a summary. The model writes it, in a request of its own that shares the
 * prefix of the turn's requests, so that it is mostly read from the cache; where no request can be made, an extract stands in. */
#ifndef MG_RUN_COMPACT_H
#define MG_RUN_COMPACT_H

#include "run/context.h"
#include "run/step.h"

enum mg_compact_how {
    MG_COMPACT_NOT,     /* the request goes out as it is */
    MG_COMPACT_ASK,     /* a summary of the first n entries is asked for */
    MG_COMPACT_EXTRACT, /* they are told by an extract that is made here */
    MG_COMPACT_EXCERPT, /* nothing can be summarised: long texts are cut */
};

struct mg_compact {
    enum mg_compact_how how;
    int n;               /* ASK, EXTRACT: entries of the context that go */
    int64_t upto;        /* the mark's a: transcript entries that are told */
    int64_t excerpts;    /* the mark's b */
    int64_t summary_max; /* tokens of the summary */
    int64_t before;      /* estimated tokens of the request that would have gone out */
};

struct mg_compact mg_compact_plan(struct mg_context *c);
/* What asks for the summary, as the content of a user entry. */
struct mg_sv mg_compact_question(void);
/* The block that stands for the first n entries. notes: raw JSON string of the model's summary, or empty: an extract of them is made. */
struct mg_sv mg_compact_summary(struct mg_context *c, int n, struct mg_sv notes);
/* The model's text in an answer as a raw JSON string, or empty. */
struct mg_model_result;
struct mg_sv mg_compact_notes(struct mg_arena *a, const struct mg_model_result *res);
/* Records the compaction: the mark and agent.thread_context_compacted. */
mg_rc mg_compact_commit(struct mg_step *s, const struct mg_compact *p, struct mg_sv content,
                        struct mg_err *err) MG_MUSTCHECK;

#endif
