/* The price list: what a session's usage costs at list price. Budgets are kept by it, so prices are data of the operator, in a file in libconfig's
 * syntax (conf/prices.conf is the one that is installed). All sums are integers: nano-dollars, so that nothing is rounded.
 *
 *     models = ( { id = "claude-x-1"; input = "3"; output = "15"; cache_read = "0.30"; cache_write_5m = "3.75"; cache_write_1h = "6"; } );
 *     web_search_per_1000 = "10";
 *
 * Prices are dollars for a million tokens, as text. Immutable after the load; any thread. */
#ifndef MG_CONF_PRICES_H
#define MG_CONF_PRICES_H

#include "base/err.h"
#include "base/sv.h"

enum {
    MG_PRICE_MODELS_MAX = 1000,
    MG_NANO_PER_CENT = 10000000,
};

struct mg_price {
    char *id;
    /* nano-dollars of one token */
    int64_t input, output, cache_read, cache_write_5m, cache_write_1h;
};

struct mg_prices {
    struct mg_price *models;
    int n;
    int64_t web_search; /* nano-dollars of one search */
};

/* What one model request used. input does not hold what was read from or written to the cache. */
struct mg_used {
    int64_t input, output, cache_read, cache_5m, cache_1h, web_searches;
};

/* path NULL: no list, no model has a price. MG_ECONFIG names file, line and what is wrong. */
mg_rc mg_prices_load(const char *path, struct mg_prices **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_prices_free(struct mg_prices *p);
/* The entry of a model, with or without a date behind its name ("NAME-20260101"); NULL: it has no price. p may be NULL. */
const struct mg_price *mg_price_of(const struct mg_prices *p, struct mg_sv model);
/* The list cost in nano-dollars; INT64_MAX when it does not fit. */
int64_t mg_price_cost(const struct mg_prices *p, const struct mg_price *m, const struct mg_used *u);
/* Dollars as decimal text ("0.30", "15") times 10^9 / per: nano-dollars of one unit. False: no such text, or more digits than a nano-dollar holds. */
bool mg_price_parse(struct mg_sv text, int64_t per, int64_t *ret);

#endif
