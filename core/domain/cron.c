#include "domain/cron.h"

enum { MINUTE = 60, HOUR = 3600, DAY = 86400 };

/* ---- the expression ---- */

struct field {
    const char *name;
    int min, max;
};
static const struct field FIELDS[] = {
    {"minute", 0, 59}, {"hour", 0, 23}, {"day of month", 1, 31}, {"month", 1, 12}, {"day of week", 0, 7},
};
enum { N_FIELDS = 5 };

static mg_rc wrong(struct mg_err *err, const char *place, const struct field *f, struct mg_sv text)
{
    return mg_err_set(err, MG_EINVAL,
                      "%s: the %s '%.*s' is not valid: numbers from %d to %d, ranges (1-5), lists (1,3), * and steps "
                      "(*/5) are",
                      place, f->name, (int)(text.len < 40 ? text.len : 40), text.ptr, f->min, f->max);
}

static bool number(struct mg_sv s, int64_t min, int64_t max, int *ret)
{
    int64_t n;
    bool digits = s.len > 0 && s.len <= 2;
    for (size_t i = 0; i < s.len; i++)
        digits = digits && s.ptr[i] >= '0' && s.ptr[i] <= '9';
    if (!digits || !mg_sv_to_i64(s, &n) || n < min || n > max)
        return false;
    *ret = (int)n;
    return true;
}

/* "*", "n", "n-m", each perhaps with "/step". */
static bool item(struct mg_sv s, const struct field *f, uint64_t *bits)
{
    int from = f->min, to = f->max, step = 1;
    size_t slash = mg_sv_find(s, '/');
    struct mg_sv range = mg_sv_n(s.ptr, slash);
    bool stepped = slash < s.len, star = mg_sv_eqz(range, "*");
    if (stepped && !number(mg_sv_from(s, slash + 1), 1, f->max, &step))
        return false;
    size_t dash = mg_sv_find(range, '-');
    bool two = dash < range.len;
    if (!star && !number(mg_sv_n(range.ptr, dash), f->min, f->max, &from))
        return false;
    if (!star && two && (!number(mg_sv_from(range, dash + 1), f->min, f->max, &to) || to < from))
        return false;
    if (!star && !two) {
        if (stepped)
            return false; /* "5/10" means different things to different programs */
        to = from;
    }
    for (int i = from; i <= to; i += step)
        *bits |= UINT64_C(1) << i;
    return true;
}

static mg_rc list(struct mg_sv s, const struct field *f, const char *place, uint64_t *bits, struct mg_err *err)
{
    struct mg_sv rest = s;
    if (s.len == 0 || s.ptr[s.len - 1] == ',')
        return wrong(err, place, f, s);
    while (rest.len)
        if (!item(mg_sv_split(&rest, ','), f, bits))
            return wrong(err, place, f, s);
    return MG_OK;
}

/* Fields are separated by spaces or tabs. */
static struct mg_sv next_field(struct mg_sv *rest)
{
    size_t from = 0;
    while (from < rest->len && (rest->ptr[from] == ' ' || rest->ptr[from] == '\t'))
        from++;
    size_t to = from;
    while (to < rest->len && rest->ptr[to] != ' ' && rest->ptr[to] != '\t')
        to++;
    struct mg_sv field = mg_sv_n(rest->ptr + from, to - from);
    *rest = mg_sv_from(*rest, to);
    return field;
}

mg_rc mg_cron_parse(struct mg_sv text, const char *place, struct mg_cron *ret, struct mg_err *err)
{
    uint64_t bits[N_FIELDS] = {0};
    struct mg_sv fields[N_FIELDS + 1], rest = text;
    int n = 0;
    for (n = 0; n <= N_FIELDS; n++) {
        fields[n] = next_field(&rest);
        if (fields[n].len == 0)
            break;
    }
    if (n != N_FIELDS)
        return mg_err_set(
            err, MG_EINVAL,
            "%s: must have five fields: minute, hour, day of month, month, day of week, such as \"0 9 * * "
            "1-5\"; shortcuts such as @daily are not taken",
            place);
    for (int i = 0; i < N_FIELDS; i++) {
        mg_rc rc = list(fields[i], &FIELDS[i], place, &bits[i], err);
        if (rc < 0)
            return rc;
    }
    uint64_t weekdays = bits[4] | (bits[4] >> 7 & 1); /* 7 is Sunday too */
    *ret = (struct mg_cron){
        .minutes = bits[0],
        .hours = (uint32_t)bits[1],
        .days = (uint32_t)bits[2],
        .months = (uint32_t)bits[3],
        .weekdays = (uint32_t)(weekdays & 0x7f),
        .any_day = fields[2].ptr[0] == '*',
        .any_weekday = fields[4].ptr[0] == '*',
        .every_hour = mg_sv_eqz(fields[1], "*"),
    };
    return MG_OK;
}

