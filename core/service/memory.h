/* Memory stores, memories, versions: contract 2.10, semantics ME1 to ME6. */
#ifndef MG_SERVICE_MEMORY_H
#define MG_SERVICE_MEMORY_H

#include "domain/principal.h"
#include "store/memory.h"

mg_rc mg_memory_stores_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                              const struct mg_json *body, struct mg_memory_store_row *ret,
                              struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_stores_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                              const struct mg_json *body, struct mg_memory_store_row *ret,
                              struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_stores_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                               struct mg_memory_store_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_stores_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                              struct mg_err *err) MG_MUSTCHECK;

struct mg_resource_spec;
/* A store of a session, in the transaction that creates it; place: among its resources. */
mg_rc mg_memory_stores_attach(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv session,
                              bool self_hosted, int place, const struct mg_resource_spec *spec,
                              struct mg_err *err) MG_MUSTCHECK;

/* A change of a memory. A work item's token must hold its claim in the very transaction (MG_EPRECOND). */
mg_rc mg_memories_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv store,
                         const struct mg_json *body, struct mg_memory_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memories_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv store,
                         struct mg_sv id, const struct mg_json *body, struct mg_memory_row *ret,
                         struct mg_err *err) MG_MUSTCHECK;
/* expected: the sha256 that it must have; ptr NULL: any. */
mg_rc mg_memories_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv store,
                         struct mg_sv id, struct mg_sv expected, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_versions_redact(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                                struct mg_sv store, struct mg_sv id, struct mg_memory_version_row *ret,
                                struct mg_err *err) MG_MUSTCHECK;

#endif
