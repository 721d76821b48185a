#include "run/remedy.h"

#include "base/log.h"
#include "run/assemble.h"
#include "run/turn.h"

enum { REASON_MAX = 240 /* bytes of the endpoint's reason in a note */ };

static bool take_number(struct mg_sv *s, int64_t *ret)
{
    size_t n = 0;
    while (n < s->len && n < 9 && s->ptr[n] >= '0' && s->ptr[n] <= '9')
        n++;
    bool ok = mg_sv_to_i64(mg_sv_n(s->ptr, n), ret);
    *s = mg_sv_from(*s, n);
    return ok;
}

bool mg_remedy_place(struct mg_sv message, int64_t *ret_message, int64_t *ret_block, struct mg_sv *ret_reason)
{
    static const char front[] = "messages.", middle[] = ".content.";
    for (;;) {
        const char *at = message.len ? memmem(message.ptr, message.len, front, sizeof(front) - 1) : NULL;
        if (!at)
            return false;
        message = mg_sv_from(message, (size_t)(at - message.ptr) + sizeof(front) - 1);
        struct mg_sv rest = message;
        if (!take_number(&rest, ret_message) || !mg_sv_starts(rest, middle))
            continue;
        rest = mg_sv_from(rest, sizeof(middle) - 1);
        if (!take_number(&rest, ret_block))
            continue;
        *ret_reason = mg_sv_trim(mg_sv_from(rest, mg_sv_find(rest, ':') + 1));
        return true;
    }
}

static struct mg_context_mark mark_at(const struct mg_assembly *x, enum mg_mark_kind kind, int64_t a, int64_t b)
{
    return (struct mg_context_mark){.kind = kind, .made_at = x->in.len, .turn = x->in.turn, .a = a, .b = b};
}

static void too_large(struct mg_assembly *x, struct mg_remedy *ret)
{
    ret->mark = mark_at(x, MG_MARK_REFUSED, x->compact.before, 0);
    x->context.forced = true;
    bool smaller = x->context.refusals == 0 && mg_compact_plan(&x->context).how != MG_COMPACT_NOT;
    ret->kind = smaller ? MG_REMEDY_COMPACT : MG_REMEDY_LIMIT;
}

static void refused_block(struct mg_arena *a, struct mg_assembly *x, struct mg_sv message, struct mg_remedy *ret)
{
    int64_t m, b;
    int entry;
    struct mg_sv reason;
    if (x->context.replacements >= MG_CONTEXT_REPLACE_MAX || !mg_remedy_place(message, &m, &b, &reason) ||
        !mg_request_locate(&x->request, m, b, &entry, &b) || entry >= x->context.n)
        return;
    const struct mg_context_entry *e = &x->context.entries[entry];
    if (e->number == MG_CONTEXT_SUMMARY || mg_content_replace(a, e->content, b, MG_SV("")).ptr == e->content.ptr)
        return;
    for (int i = 0; i < x->in.n_marks; i++) /* the note itself is what is refused */
        if (x->in.marks[i].kind == MG_MARK_REPLACED && x->in.marks[i].a == e->number && x->in.marks[i].b == b)
            return;
    ret->kind = MG_REMEDY_REPLACE;
    ret->mark = mark_at(x, MG_MARK_REPLACED, e->number, b);
    ret->mark.content = mg_arena_printf(a, "[left out: the model endpoint does not take this content: %.*s]",
                                        (int)(reason.len < REASON_MAX ? reason.len : REASON_MAX), reason.ptr);
}

mg_rc mg_remedy_find(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_remedy *ret, struct mg_err *err)
{
    *ret = (struct mg_remedy){.kind = MG_REMEDY_NONE};
    struct mg_sv message = mg_sv_of(r->result->message), reason;
    int64_t m, b;
    bool large = r->result->fail == MG_MODEL_TOO_LARGE;
    if (r->grading || r->advising)
        return MG_OK; /* what a grader or an advisor reads is a copy: there is nothing to mend */
    if (!large && (r->result->fail != MG_MODEL_PERMANENT || !mg_remedy_place(message, &m, &b, &reason)))
        return MG_OK;
    mg_auto(assembly) struct mg_assembly x = {0};
    mg_rc rc = mg_assemble(r, pg, a, &x, err);
    if (rc < 0)
        return rc;
    if (large)
        too_large(&x, ret);
    else
        refused_block(a, &x, message, ret);
    return MG_OK;
}

mg_rc mg_remedy_apply(struct mg_step *s, const struct mg_model_result *res, const struct mg_remedy *x,
                      struct mg_err *err)
{
    mg_rc rc = mg_context_mark_add(s->arena, s->t, &s->st.session, &s->st.thread, &x->mark, err);
    if (rc < 0 || x->kind == MG_REMEDY_LIMIT)
        return rc;
    if (x->kind == MG_REMEDY_REPLACE)
        mg_step_event(
            s, MG_EV_SESSION_ERROR,
            mg_members_error(s->arena, "model_request_failed_error",
                             mg_arena_strdup(s->arena, mg_arena_printf(s->arena,
                                                                       "%.400s; a note stands for this content "
                                                                       "from here on, and the request is made again",
                                                                       res->message)),
                             "retrying"),
            true);
    mg_log(MG_WARN, x->kind == MG_REMEDY_REPLACE ? "a refused block is replaced" : "a request was too long",
           MG_F_STR("session", s->st.session.s), MG_F_STR("why", res->message));
    s->st.turn_round--; /* the same round again */
    return mg_turn_request(s, false, err);
}
