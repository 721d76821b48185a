#include "domain/usage.h"

#include "conf/prices.h"
#include "domain/check.h"

enum {
    CENTS_DIGITS_MAX = 11, /* up to a billion dollars; in nano-dollars it still fits 64 bits */
};

void mg_seconds_write(struct mg_jw *w, struct mg_arena *a, const char *key, int64_t us)
{
    long long ms = (long long)(us / 1000);
    mg_jw_kraw(w, key, mg_arena_printf(a, "%lld.%03lld", ms / 1000, ms % 1000));
}

static void money(struct mg_jw *w, struct mg_arena *a, int64_t nano)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "amount", mg_arena_printf(a, "%lld", (long long)(nano / MG_NANO_PER_CENT)));
    mg_jw_kstrz(w, "currency", "USD");
    mg_jw_obj_end(w);
}

void mg_usage_write(struct mg_jw *w, struct mg_arena *a, const struct mg_usage *u)
{
    mg_jw_obj(w);
    mg_jw_kint(w, "input_tokens", u->input_tokens);
    mg_jw_kint(w, "output_tokens", u->output_tokens);
    mg_jw_kint(w, "cache_read_input_tokens", u->cache_read);
    mg_jw_key(w, "cache_creation");
    mg_jw_obj(w);
    mg_jw_kint(w, "ephemeral_5m_input_tokens", u->cache_5m);
    mg_jw_kint(w, "ephemeral_1h_input_tokens", u->cache_1h);
    mg_jw_obj_end(w);
    mg_jw_key(w, "server_tool_use");
    mg_jw_obj(w);
    mg_jw_kint(w, "web_search_requests", u->web_searches);
    mg_jw_kint(w, "web_fetch_requests", u->web_fetches);
    mg_jw_obj_end(w);
    mg_seconds_write(w, a, "active_seconds", u->active_us);
    if (u->cost_unknown) {
        mg_jw_knull(w, "list_cost");
    } else {
        mg_jw_key(w, "list_cost");
        money(w, a, u->cost_nano);
    }
    mg_jw_obj_end(w);
}

enum { B_TYPE, B_MAX, N_BUDGET };
static const char *const TYPES[] = {"limit", NULL};
static const struct mg_field_rule BUDGET_RULES[] = {
    [B_TYPE] = {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = TYPES},
    [B_MAX] = {.name = "max_list_cost", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
    {.name = NULL},
};
enum { M_AMOUNT, M_CURRENCY, N_MONEY };
static const char *const CURRENCIES[] = {"USD", NULL};
static const struct mg_field_rule MONEY_RULES[] = {
    [M_AMOUNT] = {.name = "amount", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = 64},
    [M_CURRENCY] = {.name = "currency", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = CURRENCIES},
    {.name = NULL},
};

static bool cents_of(struct mg_sv s, int64_t *ret)
{
    int64_t n = 0;
    bool good = s.len >= 1 && s.len <= CENTS_DIGITS_MAX && s.ptr[0] != '0';
    for (size_t i = 0; good && i < s.len; i++) {
        good = s.ptr[i] >= '0' && s.ptr[i] <= '9';
        n = n * 10 + (s.ptr[i] - '0');
    }
    *ret = n;
    return good;
}

mg_rc mg_budget_parse(struct mg_arena *a, const struct mg_json *v, const char *path, int64_t *ret_nano,
                      struct mg_err *err)
{
    const struct mg_json *b[N_BUDGET], *m[N_MONEY];
    char place[MG_PATH_MAX];
    int64_t cents;
    mg_rc rc = mg_check_object(a, v, path, BUDGET_RULES, b, err);
    if (rc >= 0)
        rc = mg_check_object(a, b[B_MAX], mg_place(place, path, "max_list_cost"), MONEY_RULES, m, err);
    if (rc < 0)
        return rc;
    if (!cents_of(mg_json_str(a, m[M_AMOUNT]), &cents))
        return mg_err_set(
            err, MG_EINVAL,
            "%s.max_list_cost.amount: must be whole cents as text, without leading zeros, from \"1\" to %d "
            "digits (\"2500\" is 25 dollars)",
            path, CENTS_DIGITS_MAX);
    *ret_nano = cents * MG_NANO_PER_CENT;
    return MG_OK;
}

struct mg_sv mg_budget_format(struct mg_arena *a, int64_t nano)
{
    if (nano == MG_BUDGET_NONE)
        return MG_SV("null");
    return mg_arena_printf(a, "{\"type\":\"limit\",\"max_list_cost\":{\"amount\":\"%lld\",\"currency\":\"USD\"}}",
                           (long long)(nano / MG_NANO_PER_CENT));
}
