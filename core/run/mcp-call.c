/* A call of an MCP server's tool: resolved on an engine thread, made on a tool thread, its files kept in the session's sandbox. */
#include <stdio.h>

#include "base/log.h"
#include "mcp/result.h"
#include "run/mcp-tools.h"
#include "run/mcp-work.h"
#include "sandbox/manager.h"
#include "store/mcp-tools.h"
#include "tools/result.h"

#define RESULTS_FOLDER ".mango-tool-results"

enum { PATH_ROOM = 1024 /* bytes of a kept file's path */ };

static void done_later(struct mg_run *r)
{
    atomic_store(&r->busy_until_ns, 0);
    if (mg_cancel_fired(r->cancel))
        mg_run_drop(r); /* whoever cancelled has answered the call */
    else
        mg_run_later(r, mg_run_call_done);
}

/* ---- files ---- */

struct keeper {
    struct mg_run *run;
    struct mg_box *box; /* locked when the first file is kept; NULL: there is none */
    char path[PATH_ROOM];
};

static const char *keep(void *ctx, const char *suffix, struct mg_sv bytes, const char **ret_why)
{
    struct keeper *k = ctx;
    char name[PATH_ROOM / 2];
    struct mg_err err = {0};
    *ret_why = k->run->mcp->cloud ? "the session's sandbox cannot be reached"
                                  : "the server has no access to the workspace of a self-hosted session";
    if (!k->box)
        k->box = mg_box_lock(k->run->engine, &k->run->session, &k->run->thread);
    if (!k->box)
        return NULL;
    struct mg_sandbox *sandbox = mg_box_sandbox(k->box);
    const struct mg_tool_ops *ops = mg_sandbox_ops(sandbox);
    (void)snprintf(name, sizeof(name), RESULTS_FOLDER "/%s%s", k->run->call_event.s, suffix);
    if (ops->write(sandbox, name, bytes, &err) < 0) {
        mg_log(MG_WARN, "a tool's result cannot be kept", MG_F_STR("session", k->run->session.s),
               MG_F_STR("error", err.text));
        return NULL;
    }
    (void)snprintf(k->path, sizeof(k->path), "%s/%s", ops->root(sandbox), name);
    return k->path;
}

static void render(struct mg_run *r)
{
    struct mg_err err = {0};
    struct mg_tool_result *out = &r->call_result;
    struct keeper k = {.run = r};
    mg_buf_done(&out->content);
    out->content = MG_BUF_INIT(MG_MCP_CONTENT_MAX);
    mg_rc rc = mg_mcp_render(mg_buf_view(&r->mcp->answer.message), keep, &k, &out->content, &out->is_error, &err);
    if (k.box)
        mg_box_unlock(k.box);
    if (rc < 0) {
        mg_buf_reset(&out->content);
        (void)mg_tool_textf(out, true, "The MCP server \"%s\" ran the call, but its result cannot be used: %s",
                            r->mcp->server, err.text);
    }
    r->call_rc = MG_OK;
    mg_mcp_answer_cleanup(&r->mcp->answer);
    done_later(r);
}

/* On a sandbox thread. Without a sandbox the result is bounded and says so. */
static void acquire_work(void *arg, void *thread)
{
    struct mg_run *r = arg;
    struct mg_err err = {0};
    if (mg_box_acquire(r->engine, thread, &r->session, &r->thread, r->cancel, &err) < 0)
        mg_log(MG_WARN, "no sandbox for a tool's result", MG_F_STR("session", r->session.s),
               MG_F_STR("error", err.text));
    render(r);
    mg_run_unref(r);
}

/* ---- the call ---- */

static void answer_failure(struct mg_run *r, mg_rc rc, const struct mg_err *err)
{
    static const char LOST[] =
        "The MCP server \"%s\" gave no answer: %s. The call may or may not have taken effect; it was "
        "not made again. Check before you repeat it.";
    static const char NOT_RUN[] = "The MCP server \"%s\" did not run the call: %s";
    struct mg_mcp_work *w = r->mcp;
    mg_log(MG_WARN, "an MCP call failed", MG_F_STR("session", r->session.s), MG_F_STR("server", w->server),
           MG_F_STR("error", err->text));
    w->lost = w->answer.may_have_run;
    w->error_type = w->lost ? NULL : mg_mcp_error_type(rc);
    (void)snprintf(w->text, sizeof(w->text), "%.*s", MG_MCP_TEXT_MAX - 1, err->text);
    if (w->lost)
        (void)mg_tool_textf(&r->call_result, true, LOST, w->server, err->text);
    else
        (void)mg_tool_textf(&r->call_result, true, NOT_RUN, w->server, err->text);
    r->call_rc = MG_OK;
    done_later(r);
}

static mg_rc call_over(void *ctx, struct mg_mcp *m, struct mg_err *err)
{
    struct mg_run *r = ctx;
    struct mg_mcp_work *w = r->mcp;
    mg_mcp_answer_cleanup(&w->answer);
    return mg_mcp_call(m, mg_sv_of(w->tool), mg_sv_of(r->call_input), r->cancel, &w->answer, err);
}

