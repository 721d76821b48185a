/* The tools of a thread's MCP servers, asked for once and kept: semantics MC5. */
#include <stdio.h>

#include "base/log.h"
#include "run/mcp-work.h"
#include "store/mcp-tools.h"

enum { AGENT_MAX = 128 * 1024 * 1024 /* bytes: an agent's text, and 20 servers with lists of their largest size */ };

struct mg_mcp_work *mg_mcp_work_of(struct mg_run *r)
{
    if (!r->mcp)
        r->mcp = mg_xcalloc(1, sizeof(*r->mcp));
    return r->mcp;
}

static void forget_asked(struct mg_mcp_work *w)
{
    for (int i = 0; i < w->n_asked; i++) {
        free(w->asked[i].server);
        free(w->asked[i].url);
        mg_token_free(w->asked[i].token);
        mg_mcp_tool_list_done(&w->asked[i].list);
    }
    free(w->asked);
    w->asked = NULL;
    w->n_asked = 0;
}

void mg_mcp_work_free(struct mg_mcp_work *w)
{
    if (!w)
        return;
    forget_asked(w);
    mg_mcp_answer_cleanup(&w->answer);
    free(w->server);
    free(w->tool);
    free(w->url);
    mg_token_free(w->token);
    free(w);
}

const char *mg_mcp_error_type(mg_rc rc)
{
    return rc == MG_EAUTH ? "mcp_authentication_failed_error" : "mcp_connection_failed_error";
}

struct mg_sv mg_mcp_error_members(struct mg_arena *a, const char *type, struct mg_sv server, const char *text)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    char cut[MG_MCP_TEXT_MAX];
    struct mg_jw w = mg_jw_to(&b);
    (void)snprintf(cut, sizeof(cut), "%s", text);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", type);
    mg_jw_kstrz(&w, "message", cut);
    mg_jw_kstr(&w, "mcp_server_name", server);
    mg_jw_kraw(&w, "retry_status", MG_SV("{\"type\":\"exhausted\"}"));
    mg_jw_obj_end(&w);
    return mg_arena_printf(a, "\"error\":%.*s", MG_SV_ARG(mg_buf_view(&b)));
}

/* ---- what is there ---- */

static void want(struct mg_mcp_work *w, struct mg_sv server, struct mg_sv url)
{
    w->asked = mg_xrealloc(w->asked, sizeof(*w->asked) * (size_t)(w->n_asked + 1));
    w->asked[w->n_asked++] = (struct mg_mcp_asked){
        .server = mg_xstrndup(server.ptr, server.len),
        .url = mg_xstrndup(url.ptr, url.len),
    };
}

static const struct mg_mcp_snapshot *find(const struct mg_mcp_snapshot *all, int n, struct mg_sv server,
                                          struct mg_sv url)
{
    for (int i = 0; i < n; i++)
        if (mg_sv_eq(all[i].server, server) && mg_sv_eq(all[i].url, url) && !all[i].stale)
            return &all[i];
    return NULL;
}

/* The agent's text with one more member at its end. */
static struct mg_sv extended(struct mg_run *r, struct mg_arena *a, const struct mg_json *agent,
                             const struct mg_mcp_snapshot *all, int n)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(AGENT_MAX);
    const struct mg_json *servers = mg_json_get(agent, "mcp_servers");
    struct mg_jw w = mg_jw_to(&b);
    (void)mg_buf_append(&b, agent->raw.ptr, agent->raw.len - 1);
    (void)mg_buf_str(&b, ",\"mcp_tools\":");
    mg_jw_arr(&w);
    for (const struct mg_json *s = servers ? servers->child : NULL; s; s = s->next) {
        struct mg_sv name = mg_json_get_str(a, s, "name"), url = mg_json_get_str(a, s, "url");
        const struct mg_mcp_snapshot *have = find(all, n, name, url);
        if (!have) {
            want(mg_mcp_work_of(r), name, url);
            continue;
        }
        mg_jw_obj(&w);
        mg_jw_kstr(&w, "server", name);
        mg_jw_kraw(&w, "tools", have->tools);
        mg_jw_obj_end(&w);
    }
    mg_jw_arr_end(&w);
    (void)mg_buf_char(&b, '}');
    return mg_buf_ok(&b) ? mg_arena_sv(a, mg_buf_view(&b)) : agent->raw;
}

/* A credential that cannot be opened is the server's failure, told when it would be asked: semantics VA9. */
static mg_rc find_tokens(struct mg_run *r, struct mg_pg *pg, struct mg_err *err)
{
    for (int i = 0; r->mcp && i < r->mcp->n_asked; i++) {
        struct mg_mcp_asked *x = &r->mcp->asked[i];
        x->rc = mg_wallet_find(r->engine->opts.wallet, pg, &r->session, mg_sv_of(x->url), &x->token, &x->err);
        if (x->rc == MG_EUNAVAIL || x->rc == MG_ETIMEOUT) {
            *err = x->err;
            return x->rc;
        }
    }
    return MG_OK;
}

