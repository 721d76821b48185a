/* Values: text to number by the option's type, with messages that name the option, the limit and the fix. */
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "conf/internal.h"

enum { SHOWN_MAX = 64 /* bytes of a wrong value in a message */ };

static const struct {
    const char *text;
    int64_t ms;
} units[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

enum { N_UNITS = sizeof(units) / sizeof(units[0]) };

void conf_format_duration(int64_t ms, char out[32])
{
    for (size_t i = 0; i < N_UNITS; i++)
        if (ms && ms % units[i].ms == 0) {
            (void)snprintf(out, 32, "%lld%s", (long long)(ms / units[i].ms), units[i].text);
            return;
        }
    (void)snprintf(out, 32, "0s");
}

/* "15s"; a bare number only when it is 0, which needs no unit. */
static bool parse_duration(struct mg_sv s, int64_t *ret_ms)
{
    size_t digits = 0;
    int64_t n;

    while (digits < s.len && s.ptr[digits] >= '0' && s.ptr[digits] <= '9')
        digits++;
    if (!mg_sv_to_i64(mg_sv_n(s.ptr, digits), &n))
        return false;
    struct mg_sv unit = mg_sv_from(s, digits);
    if (!unit.len && n == 0) {
        *ret_ms = 0;
        return true;
    }
    for (size_t i = 0; i < N_UNITS; i++)
        if (mg_sv_eqz(unit, units[i].text))
            return !__builtin_mul_overflow(n, units[i].ms, ret_ms);

    return false;
}

static bool parse_bool(struct mg_sv s, int64_t *ret)
{
    static const char *const words[2][4] = {{"false", "no", "off", "0"}, {"true", "yes", "on", "1"}};

    for (int v = 0; v < 2; v++)
        for (int i = 0; i < 4; i++)
            if (mg_sv_eq_nocase(s, mg_sv_of(words[v][i]))) {
                *ret = v;
                return true;
            }

    return false;
}

static bool is_choice(struct mg_sv s, const char *choices)
{
    struct mg_sv rest = mg_sv_of(choices);

    while (rest.len)
        if (mg_sv_eq(mg_sv_split(&rest, ' '), s))
            return true;

    return false;
}

static mg_rc wrong(const struct mg_opt_def *d, const char *text, const char *origin, const char *want,
                   struct mg_err *err)
{
    char shown[SHOWN_MAX + 8];
    size_t n = mg_utf8_floor(mg_sv_of(text), SHOWN_MAX);

    if (d->secret)
        return mg_err_set(err, MG_ECONFIG, "%s: the value (not shown) %s", origin, want);
    (void)snprintf(shown, sizeof(shown), "%.*s%s", (int)n, text, text[n] ? "..." : "");
    for (char *c = shown; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return mg_err_set(err, MG_ECONFIG, "%s: '%s' %s", origin, shown, want);
}

static mg_rc check_range(const struct mg_opt_def *d, int64_t v, const char *text, const char *origin,
                         struct mg_err *err)
{
    char want[128], low[32], high[32];

    if (v >= d->min && v <= d->max)
        return MG_OK;
    if (d->type == MG_CONF_DURATION) {
        conf_format_duration(d->min, low);
        conf_format_duration(d->max, high);
    } else {
        (void)snprintf(low, sizeof(low), "%lld", (long long)d->min);
        (void)snprintf(high, sizeof(high), "%lld", (long long)d->max);
    }
    (void)snprintf(want, sizeof(want), "is out of range; it may be %s to %s", low, high);
    return wrong(d, text, origin, want, err);
}

/* A line feed at the end of a key would end up in a header; nobody means such a byte. */
static mg_rc check_string(const struct mg_opt_def *d, const char *text, const char *origin, struct mg_err *err)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return wrong(d, text, origin, "holds a control character, such as a line feed; remove it", err);

    return MG_OK;
}

static mg_rc parse(const struct mg_opt_def *d, const char *text, const char *origin, int64_t *ret, struct mg_err *err)
{
    struct mg_sv s = mg_sv_of(text);
    char want[256];

    *ret = 0;
    switch (d->type) {
    case MG_CONF_STRING:
        return check_string(d, text, origin, err);
    case MG_CONF_INT:
        return mg_sv_to_i64(s, ret) ? check_range(d, *ret, text, origin, err)
                                    : wrong(d, text, origin, "is not a whole number", err);
    case MG_CONF_BOOL:
        return parse_bool(s, ret) ? MG_OK : wrong(d, text, origin, "is neither true nor false", err);
    case MG_CONF_DURATION:
        return parse_duration(s, ret)
                   ? check_range(d, *ret, text, origin, err)
                   : wrong(d, text, origin, "is not a duration; write a number and a unit: 500ms, 15s, 5m, 2h", err);
    case MG_CONF_CHOICE:
        if (is_choice(s, d->choices))
            return MG_OK;
        (void)snprintf(want, sizeof(want), "is none of: %s", d->choices);
        return wrong(d, text, origin, want, err);
    }

    return mg_err_set(err, MG_EINTERNAL, "%s: unknown type", origin);
}

static const char **split_list(struct mg_arena *a, const char *text)
{
    struct mg_sv rest = mg_sv_of(text);
    size_t n = 1;

    for (const char *c = text; *c; c++)
        n += *c == ',';
    const char **list = mg_arena_alloc(a, (n + 1) * sizeof(*list));
    n = 0;
    while (rest.len) {
        struct mg_sv part = mg_sv_trim(mg_sv_split(&rest, ','));
        if (part.len)
            list[n++] = mg_arena_strdup(a, part);
    }
    return list;
}

mg_rc conf_put(struct mg_conf *c, enum mg_opt o, const char *text, const char *origin, struct mg_err *err)
{
    const struct mg_opt_def *d = &mg_opt_table[o];
    struct conf_value *v = &c->values[o];
    char duration[32];
    int64_t number = 0;

    if (*text || !v->text) {
        mg_rc rc = *text ? parse(d, text, origin, &number, err) : MG_OK;
        if (rc < 0)
            return rc;
        if (d->type == MG_CONF_BOOL)
            text = number ? "true" : "false";
        if (d->type == MG_CONF_DURATION) {
            conf_format_duration(number, duration);
            text = duration;
        }
        if (v->text)
            mg_wipe(v->text, strlen(v->text));
        free(v->text);
        free(v->origin);
        v->set = v->text != NULL; /* the default comes first */
        v->text = mg_xstrdup(text);
        v->origin = mg_xstrdup(origin);
        v->number = number;
        if (d->type == MG_CONF_STRING && !d->secret)
            v->list = split_list(c->arena, text);
    }
    return MG_OK;
}
