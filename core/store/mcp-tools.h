/* The tools that a thread's MCP servers listed: a snapshot, taken once, so that no server changes its tools in the middle of a session. */
#ifndef MG_STORE_MCP_TOOLS_H
#define MG_STORE_MCP_TOOLS_H

#include "domain/id.h"
#include "store/pg.h"

struct mg_mcp_snapshot {
    struct mg_sv server, url;
    struct mg_sv tools; /* [{"name","description","input_schema"}, ...] */
    bool stale;         /* the server could not be asked in an earlier turn: it is asked again */
};
/* Rows are views of *ret_res. */
mg_rc mg_mcp_snapshots_load(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session,
                            const struct mg_id *thread, struct mg_res **ret_res, struct mg_mcp_snapshot **ret,
                            int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Each queues one statement, under the session's lock. failed_turn: the turn_trigger of the turn in which the server failed, or -1. */
mg_rc mg_mcp_snapshot_save(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session,
                           const struct mg_id *thread, const struct mg_mcp_snapshot *s, int64_t failed_turn,
                           struct mg_err *err) MG_MUSTCHECK;
/* The primary thread's, when its servers change: semantics UP3. */
mg_rc mg_mcp_snapshots_drop(struct mg_txn *t, struct mg_sv session, struct mg_err *err) MG_MUSTCHECK;
/* The config of the session's environment, under its lock. */
mg_rc mg_mcp_environment(struct mg_txn *t, struct mg_sv session, struct mg_res **ret_res, struct mg_sv *ret_config,
                         struct mg_err *err) MG_MUSTCHECK;
/* What a call of the thread needs: its agent as clients see it, and whether the environment is the server's own. */
mg_rc mg_mcp_agent_load(struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread,
                        struct mg_res **ret_res, struct mg_sv *ret_agent, bool *ret_cloud,
                        struct mg_err *err) MG_MUSTCHECK;

#endif
