#include "store/zone.h"

#include <inttypes.h>

static const struct mg_stmt SQL_KNOWN = {"zone_known", "SELECT 1 FROM pg_timezone_names WHERE name = $1"};

/* Days with another offset than the day before, then the quarter of an hour within them: no zone has changed in between since 1972. */
static const struct mg_stmt SQL_CHANGES = {
    "zone_changes",
    "WITH d AS (SELECT t, extract(epoch FROM (t AT TIME ZONE $1) - (t AT TIME ZONE 'UTC'))::int AS o FROM"
    " generate_series(date_trunc('day', $2::timestamptz) - interval '2 days', $2::timestamptz + $3::int * interval"
    " '1 day', interval '1 day') t),"
    " c AS (SELECT t FROM (SELECT t, o, lag(o) OVER (ORDER BY t) AS before FROM d) x WHERE o <> before),"
    " q AS (SELECT u, extract(epoch FROM (u AT TIME ZONE $1) - (u AT TIME ZONE 'UTC'))::int AS o,"
    " extract(epoch FROM ((u - interval '15 minutes') AT TIME ZONE $1) - ((u - interval '15 minutes') AT TIME ZONE"
    " 'UTC'))::int AS before FROM c, generate_series(t - interval '1 day' + interval '15 minutes', t, interval '15 "
    "minutes') u)"
    " SELECT extract(epoch FROM t)::bigint, o FROM (SELECT t, o FROM d ORDER BY t LIMIT 1) f UNION ALL"
    " SELECT extract(epoch FROM u)::bigint, o FROM q WHERE o <> before ORDER BY 1",
};

static bool plausible(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '_' ||
                  c == '-' || c == '+';
        if (!ok)
            return false;
    }
    return s.len > 0 && s.len <= MG_ZONE_NAME_MAX;
}

mg_rc mg_zone_check(struct mg_txn *t, struct mg_sv name, struct mg_err *err)
{
    mg_auto(res) struct mg_res *known = NULL;
    mg_rc rc = plausible(name) ? mg_txn_query(t, &SQL_KNOWN, &name, 1, &known, err) : MG_OK;
    if (rc < 0 || (known && mg_res_rows(known)))
        return rc;
    return mg_err_set(err, MG_EINVAL,
                      "schedule.timezone: '%.*s' is not a time zone; IANA names such as Europe/Berlin or UTC are",
                      (int)(name.len < 64 ? name.len : 64), name.ptr);
}

mg_rc mg_zone_load(struct mg_arena *a, struct mg_txn *t, struct mg_sv name, int64_t from_us, struct mg_zone *ret,
                   struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {name, mg_p_time(a, from_us), mg_p_int(a, MG_CRON_DAYS + 2)};
    mg_rc rc = mg_txn_query(t, &SQL_CHANGES, p, 3, &r, err);
    if (rc < 0)
        return rc;
    ret->n = mg_res_rows(r) < MG_ZONE_CHANGES_MAX ? mg_res_rows(r) : MG_ZONE_CHANGES_MAX;
    for (int i = 0; i < ret->n; i++) {
        ret->at_s[i] = mg_res_int(r, i, 0);
        ret->offset_s[i] = (int32_t)mg_res_int(r, i, 1);
    }
    return MG_OK;
}
