/* The parts of a server (server.c), what wakes them (news.c), and its plugins (sandbox.c). */
#ifndef MG_LIB_INTERNAL_H
#define MG_LIB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/app.h"
#include "domain/id.h"
#include "lib/server.h"
#include "plugin/registry.h"
#include "store/pg.h"
#include "store/state-dir.h"

struct mg_server {
    struct mg_server_opts opts;
    const struct mg_conf *conf;
    struct mg_app app;
    bool have_state;
    struct mg_state_dir state;
    struct mg_embedded *embedded;
    const char *conninfo;
    struct mg_id deployment, node;
    struct mg_plugin_net *plugin_net;
    struct mg_egress *egress;
    struct mg_plugin_services services;
    struct mg_registry *registry;
    struct mg_sandboxes *sandboxes;
    struct mg_model *model;
    struct mg_net *users; /* requests to hosts that users name */
    struct mg_keyring *keyring;
    struct mg_git *git;
    struct mg_wallet *wallet;
    struct mg_prices *prices;
    struct mg_objects *objects; /* NULL: there is none */
    struct mg_hub *hub;
    struct mg_notify *notify;
    struct mg_engine *_Atomic engine;
    struct mg_webhooks *_Atomic webhooks; /* NULL: there is no keyring, and so no webhook */
    struct mg_key_cache *keys;
    /* Other threads reach the HTTP server under this lock, and find it gone before it is: they take it to read. */
    pthread_rwlock_t http_lock;
    struct mg_http *http;
    struct mg_launcher *launcher; /* NULL: none is hosted */
};

/* ---- news.c: callbacks, each with the server as ctx, from any thread ---- */

/* The hub's owner is the HTTP loop. */
void mg_on_hub_mail(void *ctx);
void mg_on_hub_load(void *ctx, const struct mg_id *session, int64_t after, int limit, size_t max_bytes, uint64_t token);
/* What this node or another one changed. */
void mg_on_event(void *ctx, struct mg_sv session, int64_t seq);
void mg_on_key(void *ctx, struct mg_sv key_id);
void mg_on_work(void *ctx, struct mg_sv environment);
void mg_on_webhook(void *ctx);
void mg_on_gap(void *ctx);
void mg_on_second(void *ctx, struct mg_engine *e, struct mg_pg *pg);
void mg_on_database_down(void *ctx);

/* ---- sandbox.c ---- */

/* Plugins and what they may ask of the server, the backend of MANGO_SANDBOX, and those of stored sandboxes. */
mg_rc mg_open_sandbox(struct mg_server *s, struct mg_err *err);

#endif
