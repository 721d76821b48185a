#include "run/step.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hook.h"
#include "run/engine-internal.h"
#include "run/threads.h"
#include "run/work.h"

static mg_rc fenced(struct mg_err *err)
{
    return mg_err_set(err, MG_EFENCED, "the turn was claimed by another node or interrupted");
}

mg_rc mg_step_begin(struct mg_step *s, struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, struct mg_sv session,
                    struct mg_sv workspace, int64_t epoch, struct mg_err *err)
{
    *s = (struct mg_step){.engine = e, .arena = a, .txn = mg_txn_on(pg)};
    s->t = &s->txn;
    mg_rc rc = mg_session_lock(s->t, session, workspace, &s->st, err);
    if (rc < 0)
        return rc;
    if (epoch >= 0 && s->st.turn_epoch != epoch)
        return fenced(err);
    s->now_us = mg_wall_us();
    return s->st.roster ? mg_threads_begin(s, err) : MG_OK;
}

mg_rc mg_step_begin_run(struct mg_step *s, struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_err *err)
{
    bool child = r->thread.s[0] != '\0';
    mg_rc rc = mg_step_begin(s, r->engine, pg, a, mg_id_sv(&r->session), MG_SV(""), child ? -1 : r->epoch, err);
    if (rc < 0 || !s->threads)
        return rc < 0 || !child ? rc : fenced(err);
    if (!mg_threads_ours(s))
        return fenced(err);
    int i = mg_threads_index(s, mg_id_sv(&r->thread));
    rc = i < 0 ? fenced(err) : mg_threads_switch(s, i, err);
    if (rc == MG_OK && s->st.turn_epoch != r->epoch)
        rc = fenced(err);
    s->threads->own = i;
    return rc;
}

mg_rc mg_step_adopt(struct mg_step *s, struct mg_engine *e, struct mg_txn *t, struct mg_arena *a,
                    const struct mg_session_state *st, struct mg_err *err)
{
    *s = (struct mg_step){.engine = e, .arena = a, .t = t, .st = *st, .now_us = mg_wall_us()};
    s->txn.done = true; /* nothing of its own to roll back */
    return st->roster ? mg_threads_begin(s, err) : MG_OK;
}

/* Room for one more element: arrays double in the arena. */
static void *grown(struct mg_arena *a, void *old, int n, int *cap, size_t size)
{
    if (n < *cap)
        return old;
    *cap = *cap ? *cap * 2 : 8;
    void *p = mg_arena_alloc(a, (size_t)*cap * size);
    if (n)
        memcpy(p, old, (size_t)n * size);
    return p;
}

void mg_step_event_id(struct mg_step *s, const struct mg_id *id, enum mg_event_type type, struct mg_sv members,
                      bool processed)
{
    s->events = grown(s->arena, s->events, s->n_events, &s->cap_events, sizeof(*s->events));
    s->events[s->n_events++] = (struct mg_event_row){
        .id = *id,
        .thread = s->st.thread,
        .type = type,
        .body = mg_arena_printf(s->arena, "{\"id\":\"%s\",\"type\":\"%s\"%s%.*s}", id->s, mg_event_type_name(type),
                                members.len ? "," : "", MG_SV_ARG(members)),
        .processed = processed,
    };
}

struct mg_id mg_step_event(struct mg_step *s, enum mg_event_type type, struct mg_sv members, bool processed)
{
    struct mg_id id = mg_id_new("sevt");
    mg_step_event_id(s, &id, type, members, processed);
    return id;
}

struct mg_id mg_step_post(struct mg_step *s, const struct mg_id *thread, enum mg_event_type type, struct mg_sv members,
                          bool processed)
{
    struct mg_id id = mg_step_event(s, type, members, processed);
    s->events[s->n_events - 1].thread = thread ? *thread : (struct mg_id){0};
    return id;
}

void mg_step_transcript(struct mg_step *s, bool assistant, struct mg_sv content)
{
    s->entries = grown(s->arena, s->entries, s->n_entries, &s->cap_entries, sizeof(*s->entries));
    s->entries[s->n_entries++] = (struct mg_transcript_row){.assistant = assistant, .content = content};
}

void mg_step_measured(struct mg_step *s, int64_t tokens, int64_t fixed)
{
    s->entries[s->n_entries - 1].tokens = tokens;
    s->entries[s->n_entries - 1].fixed = fixed;
}

mg_rc mg_step_flush_entries(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = mg_transcript_append(s->arena, s->t, &s->st.session, &s->st.thread, s->st.transcript_len, s->entries,
                                    s->n_entries, err);
    s->st.transcript_len += s->n_entries;
    s->n_entries = 0;
    return rc;
}

mg_rc mg_step_flush(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = mg_events_insert(s->arena, s->t, &s->st.session, s->st.last_seq, s->events, s->n_events, s->now_us, err);
    if (rc == MG_OK)
        rc = mg_step_flush_entries(s, err);
    if (rc < 0)
        return rc;
    s->st.last_seq += s->n_events;
    s->flushed = true;
    rc = s->threads ? mg_threads_save(s, err) : mg_session_state_save(s->arena, s->t, &s->st, err);
    return rc < 0 ? rc : mg_work_after_step(s, err);
}

static void hook_at(const char *point, const char *side)
{
    char name[96];
    snprintf(name, sizeof(name), "%s.%s", point, side);
    mg_hook(name);
}

mg_rc mg_step_commit(struct mg_step *s, const char *point, struct mg_err *err)
{
    mg_auto(res) struct mg_res *last = NULL;
    mg_rc rc = mg_step_flush(s, err);
    if (rc < 0)
        return rc;
    hook_at(point, "before");
    rc = mg_txn_commit_last(s->t, s->work_asked ? &last : NULL, err);
    if (rc < 0)
        return rc;
    s->work_made = last && mg_res_rows(last) > 0;
    hook_at(point, "after");
    mg_step_publish(s);
    if (s->threads)
        mg_threads_settle(s);
    return MG_OK;
}

void mg_step_publish(const struct mg_step *s)
{
    if (s->work_made)
        mg_work_tell(s->engine, &s->st.environment);
    if (s->n_events == 0)
        return;
    struct mg_event **events = mg_arena_alloc(s->arena, sizeof(struct mg_event *) * (size_t)s->n_events);
    int64_t first = s->st.last_seq - s->n_events + 1;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    if (!mg_hub_idle(s->engine->hub)) {
        for (int i = 0; i < s->n_events; i++) {
            const struct mg_event_row *r = &s->events[i];
            mg_buf_reset(&b);
            (void)mg_event_render(&b, r->body, r->processed ? s->now_us : INT64_MIN);
            events[i] = mg_event_new(first + i, mg_id_sv(&r->id), mg_sv_of(mg_event_type_name(r->type)),
                                     mg_id_sv(&r->thread), mg_buf_view(&b));
        }
        mg_hub_publish(s->engine->hub, &s->st.session, events, s->n_events);
    }
    if (s->engine->notify)
        mg_notify_send(s->engine->notify, mg_id_sv(&s->st.session), s->st.last_seq);
}

struct mg_sv mg_members_error(struct mg_arena *a, const char *type, const char *message, const char *retry_status)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", type);
    mg_jw_kstrz(&w, "message", message);
    mg_jw_key(&w, "retry_status");
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", retry_status);
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    return mg_arena_printf(a, "\"error\":%.*s", MG_SV_ARG(mg_buf_view(&b)));
}
