/* A Messages endpoint for tests: real HTTP on a port of 127.0.0.1, one thread, answers scripted. fake-model.c is the
 * same as a program. Scripts are described in endpoint-script.h, the checks of a request in endpoint-check.h.
 *
 * Also any other path answers by script, so that it serves as a plain HTTP server.
 *
 *   POST   /script      {"responses":["SCRIPT", ...]}: the next requests get these, in order, instead of what their
 * text says;
 *                      {"when":{"TEXT":"SCRIPT", ...}}: user texts that hold TEXT and no script of their own get this one from now on
 *   GET    /requests    the last requests: [{"method","path","headers":{...},"body":...}]
 *   DELETE /requests    forgets them, and scripts that were not used
 *   GET    /stats       {"requests","connections","refused"}: refused counts the requests that broke a rule; with a window also
 *                       {"too_long","largest","input","cache_read","cache_made"} of the requests' tokens */
#ifndef TESTS_SUPPORT_ENDPOINT_H
#define TESTS_SUPPORT_ENDPOINT_H

#include <stdbool.h>

struct endpoint;

struct endpoint_opts {
    int port;         /* 0: any free one */
    const char *key;  /* the only API key that is taken; NULL: any or none */
    int idle_ms;      /* connections without a request are closed after so long; 0: never */
    long window;      /* tokens of its context window, a token being four bytes; 0: without bounds, usage by script */
    bool keep_bodies; /* for GET /requests and endpoint_body */
};

struct endpoint *endpoint_start(const struct endpoint_opts *o); /* aborts when it cannot */
void endpoint_stop(struct endpoint *e);
int endpoint_port(const struct endpoint *e);
void endpoint_script(struct endpoint *e, const char *script); /* for the next request that has none */
int endpoint_requests(struct endpoint *e);
int endpoint_connections(struct endpoint *e); /* accepted ever */
int endpoint_refused(struct endpoint *e);
char *endpoint_body(struct endpoint *e, int i); /* i-th recorded body since the last DELETE, to be freed; NULL: none */

#endif
