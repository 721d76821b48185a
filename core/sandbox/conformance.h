/* The conformance suite of sandbox backends: what `mango conformance NAME` runs. Prints TAP 13 and a summary of
 * capabilities. An adapter's author needs nothing but the installed programs. */
#ifndef MG_SANDBOX_CONFORMANCE_H
#define MG_SANDBOX_CONFORMANCE_H

#include "plugin/plugin.h"

struct mg_conformance_opts {
    const char *dir, *name; /* of the plugin */
    struct mg_sv config;    /* JSON for init, or empty */
    const struct mg_plugin_services *services;
    const char *only; /* part of a case's name; NULL: all */
    bool live;        /* may make sandboxes at a service: plugins that require MANGO_HOST_HTTP or _UPGRADE */
    /* How a second process of this program comes to mg_conformance_child with the same options: its argv up to the
     * three arguments of that function, NULL-terminated. NULL: the cases that kill a host process are skipped. */
    const char *const *child;
};

/* line: one line of the report, without its end. Returns the number of cases that failed, or -1 when the plugin does
 * not load (the reason is a "Bail out!" line). Takes minutes with a remote service; everything that it makes is
 * destroyed again. */
int mg_conformance_run(const struct mg_conformance_opts *opts, void (*line)(void *ctx, const char *text), void *ctx);

/* The same for the launcher half: launch, watch, stop, what persists. Boxes run the real worker against an address where nobody listens. */
int mg_conformance_launcher(const struct mg_conformance_opts *opts, void (*line)(void *ctx, const char *text),
                            void *ctx);

/* The other process of the cases that need one: another client of the service, or one that is killed. Says what it does
 * on standard output. labels: label and owner, 32 hex digits each. Returns the process's exit status. */
int mg_conformance_child(const struct mg_conformance_opts *opts, const char *op, const char *labels, const char *id);

#endif
