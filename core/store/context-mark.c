#include "store/context-mark.h"

static const char *const kind_names[] = {"summary", "refused", "replaced"};

static const struct mg_stmt SQL_ADD = {
    "context_mark_add",
    "INSERT INTO context_marks (session_id, thread_id, ordinal, kind, made_at, turn, a, b, content)"
    " SELECT $1, $2, coalesce(max(ordinal), 0) + 1, $3, $4::int, $5::bigint, $6::bigint, $7::bigint, $8"
    " FROM context_marks WHERE session_id = $1 AND thread_id = $2",
};

mg_rc mg_context_mark_add(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                          const struct mg_context_mark *m, struct mg_err *err)
{
    const struct mg_sv p[] = {
        mg_id_sv(session),
        mg_id_sv(thread),
        mg_sv_of(kind_names[m->kind]),
        mg_p_int(a, m->made_at),
        mg_p_int(a, m->turn),
        mg_p_int(a, m->a),
        mg_p_int(a, m->b),
        m->content.ptr ? m->content : MG_SV(""),
    };
    return mg_txn_queue(t, &SQL_ADD, p, 8, -1, err);
}

enum mg_mark_kind mg_mark_kind_of(struct mg_sv name)
{
    return (enum mg_mark_kind)mg_sv_index(name, kind_names, 3);
}
