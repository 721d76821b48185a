#include "api/render.h"

#include "domain/thread.h"

/* The stored body is spliced between our members: it was resolved once, when it was written. */
void mg_render_agent(struct mg_jw *w, const struct mg_agent_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "agent");
    mg_jw_kint(w, "version", x->version);
    (void)mg_buf_char(w->out, ',');
    (void)mg_buf_append(w->out, x->body.ptr + 1, x->body.len - 2);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_ktime(w, "archived_at", x->archived_us);
    mg_jw_obj_end(w);
}

void mg_render_environment(struct mg_jw *w, const struct mg_environment_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "environment");
    mg_jw_kstr(w, "name", x->env.name);
    mg_jw_kstr_or_null(w, "description", x->env.description);
    mg_jw_kraw(w, "config", x->env.config);
    mg_jw_kraw(w, "metadata", x->env.metadata);
    if (x->env.scope.ptr)
        mg_jw_kstr(w, "scope", x->env.scope);
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_ktime(w, "archived_at", x->archived_us);
    mg_jw_obj_end(w);
}

static void render_usage(struct mg_jw *w, struct mg_arena *a, const struct mg_session_row *x)
{
    mg_jw_key(w, "usage");
    mg_usage_write(w, a, &x->usage);
}

static void render_stats(struct mg_jw *w, struct mg_arena *a, const struct mg_session_row *x)
{
    mg_jw_key(w, "stats");
    mg_jw_obj(w);
    mg_seconds_write(w, a, "active_seconds", x->usage.active_us);
    mg_seconds_write(w, a, "duration_seconds", x->duration_us);
    mg_jw_obj_end(w);
}

static void render_times(struct mg_jw *w, const struct mg_session_row *x)
{
    mg_jw_ktime(w, "created_at", x->created_us);
    mg_jw_ktime(w, "updated_at", x->updated_us);
    mg_jw_ktime(w, "archived_at", x->archived_us);
}

void mg_render_session(struct mg_jw *w, struct mg_arena *a, const struct mg_session_row *x)
{
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "session");
    mg_jw_kraw(w, "agent", x->agent);
    mg_jw_kstr(w, "environment_id", x->environment_id);
    mg_jw_kstr(w, "status", x->status);
    mg_jw_kstr_or_null(w, "title", x->title);
    mg_jw_kraw(w, "metadata", x->metadata);
    mg_jw_kraw(w, "resources", x->resources);
    mg_jw_kraw(w, "vault_ids", x->vault_ids);
    mg_jw_kraw(w, "outcome_evaluations", x->outcomes);
    render_stats(w, a, x);
    render_usage(w, a, x);
    mg_jw_kraw(w, "budget", mg_budget_format(a, x->budget_nano));
    mg_jw_kstr_or_null(w, "deployment_id", x->deployment_id);
    render_times(w, x);
    mg_jw_obj_end(w);
}

/* A SessionThreadAgent: the session's agent without multiagent. */
static mg_rc render_thread_agent(struct mg_jw *w, struct mg_arena *a, struct mg_sv agent, struct mg_err *err)
{
    struct mg_json *v;
    mg_rc rc = mg_json_parse(a, agent, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, MG_EINTERNAL, "stored agent");
    mg_jw_key(w, "agent");
    mg_jw_obj(w);
    for (const struct mg_json *m = v->child; m; m = m->next) {
        if (mg_sv_eqz(m->key, "multiagent"))
            continue;
        mg_jw_key_sv(w, m->key);
        mg_jw_raw(w, m->raw);
    }
    mg_jw_obj_end(w);
    return MG_OK;
}

void mg_thread_row_of(struct mg_arena *a, const struct mg_session_row *x, struct mg_thread_row *ret)
{
    const struct mg_id id = mg_thread_primary(x->id);
    *ret = (struct mg_thread_row){
        .id = mg_arena_sv(a, mg_id_sv(&id)),
        .agent = x->agent,
        .status = x->status,
        .created_us = x->created_us,
        .updated_us = x->updated_us,
        .archived_us = x->archived_us,
        .duration_us = x->duration_us,
        .usage = x->usage,
    };
}

mg_rc mg_render_thread(struct mg_jw *w, struct mg_arena *a, struct mg_sv session_id, const struct mg_thread_row *x,
                       struct mg_err *err)
{
    const struct mg_session_row like = {
        .created_us = x->created_us,
        .updated_us = x->updated_us,
        .archived_us = x->archived_us,
        .duration_us = x->duration_us,
        .usage = x->usage,
    };
    const struct mg_id primary = mg_thread_primary(session_id);
    mg_jw_obj(w);
    mg_jw_kstr(w, "id", x->id);
    mg_jw_kstrz(w, "type", "session_thread");
    mg_jw_kstr(w, "session_id", session_id);
    if (x->ordinal)
        mg_jw_kstr(w, "parent_thread_id", mg_id_sv(&primary));
    else
        mg_jw_knull(w, "parent_thread_id");
    mg_rc rc = render_thread_agent(w, a, x->agent, err);
    if (rc < 0)
        return rc;
    mg_jw_kstr(w, "status", x->status);
    render_stats(w, a, &like);
    render_usage(w, a, &like);
    mg_jw_knull(w, "workflow_run_id");
    render_times(w, &like);
    mg_jw_obj_end(w);
    return MG_OK;
}