mg_rc mg_mcp_attach(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_sv *agent, struct mg_err *err)
{
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_mcp_snapshot *all = NULL;
    struct mg_json *v;
    int n = 0;
    if (r->mcp)
        forget_asked(r->mcp);
    if (!memmem(agent->ptr, agent->len, "mcp_toolset", 11))
        return MG_OK;
    mg_rc rc = mg_json_parse(a, *agent, &mg_json_raw_limits, &v, err);
    if (rc == MG_OK)
        rc = mg_mcp_snapshots_load(a, pg, &r->session, &r->thread, &res, &all, &n, err);
    if (rc < 0)
        return rc;
    *agent = extended(r, a, v, all, n);
    return find_tokens(r, pg, err);
}

bool mg_mcp_wanted(const struct mg_run *r)
{
    return r->mcp && r->mcp->n_asked > 0;
}

/* ---- asking ---- */

static void run_listed(struct mg_run *r, struct mg_pg *pg);

/* The last to answer goes on. */
static void answered(struct mg_run *r)
{
    if (atomic_fetch_sub(&r->mcp->left, 1) != 1)
        return;
    if (mg_cancel_fired(r->cancel))
        mg_run_drop(r);
    else
        mg_run_later(r, run_listed);
}

struct list_job {
    struct mg_run *run;
    int i;
};

struct listing {
    struct mg_run *run;
    struct mg_mcp_tool_list *list;
};

static mg_rc list_over(void *ctx, struct mg_mcp *m, struct mg_err *err)
{
    struct listing *l = ctx;
    return mg_mcp_list(m, l->run->cancel, l->list, err);
}

static void list_work(void *arg, void *thread)
{
    struct list_job *j = arg;
    struct mg_run *r = j->run;
    struct mg_mcp_asked *x = &r->mcp->asked[j->i];
    (void)thread;
    struct listing l = {.run = r, .list = &x->list};
    if (x->rc == MG_OK)
        x->rc = mg_mcp_with_link(r, mg_sv_of(x->server), mg_sv_of(x->url), x->token, list_over, &l, &x->err);
    mg_mcp_count(r->engine->mcp, false, x->rc < 0);
    answered(r);
    mg_run_unref(r);
    free(j);
}

void mg_run_mcp_list(struct mg_run *r)
{
    struct mg_mcp_work *w = r->mcp;
    int n = w->n_asked; /* the last answer may change it */
    atomic_store(&w->left, n);
    for (int i = 0; i < n; i++) {
        struct list_job *j = mg_xmalloc(sizeof(*j));
        *j = (struct list_job){.run = mg_run_ref(r), .i = i};
        if (mg_pool_submit(r->engine->mcp_threads, list_work, j) == MG_OK)
            continue;
        w->asked[i].rc =
            mg_err_set(&w->asked[i].err, MG_EUNAVAIL, "all MCP threads of this node are busy (MANGO_TOOL_THREADS)");
        free(j);
        answered(r);
        mg_run_unref(r);
    }
}

static mg_rc keep_list(struct mg_run *r, struct mg_step *s, struct mg_mcp_asked *x, struct mg_err *err)
{
    bool failed = x->rc < 0;
    struct mg_sv server = mg_sv_of(x->server);
    const struct mg_mcp_snapshot snapshot = {
        .server = server,
        .url = mg_sv_of(x->url),
        .tools = failed ? MG_SV("[]") : mg_buf_view(&x->list.tools),
    };
    if (failed) {
        mg_log(MG_WARN, "an MCP server cannot be used", MG_F_STR("session", r->session.s), MG_F_SV("server", server),
               MG_F_STR("error", x->err.text));
        mg_step_event(s, MG_EV_SESSION_ERROR,
                      mg_mcp_error_members(s->arena, mg_mcp_error_type(x->rc), server, x->err.text), true);
    } else if (x->list.n_left_out) {
        mg_log(MG_WARN, "tools of an MCP server are left out", MG_F_STR("session", r->session.s),
               MG_F_SV("server", server), MG_F_INT("tools", x->list.n_left_out));
    }
    return mg_mcp_snapshot_save(s->arena, s->t, &r->session, &r->thread, &snapshot, failed ? s->st.turn_trigger : -1,
                                err);
}

static mg_rc commit_listed(struct mg_run *r, struct mg_pg *pg, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc == MG_OK && s.st.turn_step != MG_TURN_MODEL)
        return MG_OK; /* the request finds out where the turn is */
    for (int i = 0; rc == MG_OK && i < r->mcp->n_asked; i++)
        rc = keep_list(r, &s, &r->mcp->asked[i], err);
    return rc < 0 ? rc : mg_step_commit(&s, "turn.mcp_listed", err);
}

static void run_listed(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    mg_rc rc = commit_listed(r, pg, &err);
    if (rc < 0)
        mg_run_failed(r, rc, &err, run_listed);
    else
        mg_run_request(r, pg);
}
