/* What a session has used, as the API shows it (BetaManagedAgentsSessionUsage), and its budget. Money is in nano-dollars inside and in whole cents,
 * as text, outside. */
#ifndef MG_DOMAIN_USAGE_H
#define MG_DOMAIN_USAGE_H

#include "base/arena.h"
#include "base/err.h"
#include "json/json.h"
#include "json/write.h"

struct mg_usage {
    int64_t input_tokens, output_tokens, cache_read, cache_5m, cache_1h, web_searches, web_fetches;
    int64_t active_us;
    int64_t cost_nano;
    bool cost_unknown; /* a model without a price was used */
};

enum { MG_BUDGET_NONE = -1 };

/* The object. */
void mg_usage_write(struct mg_jw *w, struct mg_arena *a, const struct mg_usage *u);
/* Microseconds as seconds with three decimals, a JSON number. */
void mg_seconds_write(struct mg_jw *w, struct mg_arena *a, const char *key, int64_t us);

/* {"type":"limit","max_list_cost":{"amount":"2500","currency":"USD"}}; path names it in errors. */
mg_rc mg_budget_parse(struct mg_arena *a, const struct mg_json *v, const char *path, int64_t *ret_nano,
                      struct mg_err *err) MG_MUSTCHECK;
/* The same object from nano-dollars, in arena memory; null for MG_BUDGET_NONE. */
struct mg_sv mg_budget_format(struct mg_arena *a, int64_t nano);

#endif
