#include "store/event-list.h"

#include "base/clock.h"
#include "base/mem.h"

/* The page and one row more, which tells whether another page follows. */
#define PAGE(thread, filter, op, way)                                                                                  \
    "SELECT seq, id, type, thread_id, body, processed_at FROM events e WHERE e.session_id = $1 AND "                   \
    "e.thread_id " thread " AND e.seq " op " $3::bigint AND EXISTS (SELECT 1 FROM sessions s JOIN session_state st ON" \
    " st.session_id = s.id WHERE s.id = $1 AND s.workspace_id = $2 AND st.deleting_at IS NULL)" filter                 \
    " ORDER BY e.seq " way " LIMIT $4::int + 1"
#define COLUMNS "seq, id, type, coalesce(thread_id, ''), body, processed_at"

/* The whole page, or nothing when its text is over the limit. Sizes are read without the text: octet_length of a stored
 * value does not fetch it. Times come as text: PostgreSQL's arithmetic on them costs more than all the rest. */
#define WHOLE(thread, filter, op, way)                               \
    "WITH page AS MATERIALIZED (" PAGE(                              \
        thread, filter, op, way) ") SELECT " COLUMNS ", 0 FROM page" \
                                 " WHERE (SELECT sum(octet_length(body)) FROM page) < $5::bigint ORDER BY seq " way
/* As many rows as fit, at least one, and how many there were. */
#define FITTING(thread, filter, op, way)                                                                       \
    "SELECT " COLUMNS ", total FROM (SELECT *, sum(octet_length(body)) OVER w - octet_length(body) AS before," \
    " count(*) OVER () AS total, row_number() OVER w AS place FROM (" PAGE(                                    \
        thread, filter, op, way) ") page"                                                                      \
                                 " WINDOW w AS (ORDER BY seq " way                                             \
                                 ")) sized WHERE place <= $4::int AND before < $5::bigint ORDER BY seq " way
#define BY_TYPE_AND_TIME                                                  \
    " AND ($6::text[] IS NULL OR e.type = ANY ($6::text[]))"              \
    " AND ($7::timestamptz IS NULL OR e.processed_at > $7::timestamptz)"  \
    " AND ($8::timestamptz IS NULL OR e.processed_at >= $8::timestamptz)" \
    " AND ($9::timestamptz IS NULL OR e.processed_at < $9::timestamptz)"  \
    " AND ($10::timestamptz IS NULL OR e.processed_at <= $10::timestamptz)"

enum { PLAIN_PARAMS = 5, FILTERED_PARAMS = 10 /* a child's id is behind them */ };

/* By child, by filtered, by ascending. */
#define PAGES(name, shape)                                                                                    \
    {                                                                                                         \
        {{{name "_down", shape("IS NULL", "", "<", "DESC")}, {name "_up", shape("IS NULL", "", ">", "ASC")}}, \
         {{name "_by_down", shape("IS NULL", BY_TYPE_AND_TIME, "<", "DESC")},                                 \
          {name "_by_up", shape("IS NULL", BY_TYPE_AND_TIME, ">", "ASC")}}},                                  \
            {{{name "_child_down", shape("= $6", "", "<", "DESC")},                                           \
              {name "_child_up", shape("= $6", "", ">", "ASC")}},                                             \
             {{name "_child_by_down", shape("= $11", BY_TYPE_AND_TIME, "<", "DESC")},                         \
              {name "_child_by_up", shape("= $11", BY_TYPE_AND_TIME, ">", "ASC")}}},                          \
    }
static const struct mg_stmt WHOLE_PAGES[2][2][2] = PAGES("event_list", WHOLE);
static const struct mg_stmt FITTING_PAGES[2][2][2] = PAGES("event_list_fit", FITTING);

static struct mg_sv bound(struct mg_arena *a, int64_t us)
{
    return us == INT64_MIN ? mg_p_null() : mg_p_time(a, us);
}

/* "2026-11-30 08:28:24.826658+00": connections speak ISO and UTC. */
static int64_t stamp(struct mg_sv text)
{
    enum { ZONE = 3 /* "+00" */ };
    char rfc[40];
    int64_t us;
    if (!text.ptr || text.len <= ZONE || text.len >= sizeof(rfc))
        return INT64_MIN;
    memcpy(rfc, text.ptr, text.len);
    rfc[10] = 'T';
    rfc[text.len - ZONE] = 'Z';
    return mg_time_parse(mg_sv_n(rfc, text.len - ZONE + 1), &us) ? us : INT64_MIN;
}

static struct mg_event_seen *rows_of(struct mg_arena *a, const struct mg_res *r, int n)
{
    struct mg_event_seen *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        rows[i] = (struct mg_event_seen){
            .seq = mg_res_int(r, i, 0),
            .id = mg_res_sv(r, i, 1),
            .type = mg_res_sv(r, i, 2),
            .thread_id = mg_res_sv(r, i, 3),
            .body = mg_res_sv(r, i, 4),
            .processed_us = stamp(mg_res_sv(r, i, 5)),
        };
    return rows;
}

/* Nothing came: the page is too big, or there is none, or no such session. */
static mg_rc second_look(struct mg_pg *pg, const struct mg_stmt *fitting, const struct mg_sv *params, int n,
                         struct mg_res **ret, struct mg_err *err)
{
    int64_t head;
    mg_rc rc = mg_pg_exec(pg, fitting, params, n, ret, err);
    return rc < 0 || mg_res_rows(*ret) ? rc : mg_session_last_seq(pg, params[0], params[1], &head, err);
}

mg_rc mg_events_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_sv thread,
                     const struct mg_list_query *q, const struct mg_sv *types, int n_types, struct mg_res **ret_res,
                     struct mg_event_seen **ret, int *ret_n, bool *ret_more, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL, *fit = NULL;
    bool filtered =
        n_types || q->gt_us != INT64_MIN || q->gte_us != INT64_MIN || q->lt_us != INT64_MIN || q->lte_us != INT64_MIN;
    int64_t start = q->cursor.given ? q->cursor.pos : q->ascending ? 0 : INT64_MAX;
    struct mg_sv p[FILTERED_PARAMS + 1] = {
        session,
        q->workspace,
        mg_p_int(a, start),
        mg_p_int(a, q->limit),
        mg_p_int(a, MG_EVENT_PAGE_BYTES),
        n_types ? mg_p_array(a, types, (size_t)n_types) : mg_p_null(),
        bound(a, q->gt_us),
        bound(a, q->gte_us),
        bound(a, q->lt_us),
        bound(a, q->lte_us),
    };
    bool child = thread.len > 0;
    int n_params = filtered ? FILTERED_PARAMS : PLAIN_PARAMS;
    if (child)
        p[n_params++] = thread;
    mg_rc rc = mg_pg_exec(pg, &WHOLE_PAGES[child][filtered][q->ascending], p, n_params, &r, err);
    bool whole = rc >= 0 && mg_res_rows(r) > 0;
    if (rc >= 0 && !whole)
        rc = second_look(pg, &FITTING_PAGES[child][filtered][q->ascending], p, n_params, &fit, err);
    if (rc < 0)
        return rc;
    struct mg_res **from = whole ? &r : &fit;
    int rows = mg_res_rows(*from);
    *ret_more = whole ? rows > q->limit : rows > 0 && mg_res_int(*from, 0, 6) > rows;
    *ret_n = rows < q->limit ? rows : q->limit;
    *ret = rows_of(a, *from, *ret_n);
    *ret_res = mg_steal(from);
    return MG_OK;
}
