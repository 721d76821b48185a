/* Memory stores of a session in its sandbox: .session/memory/SLUG of the workspace, which is /mnt/memory/SLUG too.
 *
 * Files and stores meet three ways (domain/memory-sync.h): the text that both had last (session_memories), the file now, the memory now. Before a wave of
 * calls what other writers changed is put into the files. After a call that may have written, the files are listed with their hashes by one command; what
 * differs from the base is taken over in the transaction that commits the call's result, under the session's lock, the turn's epoch and the stores'
 * locks. So a change is committed with its result or found again later, and none of another writer's is overwritten. A session without stores does none of this. */
#ifndef MG_RUN_MEMORY_H
#define MG_RUN_MEMORY_H

#include "run/step.h"

struct mg_box;
struct mg_memory; /* of a session, shared by the boxes of its threads */
struct mg_memory_delta;

/* ---- what the model is told: memory-prompt.c ---- */

/* Adds the session's stores (as clients see them, in a JSON array) to a system prompt (raw JSON string). Empty: nothing. */
mg_rc mg_memory_system(struct mg_arena *a, struct mg_sv stores, struct mg_sv *system, struct mg_err *err) MG_MUSTCHECK;

/* ---- memory.c ---- */

/* A reference to the session's; NULL when it has no stores. On a thread that may block. */
mg_rc mg_memory_open(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, struct mg_memory **ret,
                     struct mg_err *err) MG_MUSTCHECK;
void mg_memory_close(struct mg_engine *e, struct mg_memory *m); /* NULL is fine */

/* Brings files and stores together, once in each run: what was changed since the last time is taken over, what is new is put in. On a sandbox thread,
 * with the box acquired. MG_EFENCED: the turn is another's. */
mg_rc mg_memory_meet(struct mg_run *r, struct mg_pg *pg, struct mg_err *err) MG_MUSTCHECK;

/* In the step of a run that takes a turn over: a command may have changed memories and its result was lost, and the sandbox is there. */
mg_rc mg_memory_owed(struct mg_run *r, struct mg_step *s, bool *ret, struct mg_err *err) MG_MUSTCHECK;
/* Takes over what can be, on a sandbox thread, then resumes the run. Never makes a sandbox: a bound one is attached. */
void mg_memory_catch_up(struct mg_run *r);

/* Of a session that was just deleted, before its sandbox goes: what background processes, or a call that was cut off, left. On a sandbox thread; as far as
 * the sandbox is there and answers. */
void mg_memory_write_back(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session);

/* On a tool thread that holds the box: before a call, and after it. Neither touches the database. */
void mg_memory_before(struct mg_box *b);
void mg_memory_after(struct mg_run *r, struct mg_box *b);

/* On an engine thread, in the step that starts a wave: what other writers changed is put in before the next call. */
mg_rc mg_memory_refresh(struct mg_run *r, struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* In the step that commits a result (a raw content array): takes the changes over, and says in the result what could not be. */
mg_rc mg_memory_take(struct mg_run *r, struct mg_step *s, struct mg_sv *content, struct mg_err *err) MG_MUSTCHECK;
/* content, a raw content array, with one text block more. */
struct mg_sv mg_content_with_notes(struct mg_arena *a, struct mg_sv content, struct mg_sv notes);
void mg_memory_taken(struct mg_run *r); /* after that commit */
void mg_memory_delta_free(struct mg_memory_delta *d);

#endif
