/* What the routes work with: made by core/lib/server.c before the HTTP server starts, read-only afterwards. req->app is a struct mg_app *. */
#ifndef MG_API_APP_H
#define MG_API_APP_H

#include <stdbool.h>
#include <stdint.h>

struct mg_conf;
struct mg_egress;
struct mg_engine;
struct mg_http;
struct mg_http_opts;
struct mg_hub;
struct mg_key_cache;
struct mg_keyring;
struct mg_model;
struct mg_notify;
struct mg_objects;
struct mg_registry;
struct mg_sandboxes;
struct mg_pollers;
struct mg_tickets;
struct mg_webhooks;

struct mg_app {
    const struct mg_conf *conf;
    struct mg_engine *engine;
    struct mg_hub *hub;
    struct mg_model *model;
    struct mg_sandboxes *sandboxes; /* NULL: no MANGO_SANDBOX */
    struct mg_registry *registry;
    struct mg_egress *egress;
    struct mg_objects *objects; /* NULL: there is none, the log says why */
    struct mg_key_cache *keys;
    const struct mg_keyring *keyring; /* NULL: no credentials are kept */
    struct mg_notify *notify;
    struct mg_webhooks *webhooks; /* NULL: this server tells none */
    struct mg_http *http;
    bool default_cloud;        /* MANGO_DEFAULT_ENVIRONMENT=cloud */
    const char *default_model; /* for the model list; may be NULL */
    int64_t started_us;
    struct mg_pollers *pollers; /* made by mg_api_setup, freed by mg_api_done */
    struct mg_tickets *tickets; /* made by mg_api_setup, freed by mg_api_done */
};

/* Fills routes, auth, resolve_stream and ws_send of o (core/api/routes.c). o->app is the struct mg_app, filled but for http. */
void mg_api_setup(struct mg_http_opts *o);
void mg_api_done(struct mg_app *app); /* after the HTTP server has stopped */

#endif
