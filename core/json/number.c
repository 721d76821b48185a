/* Numbers: grammar, decimal values, the range of a double. Nothing here rounds: a double would lose digits. */
#include "json/json.h"
#include "json/scan.h"

static const int64_t exponent_limit = INT64_C(100000000000000000); /* no text is long enough to shift this back */

enum { DOUBLE_MAX_DIGITS = 309 /* of the largest double, written out */ };

static bool is_digit(struct mg_sv s, size_t i)
{
    return i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9';
}

static size_t digits_end(struct mg_sv s, size_t i)
{
    while (is_digit(s, i))
        i++;

    return i;
}

/* Shorter than this and without an exponent, a number cannot overflow. */
static bool surely_in_range(size_t len, bool has_exponent)
{
    return !has_exponent && len < DOUBLE_MAX_DIGITS;
}

struct mg_json_token mg_json_scan_number(struct mg_sv s, size_t off, bool strict)
{
    struct mg_json_token t = {.end = off + (s.ptr[off] == '-')};
    bool has_exponent = false;

    if (!is_digit(s, t.end)) {
        t.what = "a minus sign needs a digit behind it";
        return t;
    }
    if (s.ptr[t.end] == '0' && is_digit(s, t.end + 1)) {
        t.what = "a number must not start with a zero";
        return t;
    }
    t.end = digits_end(s, t.end);
    if (t.end < s.len && s.ptr[t.end] == '.') {
        t.end++;
        if (!is_digit(s, t.end)) {
            t.what = "a decimal point needs a digit behind it";
            return t;
        }
        t.end = digits_end(s, t.end);
    }
    if (t.end < s.len && (s.ptr[t.end] == 'e' || s.ptr[t.end] == 'E')) {
        has_exponent = true;
        t.end++;
        t.end += t.end < s.len && (s.ptr[t.end] == '+' || s.ptr[t.end] == '-');
        if (!is_digit(s, t.end)) {
            t.what = "an exponent needs a digit";
            return t;
        }
        t.end = digits_end(s, t.end);
    }
    if (strict && !surely_in_range(t.end - off, has_exponent)) {
        struct mg_json_decimal d = mg_json_decimal_of(mg_sv_n(s.ptr + off, t.end - off));
        if (mg_json_decimal_overflows(&d)) {
            t.what = "a number is out of the range of a double (1.8e308)";
            t.end = off;
        }
    }
    return t;
}

static int64_t exponent_of(struct mg_sv s)
{
    bool negative = s.len && s.ptr[0] == '-';
    int64_t v = 0;

    for (size_t i = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+'); i < s.len && v < exponent_limit; i++)
        v = v * 10 + (s.ptr[i] - '0');
    if (v > exponent_limit)
        v = exponent_limit;

    return negative ? -v : v;
}

struct mg_json_decimal mg_json_decimal_of(struct mg_sv n)
{
    struct mg_json_decimal d = {.negative = n.ptr[0] == '-'};
    struct mg_sv m = mg_sv_from(n, d.negative);

    for (size_t i = 0; i < m.len; i++)
        if (m.ptr[i] == 'e' || m.ptr[i] == 'E') {
            d.exponent = exponent_of(mg_sv_from(m, i + 1));
            m.len = i;
        }
    size_t point = mg_sv_find(m, '.');
    if (point < m.len)
        d.exponent -= (int64_t)(m.len - point - 1);
    while (m.len && (m.ptr[m.len - 1] == '0' || m.ptr[m.len - 1] == '.')) {
        d.exponent += m.ptr[m.len - 1] == '0';
        m.len--;
    }
    while (m.len && (m.ptr[0] == '0' || m.ptr[0] == '.'))
        m = mg_sv_from(m, 1);
    d.digits = m;
    d.n_digits = m.len - (mg_sv_find(m, '.') < m.len);
    if (!m.len)
        d.exponent = 0;
    return d;
}

/* Digit i counted without the point; '0' behind the end. */
static char digit_at(const struct mg_json_decimal *d, size_t point, size_t i)
{
    if (i >= d->n_digits)
        return '0';

    return d->digits.ptr[i < point ? i : i + 1];
}

bool mg_json_decimal_overflows(const struct mg_json_decimal *d)
{
    /* 2^1024 - 2^970: half a unit above the largest double; from here on rounding goes to infinity. */
    static const char limit[] = "17976931348623158079372897140530341507993413271003782693617377898044"
                                "49682927647509466490179775872070963302864166928879109465555478519404"
                                "02630657488671505820681908902000708383676273854845817711531764475730"
                                "27006985557136695962284291481986083493647529271907416844436551070434"
                                "2711559699508093042880177904174497792";
    int64_t magnitude = (int64_t)d->n_digits + d->exponent; /* digits before the point, written out */
    size_t point = mg_sv_find(d->digits, '.');

    if (!d->n_digits || magnitude < DOUBLE_MAX_DIGITS)
        return false;
    if (magnitude > DOUBLE_MAX_DIGITS)
        return true;
    for (size_t i = 0; i < sizeof(limit) - 1; i++) {
        char digit = digit_at(d, point, i);
        if (digit != limit[i])
            return digit > limit[i];
    }

    return true;
}

bool mg_json_i64(const struct mg_json *v, int64_t *ret)
{
    enum { I64_DIGITS = 19 };

    if (!mg_json_is(v, MG_JSON_NUMBER))
        return false;
    struct mg_json_decimal d = mg_json_decimal_of(v->raw);
    size_t point = mg_sv_find(d.digits, '.');
    int64_t sum = 0; /* kept negative: INT64_MIN has no positive twin */

    if (d.exponent < 0 || d.exponent > I64_DIGITS || d.n_digits > I64_DIGITS)
        return false;
    for (size_t i = 0; i < d.n_digits + (size_t)d.exponent; i++)
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_sub_overflow(sum, digit_at(&d, point, i) - '0', &sum))
            return false;
    if (!d.negative && sum == INT64_MIN)
        return false;
    *ret = d.negative ? sum : -sum;
    return true;
}
