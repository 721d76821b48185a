#include "store/event-list.h"

#include "base/mem.h"

/* One row more than the limit tells whether a page follows; so does a row that the byte limit cut off. Sizes are
 * read without the text: octet_length of a stored value does not fetch it. */
#define LIST(filter, op, way)                                                                                        \
    "SELECT seq, id, type, coalesce(thread_id, ''), body, mg_us(processed_at), total FROM ("                         \
    " SELECT *, sum(octet_length(body)) OVER w - octet_length(body) AS before, count(*) OVER () AS total,"           \
    " row_number() OVER w AS place FROM ("                                                                           \
    "  SELECT e.* FROM events e WHERE e.session_id = $1 AND e.seq " op                                               \
    " $3::bigint AND EXISTS (SELECT 1 FROM sessions s"                                                               \
    "  JOIN session_state st ON st.session_id = s.id WHERE s.id = $1 AND s.workspace_id = $2 AND st.deleting_at IS " \
    "NULL)" filter "  ORDER BY e.seq " way " LIMIT $4::int + 1) page WINDOW w AS (ORDER BY seq " way ")) sized"      \
    " WHERE place <= $4::int AND before < $5::bigint ORDER BY seq " way
#define BY_TYPE_AND_TIME                                                                                       \
    " AND ($6::text[] IS NULL OR e.type = ANY ($6::text[])) AND ($7::timestamptz IS NULL OR e.processed_at > " \
    "$7::timestamptz)"                                                                                         \
    " AND ($8::timestamptz IS NULL OR e.processed_at >= $8::timestamptz) AND ($9::timestamptz IS NULL OR "     \
    "e.processed_at < $9::timestamptz)"                                                                        \
    " AND ($10::timestamptz IS NULL OR e.processed_at <= $10::timestamptz)"

static const struct mg_stmt LISTS[2][2] = {
    {{"event_list_down", LIST("", "<", "DESC")}, {"event_list_up", LIST("", ">", "ASC")}},
    {{"event_list_by_down", LIST(BY_TYPE_AND_TIME, "<", "DESC")},
     {"event_list_by_up", LIST(BY_TYPE_AND_TIME, ">", "ASC")}},
};

static struct mg_sv bound(struct mg_arena *a, int64_t us)
{
    return us == INT64_MIN ? mg_p_null() : mg_p_time(a, us);
}

mg_rc mg_events_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, const struct mg_list_query *q,
                     const struct mg_sv *types, int n_types, struct mg_res **ret_res, struct mg_event_seen **ret,
                     int *ret_n, bool *ret_more, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    bool filtered =
        n_types || q->gt_us != INT64_MIN || q->gte_us != INT64_MIN || q->lt_us != INT64_MIN || q->lte_us != INT64_MIN;
    int64_t start = q->cursor.given ? q->cursor.pos : q->ascending ? 0 : INT64_MAX;
    const struct mg_sv p[] = {
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
    mg_rc rc = mg_pg_exec(pg, &LISTS[filtered][q->ascending], p, filtered ? 10 : 5, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    int64_t head;
    if (n == 0) {
        rc = mg_session_last_seq(pg, session, q->workspace, &head, err);
        if (rc < 0)
            return rc;
    }
    struct mg_event_seen *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        rows[i] = (struct mg_event_seen){
            .seq = mg_res_int(r, i, 0),
            .id = mg_res_sv(r, i, 1),
            .type = mg_res_sv(r, i, 2),
            .thread_id = mg_res_sv(r, i, 3),
            .body = mg_res_sv(r, i, 4),
            .processed_us = mg_res_time(r, i, 5),
        };
    *ret_more = n > 0 && mg_res_int(r, 0, 6) > n;
    *ret_n = n;
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}
