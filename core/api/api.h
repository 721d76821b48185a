/* Inside of core/api: what its files share. */
#ifndef MG_API_API_H
#define MG_API_API_H

#include "api/app.h"
#include "base/buf.h"
#include "base/mem.h"
#include "domain/principal.h"
#include "http/http.h"
#include "http/multipart.h"
#include "json/json.h"
#include "json/write.h"
#include "store/list.h"

static inline const struct mg_app *mg_req_app(const struct mg_http_req *req)
{
    return req->app;
}
static inline const struct mg_principal *mg_req_who(const struct mg_http_req *req)
{
    return req->principal;
}
static inline struct mg_sv mg_req_workspace(const struct mg_http_req *req)
{
    return mg_id_sv(&mg_req_who(req)->workspace);
}

/* ---- params.c: query parameters ---- */

/* The one value of a parameter; ptr NULL when it is absent. MG_EINVAL when it is given twice. */
mg_rc mg_param_one(const struct mg_http_req *req, const char *name, struct mg_sv *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_param_bool(const struct mg_http_req *req, const char *name, bool *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_param_int(const struct mg_http_req *req, const char *name, int64_t min, int64_t max, int64_t *ret,
                   struct mg_err *err) MG_MUSTCHECK;
/* An opaque id; ptr NULL when it is absent. */
mg_rc mg_param_id(const struct mg_http_req *req, const char *name, struct mg_sv *ret, struct mg_err *err) MG_MUSTCHECK;
/* All values of a list parameter: name=a&name=b, name[]=a, and name=a,b. ok says which words are valid; valid lists them for errors. */
enum { MG_PARAM_VALUES_MAX = 100 };
mg_rc mg_param_words(const struct mg_http_req *req, const char *name, bool (*ok)(struct mg_sv word), const char *valid,
                     struct mg_sv **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

struct mg_list_kind {
    const char *name;     /* part of the cursors' scope */
    int limit, limit_max; /* default and upper bound */
    bool ascending;       /* the default order */
};
/* limit, order, include_archived, created_at[...] and page, as far as the route knows them. filters: further filters in a fixed form
 * (and the list's parent), part of the scope. */
mg_rc mg_param_list(const struct mg_http_req *req, const struct mg_list_kind *kind, struct mg_sv filters,
                    struct mg_list_query *ret, struct mg_sv *ret_scope, struct mg_err *err) MG_MUSTCHECK;

/* The request's body as an object; empty counts as {}. */
mg_rc mg_req_body(const struct mg_http_req *req, const struct mg_json **ret, struct mg_err *err) MG_MUSTCHECK;
/* For actions that take nothing: an empty body or {}. */
mg_rc mg_req_no_body(const struct mg_http_req *req, struct mg_err *err) MG_MUSTCHECK;
/* A body of parts, handed on as it arrives. */
mg_rc mg_req_multipart(struct mg_http_req *req, const struct mg_multipart_ops *ops, struct mg_err *err) MG_MUSTCHECK;
/* {"id":ID,"type":TYPE} */
mg_rc mg_res_deleted(struct mg_http_res *res, struct mg_sv id, const char *type);

/* The server's object store. MG_EUNAVAIL: it has none. */
mg_rc mg_req_objects(const struct mg_http_req *req, struct mg_objects **ret, struct mg_err *err) MG_MUSTCHECK;

/* ---- page.c: what a list answers. Rows are written between begin and next, the list's own members behind them; the caller ends the
 * object. ---- */

struct mg_page_edge {
    int64_t pos;
    struct mg_sv id;
};
struct mg_jw mg_page_begin(struct mg_http_res *res);
/* Ends the rows and writes the cursor behind the last one, or null; then the one before the first. */
void mg_page_next(struct mg_jw *w, struct mg_arena *a, struct mg_sv scope, bool more, struct mg_page_edge last);
void mg_page_prev(struct mg_jw *w, struct mg_arena *a, struct mg_sv scope, bool more, struct mg_page_edge first);

/* ---- auth.c ---- */
mg_rc mg_auth(struct mg_http_req *req, const struct mg_route *route, struct mg_err *err) MG_MUSTCHECK;

/* ---- threads.c ---- */
/* What clients name in a path or query: *ret is empty for the primary thread. MG_ENOTFOUND. */
mg_rc mg_thread_of(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv thread_id, struct mg_sv *ret,
                   struct mg_err *err) MG_MUSTCHECK;

/* ---- the streams' hooks: events.c, send.c ---- */
mg_rc mg_stream_resolve(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv after,
                        struct mg_stream_spec *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_ws_send(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv body, struct mg_sv idempotency_key,
                 struct mg_sv *ret_ids, struct mg_err *err) MG_MUSTCHECK;
/* A page of events, and a stream, of a child's log or (thread empty) of the session's. */
mg_rc mg_events_page(struct mg_http_req *req, struct mg_http_res *res, struct mg_sv session_id, struct mg_sv thread,
                     struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_events_open(struct mg_http_req *req, struct mg_http_res *res, struct mg_sv session_id, struct mg_sv thread,
                     struct mg_err *err) MG_MUSTCHECK;

/* ---- waiting.c ---- */
void mg_waiting_metrics(struct mg_pg *pg, struct mg_buf *out);
void mg_transaction_metrics(struct mg_pg *pg, struct mg_buf *out);

/* ---- openapi.c ---- */
mg_rc mg_openapi_write(struct mg_buf *out, const struct mg_route *routes);

/* ---- handlers ---- */
mg_http_handler mg_get_agents, mg_post_agents, mg_get_agent, mg_post_agent, mg_post_agent_archive,
    mg_get_agent_versions;
mg_http_handler mg_get_environments, mg_post_environments, mg_get_environment, mg_post_environment,
    mg_delete_environment, mg_post_environment_archive;
mg_http_handler mg_get_sessions, mg_post_sessions, mg_get_session, mg_post_session, mg_delete_session,
    mg_post_session_archive, mg_get_session_waiting, mg_post_session_unwedge;
mg_http_handler mg_get_events, mg_post_events, mg_get_event_stream;
mg_http_handler mg_get_threads, mg_get_thread, mg_post_thread_archive, mg_get_thread_events, mg_get_thread_stream;
mg_http_handler mg_get_work_poll, mg_get_work_list, mg_get_work, mg_post_work, mg_get_work_stats, mg_post_work_ack,
    mg_post_work_heartbeat, mg_post_work_stop, mg_post_work_fail;
mg_http_handler mg_get_vaults, mg_post_vaults, mg_get_vault, mg_post_vault, mg_delete_vault, mg_post_vault_archive;
mg_http_handler mg_get_credentials, mg_post_credentials, mg_get_credential, mg_post_credential, mg_delete_credential,
    mg_post_credential_archive, mg_post_credential_validate;
mg_http_handler mg_get_resources, mg_post_resources, mg_get_resource, mg_post_resource, mg_delete_resource;
mg_http_handler mg_get_skills, mg_post_skills, mg_get_skill, mg_delete_skill, mg_get_skill_versions,
    mg_post_skill_versions, mg_get_skill_version, mg_delete_skill_version, mg_get_skill_content;
mg_http_handler mg_get_files, mg_post_files, mg_get_file, mg_delete_file, mg_get_file_content;
mg_http_handler mg_get_deployments, mg_post_deployments, mg_get_deployment, mg_post_deployment,
    mg_post_deployment_archive, mg_post_deployment_pause, mg_post_deployment_unpause, mg_post_deployment_run,
    mg_get_deployment_runs, mg_get_deployment_run;
mg_http_handler mg_get_memory_stores, mg_post_memory_stores, mg_get_memory_store, mg_post_memory_store,
    mg_delete_memory_store, mg_post_memory_store_archive;
mg_http_handler mg_get_memories, mg_post_memories, mg_get_memory, mg_post_memory, mg_delete_memory,
    mg_get_memory_versions, mg_get_memory_version, mg_post_memory_version_redact;
mg_http_handler mg_get_models, mg_get_model;
mg_http_handler mg_get_health, mg_get_ready, mg_get_metrics, mg_get_openapi, mg_get_absent;
mg_http_handler mg_post_ticket;

#endif
