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
};

/* line: one line of the report, without its end. Returns the number of cases that failed, or -1 when the plugin does
 * not load (the reason is a "Bail out!" line). Takes minutes with a remote service; everything that it makes is
 * destroyed again. */
int mg_conformance_run(const struct mg_conformance_opts *opts, void (*line)(void *ctx, const char *text), void *ctx);

#endif
