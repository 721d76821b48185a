/* The sandbox manager over a real database and the backend `local`, for the tests of tests/store. One per test program. */
#ifndef MG_TESTS_SANDBOX_RIG_H
#define MG_TESTS_SANDBOX_RIG_H

#include "domain/id.h"
#include "sandbox/manager.h"
#include "support/pgtest.h"
#include "support/plugin-build.h"

/* The rig's folder of plugins, and the folder of local's workspaces in it. */
extern char rig_plugins[PLUGIN_PATH_MAX], rig_base[PLUGIN_PATH_MAX + 8];
extern const char rig_config[]; /* of the sessions' environment */

struct fixture {
    struct mg_pgtest *db;
    struct mg_pg *pg;
    struct mg_registry *registry;
    struct mg_sandboxes *m;
    struct mg_plugin *backend;
    struct mg_id session;
    const char *name;         /* of the backend; NULL: local */
    uint64_t orphan_grace_ms; /* for the managers that are opened from now on */
};

/* For cmocka: the group builds the plugins, each test has a database and a session of its own. */
int rig_group_up(void **state);
int rig_group_down(void **state);
int rig_up(void **state);
int rig_down(void **state);

struct mg_id rig_session(struct fixture *f);
/* What a process of the server has. */
void rig_open(struct fixture *f);
void rig_close(struct fixture *f);
void rig_restart(struct fixture *f);

mg_rc rig_try_acquire(struct fixture *f, struct mg_sandbox **ret, struct mg_err *err);
struct mg_sandbox *rig_acquire(struct fixture *f);

/* One of several that want the session's sandbox at once, at a manager of its own choice. */
struct rig_racer {
    struct fixture *f;
    struct mg_sandboxes *m;
    struct mg_sandbox *got; /* the caller's to release */
    struct mg_err err;
};

/* Runs them side by side, each on a thread and a connection of its own; the test fails unless each got it. */
void rig_race(struct rig_racer *r, int n);

bool rig_folders_are(int n); /* so many workspaces of local */
void rig_put(struct mg_sandbox *s, const char *path, const char *text);
void rig_holds(struct mg_sandbox *s, const char *path, const char *text);
int64_t rig_count(struct fixture *f, const char *sql);
void rig_mark_deleting(struct fixture *f);

#endif