static mg_rc make_call(struct mg_run *r, struct mg_err *err)
{
    struct mg_mcp_work *w = r->mcp;
    mg_rc rc = mg_mcp_with_link(r, mg_sv_of(w->server), mg_sv_of(w->url), w->token, call_over, r, err);
    mg_token_free(mg_steal(&w->token));
    return rc;
}

static void call_work(void *arg, void *thread)
{
    struct mg_run *r = arg;
    struct mg_engine *e = r->engine;
    struct mg_err err = {0};
    (void)thread;
    mg_rc rc = make_call(r, &err);
    mg_mcp_count(e->mcp, true, rc < 0);
    bool could_keep = r->mcp->cloud && e->opts.sandboxes && !mg_box_have(e, &r->session, &r->thread);
    if (rc < 0 || mg_cancel_fired(r->cancel))
        answer_failure(r, rc, &err);
    else if (could_keep && mg_mcp_wants_files(mg_buf_view(&r->mcp->answer.message)) &&
             mg_pool_submit(e->sandbox, acquire_work, r) == MG_OK)
        return; /* with our reference */
    else
        render(r);
    mg_run_unref(r);
}

/* Who is called: the journal has the name that the model used. */
static mg_rc resolve(struct mg_run *r, struct mg_pg *pg, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_mcp_work *w = mg_mcp_work_of(r);
    struct mg_sv agent;
    struct mg_json *v = NULL;
    mg_rc rc = mg_mcp_agent_load(pg, &r->session, &r->thread, &res, &agent, &w->cloud, err);
    if (rc == MG_OK)
        rc = mg_mcp_attach(r, pg, a, &agent, err);
    if (rc == MG_OK)
        rc = mg_json_parse(a, agent, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return rc;
    struct mg_tool_rule rule = mg_tool_rule_of(a, v, mg_sv_of(r->call_name));
    struct mg_sv url = mg_mcp_url_of(a, v, rule.server);
    if (!rule.known || rule.kind != MG_CALL_MCP || url.len == 0)
        return mg_err_set(err, MG_EINVAL,
                          "This call was not run: the agent has no such tool of an MCP server any more.");
    free(w->server);
    free(w->tool);
    free(w->url);
    w->server = mg_xstrndup(rule.server.ptr, rule.server.len);
    w->tool = mg_xstrndup(rule.tool.ptr, rule.tool.len);
    w->url = mg_xstrndup(url.ptr, url.len);
    mg_token_free(mg_steal(&w->token));
    rc = mg_wallet_find(r->engine->opts.wallet, pg, &r->session, url, &w->token, err);
    if (rc == MG_ECONFIG || rc == MG_EINTERNAL)
        return mg_err_set(err, MG_EINVAL, "This call was not run: %.400s", mg_arena_strdup(a, mg_sv_of(err->text)));
    return rc;
}

/* The client keeps its own limits; what is left is a sandbox that hangs while it is made ready or written to. */
static uint64_t limit_ms(const struct mg_engine *e)
{
    return MG_MCP_LIST_MS + mg_mcp_total_ms(e->opts.mcp_call_ms) + MG_ACQUIRE_MS + e->opts.tool_grace_ms;
}

void mg_run_mcp_call(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_mcp_work *w = mg_mcp_work_of(r);
    w->lost = w->answer.may_have_run = false;
    w->error_type = NULL;
    r->call_rc = resolve(r, pg, &r->call_err);
    if (r->call_rc < 0 && r->call_rc != MG_EINVAL) {
        mg_run_failed(r, r->call_rc, &r->call_err, mg_run_mcp_call); /* the database: nothing was sent yet */
        return;
    }
    if (r->call_rc < 0) {
        mg_run_later(r, mg_run_call_done);
        return;
    }
    atomic_store(&r->busy_until_ns, mg_run_until(limit_ms(r->engine)));
    if (mg_pool_submit(r->engine->mcp_threads, call_work, mg_run_ref(r)) == MG_OK)
        return;
    mg_run_unref(r);
    atomic_store(&r->busy_until_ns, 0);
    r->call_rc = mg_err_set(&r->call_err, MG_EUNAVAIL,
                            "all MCP threads of this node are busy (MANGO_TOOL_THREADS); the call was not run");
    mg_run_later(r, mg_run_call_done);
}

void mg_mcp_answered(struct mg_run *r, struct mg_step *s, struct mg_tool_call *c)
{
    struct mg_mcp_work *w = r->mcp;
    if (!w || c->kind != MG_CALL_MCP)
        return;
    if (w->lost) {
        c->state = MG_CALL_AMBIGUOUS;
        atomic_fetch_add(&r->engine->n_ambiguous, 1);
    }
    if (w->error_type)
        mg_step_event(s, MG_EV_SESSION_ERROR,
                      mg_mcp_error_members(s->arena, w->error_type, mg_sv_of(w->server), w->text), true);
}
