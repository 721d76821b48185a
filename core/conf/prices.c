#include "conf/prices.h"

#include <libconfig.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    MILLION = 1000000,
    NANO_DIGITS = 9,
    DATE_DIGITS = 8,          /* of a dated model name */
    DOLLARS_MAX = 1000000000, /* of a million tokens: keeps every product within 64 bits */
};

bool mg_price_parse(struct mg_sv text, int64_t per, int64_t *ret)
{
    int64_t whole = 0, nano = 0;
    size_t i = 0;
    for (; i < text.len && text.ptr[i] >= '0' && text.ptr[i] <= '9' && whole <= DOLLARS_MAX; i++)
        whole = whole * 10 + (text.ptr[i] - '0');
    bool good = i > 0 && whole <= DOLLARS_MAX;
    if (good && i < text.len && text.ptr[i] == '.') {
        int digits = 0;
        for (i++; i < text.len && text.ptr[i] >= '0' && text.ptr[i] <= '9' && digits < NANO_DIGITS; i++, digits++)
            nano = nano * 10 + (text.ptr[i] - '0');
        good = digits > 0;
        for (; digits < NANO_DIGITS; digits++)
            nano *= 10;
    }
    if (!good || i != text.len)
        return false;
    int64_t all = whole * 1000000000 + nano;
    *ret = all / per;
    return all % per == 0;
}

/* ---- the file ---- */

struct column {
    const char *name;
    size_t at;
};
static const struct column COLUMNS[] = {
    {"input", offsetof(struct mg_price, input)},
    {"output", offsetof(struct mg_price, output)},
    {"cache_read", offsetof(struct mg_price, cache_read)},
    {"cache_write_5m", offsetof(struct mg_price, cache_write_5m)},
    {"cache_write_1h", offsetof(struct mg_price, cache_write_1h)},
};

static mg_rc read_price(const config_setting_t *s, const char *name, int64_t per, int64_t *ret, struct mg_err *err)
{
    const char *text = NULL;
    if (!config_setting_lookup_string(s, name, &text))
        return mg_err_set(err, MG_ECONFIG, "line %u: %s is missing, or is no text in double quotes",
                          config_setting_source_line(s), name);
    if (!mg_price_parse(mg_sv_of(text), per, ret))
        return mg_err_set(err, MG_ECONFIG, "line %u: %s: '%.40s' is no price in dollars such as \"0.30\"%s",
                          config_setting_source_line(s), name, text,
                          per == MILLION ? " with at most three decimals" : "");
    return MG_OK;
}

static mg_rc read_model(const config_setting_t *s, struct mg_price *ret, struct mg_err *err)
{
    const char *id = NULL;
    if (!config_setting_is_group(s) || !config_setting_lookup_string(s, "id", &id) || !id[0])
        return mg_err_set(err, MG_ECONFIG, "line %u: a model needs an id", config_setting_source_line(s));
    for (size_t i = 0; i < sizeof(COLUMNS) / sizeof(COLUMNS[0]); i++) {
        mg_rc rc = read_price(s, COLUMNS[i].name, MILLION, (int64_t *)((char *)ret + COLUMNS[i].at), err);
        if (rc < 0)
            return mg_err_wrap(err, rc, "model %s", id);
    }
    ret->id = mg_xstrdup(id);
    return MG_OK;
}

static mg_rc read_list(const config_t *c, struct mg_prices *p, struct mg_err *err)
{
    const config_setting_t *models = config_lookup(c, "models");
    int n = models ? config_setting_length(models) : 0;
    if (!models || !config_setting_is_list(models))
        return mg_err_set(err, MG_ECONFIG, "there is no list 'models = ( ... )'");
    if (n > MG_PRICE_MODELS_MAX)
        return mg_err_set(err, MG_ECONFIG, "%d models; at most %d", n, MG_PRICE_MODELS_MAX);
    p->models = mg_xcalloc((size_t)n + 1, sizeof(*p->models));
    for (int i = 0; i < n; i++) {
        mg_rc rc = read_model(config_setting_get_elem(models, (unsigned)i), &p->models[i], err);
        if (rc < 0)
            return rc;
        p->n++;
    }
    return config_lookup(c, "web_search_per_1000")
               ? read_price(config_root_setting(c), "web_search_per_1000", 1000, &p->web_search, err)
               : MG_OK;
}

mg_rc mg_prices_load(const char *path, struct mg_prices **ret, struct mg_err *err)
{
    config_t c;
    mg_rc rc;
    *ret = NULL;
    if (!path)
        return MG_OK;
    struct mg_prices *p = mg_xcalloc(1, sizeof(*p));
    config_init(&c);
    if (access(path, R_OK) < 0)
        rc = mg_err_set(err, MG_ECONFIG, "%m");
    else if (!config_read_file(&c, path))
        rc = mg_err_set(err, MG_ECONFIG, "line %d: %s", config_error_line(&c), config_error_text(&c));
    else
        rc = read_list(&c, p, err);
    config_destroy(&c);
    if (rc < 0) {
        mg_prices_free(p);
        return mg_err_wrap(err, rc, "prices_file %s", path);
    }
    *ret = p;
    return MG_OK;
}

void mg_prices_free(struct mg_prices *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        free(p->models[i].id);
    free(p->models);
    free(p);
}

/* ---- questions ---- */

static bool is_date(struct mg_sv s)
{
    bool good = s.len == DATE_DIGITS + 1 && s.ptr[0] == '-';
    for (size_t i = 1; good && i < s.len; i++)
        good = s.ptr[i] >= '0' && s.ptr[i] <= '9';
    return good;
}

const struct mg_price *mg_price_of(const struct mg_prices *p, struct mg_sv model)
{
    for (int i = 0; p && i < p->n; i++) {
        struct mg_sv id = mg_sv_of(p->models[i].id);
        if (mg_sv_starts(model, p->models[i].id) && (model.len == id.len || is_date(mg_sv_from(model, id.len))))
            return &p->models[i];
    }
    return NULL;
}

static bool add(int64_t *sum, int64_t n, int64_t price)
{
    int64_t product;
    return !__builtin_mul_overflow(n, price, &product) && !__builtin_add_overflow(*sum, product, sum);
}

int64_t mg_price_cost(const struct mg_prices *p, const struct mg_price *m, const struct mg_used *u)
{
    int64_t sum = 0;
    bool fits = add(&sum, u->input, m->input) && add(&sum, u->output, m->output) &&
                add(&sum, u->cache_read, m->cache_read) && add(&sum, u->cache_5m, m->cache_write_5m) &&
                add(&sum, u->cache_1h, m->cache_write_1h) && add(&sum, u->web_searches, p->web_search);
    return fits ? sum : INT64_MAX;
}
