/* Which sandbox belongs to a session: intents (a create that may be in flight) and bindings. */
#ifndef MG_STORE_SANDBOX_H
#define MG_STORE_SANDBOX_H

#include "store/pg.h"

struct mg_binding {
    struct mg_sv provider, external_id, label, spec_hash, generation;
    bool lost; /* found missing before */
};

struct mg_intent {
    struct mg_sv session_id, provider, label, spec, spec_hash;
    bool deleting;  /* its session is */
    bool in_flight; /* may belong to a create that still runs somewhere */
};

/* MG_ENOTFOUND when the session has none. Texts live in a. */
mg_rc mg_binding_get(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, struct mg_binding *ret,
                     struct mg_err *err) MG_MUSTCHECK;
/* grace_s: how long after its last try an intent without an answer counts as in flight. MG_ENOTFOUND. */
mg_rc mg_intent_get(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, int grace_s, struct mg_intent *ret,
                    struct mg_err *err) MG_MUSTCHECK;

/* Commits the intent before a create, under the session's lock; one that is there stays and is returned in *in.
 * MG_ECONFLICT: the session is being deleted; *ret_bound: a binding exists by now, nothing was written; MG_ENOTFOUND:
 * no such session. */
mg_rc mg_intent_begin(struct mg_pg *pg, struct mg_arena *a, struct mg_intent *in, bool *ret_bound,
                      struct mg_err *err) MG_MUSTCHECK;
/* A create has answered that nothing was made: the intent is not in flight any more. */
mg_rc mg_intent_failed(struct mg_pg *pg, struct mg_sv session, struct mg_sv error, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_intent_delete(struct mg_pg *pg, struct mg_sv session, struct mg_err *err) MG_MUSTCHECK;
/* Intents without an answer for grace_s, oldest try first; marks them as tried, so that one that always fails holds
 * back no other. */
mg_rc mg_intent_claim(struct mg_pg *pg, struct mg_arena *a, int grace_s, int max, struct mg_intent **ret, int *ret_n,
                      struct mg_err *err) MG_MUSTCHECK;

/* Replaces the intent by the binding in one transaction, under the session's lock. *b becomes the winner's when there
 * is one already (another node was faster). MG_ECONFLICT: the session is being deleted, or the sandbox is bound to
 * another session. MG_EUNAVAIL with code commit_unknown: either may hold. */
mg_rc mg_binding_insert(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, struct mg_binding *b,
                        struct mg_err *err) MG_MUSTCHECK;
/* One attach to a session's sandbox at a time, over all nodes: the marker in the workspace is no row that could be fenced.
 * MG_EUNAVAIL: another one is at it. The lock is the connection's. */
mg_rc mg_attach_lock(struct mg_pg *pg, struct mg_sv session, struct mg_err *err) MG_MUSTCHECK;
void mg_attach_unlock(struct mg_pg *pg, struct mg_sv session);
/* From one generation to the next; MG_EFENCED when another node was there before. */
mg_rc mg_binding_advance(struct mg_pg *pg, struct mg_sv session, struct mg_sv from, struct mg_sv to,
                         struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_binding_lost(struct mg_pg *pg, struct mg_sv session, struct mg_sv external_id,
                      struct mg_err *err) MG_MUSTCHECK;
/* Only if it is still the same sandbox. */
mg_rc mg_binding_delete(struct mg_pg *pg, struct mg_sv session, struct mg_sv external_id,
                        struct mg_err *err) MG_MUSTCHECK;

/* ---- sandbox-list.c ---- */

/* Sessions that are being deleted, in the order of their ids, behind after ("": from the first). */
mg_rc mg_deleting_list(struct mg_pg *pg, struct mg_arena *a, struct mg_sv after, int max, struct mg_sv **ret,
                       int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Sessions whose sandbox is noted as lost. */
mg_rc mg_lost_list(struct mg_pg *pg, struct mg_arena *a, int max, struct mg_sv **ret, int *ret_n,
                   struct mg_err *err) MG_MUSTCHECK;
/* Whether a resource has an owner: a binding to exactly this one, or a create under this label that may be in flight. */
mg_rc mg_owned_known(struct mg_pg *pg, struct mg_sv provider, struct mg_sv id, struct mg_sv label, bool *ret,
                     struct mg_err *err) MG_MUSTCHECK;
/* Backends that bindings and intents name, sorted. */
mg_rc mg_bound_providers(struct mg_pg *pg, struct mg_arena *a, struct mg_sv **ret, int *ret_n,
                         struct mg_err *err) MG_MUSTCHECK;

struct mg_sandbox_row {
    struct mg_sv session_id, workspace_id, provider, external_id, label;
    const char *state; /* "bound", "making", "lost", "deleting" */
    int64_t created_us;
};
/* All of them, oldest first. session "": of all sessions. */
mg_rc mg_sandbox_rows(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, struct mg_sandbox_row **ret,
                      int *ret_n, struct mg_err *err) MG_MUSTCHECK;

#endif