/* ---- the calendar ---- */

/* Year, month and day of a day since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms"). */
static void civil(int64_t days, int *ret_month, int *ret_day)
{
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
    unsigned doe = (unsigned)(z - era * 146097);
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    unsigned mp = (5 * doy + 2) / 153;
    *ret_day = (int)(doy - (153 * mp + 2) / 5 + 1);
    *ret_month = (int)(mp < 10 ? mp + 3 : mp - 9);
}

/* Days since 1970, towards the past also before it. */
static int64_t day_of(int64_t local_s)
{
    return local_s >= 0 ? local_s / DAY : -((-local_s + DAY - 1) / DAY);
}

/* Where both days are restricted, one that matches is enough: so cron has always had it. */
static bool day_matches(const struct mg_cron *c, int64_t days)
{
    int month, day, weekday = (int)(((days + 4) % 7 + 7) % 7);
    civil(days, &month, &day);
    bool by_day = c->days >> day & 1, by_weekday = c->weekdays >> weekday & 1;
    if (!(c->months >> month & 1))
        return false;
    return c->any_day || c->any_weekday ? by_day && by_weekday : by_day || by_weekday;
}

/* ---- the zone ---- */

static int32_t offset_at(const struct mg_zone *z, int64_t s)
{
    int i = z->n - 1;
    while (i > 0 && z->at_s[i] > s)
        i--;
    return z->n ? z->offset_s[i] : 0;
}

/* The first moment at which the clock shows local_s, or, when it skips that, the first moment behind the gap. */
static int64_t moment_of(const struct mg_zone *z, int64_t local_s)
{
    for (int i = 0; i < z->n; i++) {
        int64_t t = local_s - z->offset_s[i];
        bool begun = i == 0 || t >= z->at_s[i], over = i + 1 < z->n && t >= z->at_s[i + 1];
        if (begun && !over)
            return t;
        if (!begun)
            return z->at_s[i]; /* it lies between what the one before ends with and what this begins with */
    }
    return local_s;
}

/* ---- the next time ---- */

/* Minutes as the clock shows them, doubled hours included. */
static int64_t next_interval(const struct mg_cron *c, const struct mg_zone *z, int64_t after_s)
{
    int64_t t = (day_of(after_s) * DAY) + (((after_s - day_of(after_s) * DAY) / MINUTE) + 1) * MINUTE;
    int64_t end = t + (int64_t)MG_CRON_DAYS * DAY;
    while (t < end) {
        int64_t local = t + offset_at(z, t), days = day_of(local), in_day = local - days * DAY;
        if (!day_matches(c, days)) {
            t += HOUR - in_day % HOUR; /* no farther: an offset may change in between */
            continue;
        }
        if (c->minutes >> in_day % HOUR / MINUTE & 1)
            return t;
        t += MINUTE;
    }
    return INT64_MIN;
}

static int64_t next_fixed(const struct mg_cron *c, const struct mg_zone *z, int64_t after_s)
{
    int64_t first = day_of(after_s + offset_at(z, after_s)) - 1; /* one that a gap has moved into the next day */
    for (int64_t days = first; days < first + MG_CRON_DAYS; days++) {
        int64_t best = INT64_MIN;
        if (!day_matches(c, days))
            continue;
        for (int m = 0; m < 24 * 60; m++) {
            if (!(c->hours >> m / 60 & 1) || !(c->minutes >> m % 60 & 1))
                continue;
            int64_t t = moment_of(z, days * DAY + m * MINUTE);
            if (t > after_s && (best == INT64_MIN || t < best))
                best = t;
        }
        if (best != INT64_MIN)
            return best;
    }
    return INT64_MIN;
}

int64_t mg_cron_next(const struct mg_cron *c, const struct mg_zone *z, int64_t after_us)
{
    int64_t after_s = after_us >= 0 ? after_us / 1000000 : -((-after_us + 999999) / 1000000);
    int64_t t = c->every_hour ? next_interval(c, z, after_s) : next_fixed(c, z, after_s);
    return t == INT64_MIN ? t : t * 1000000;
}
