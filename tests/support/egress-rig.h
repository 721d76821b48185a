/* The filtering proxy over real sockets, with one door for each test, in a network of the test's own; and its log.
 * One per test program. */
#ifndef MG_TESTS_EGRESS_RIG_H
#define MG_TESTS_EGRESS_RIG_H

#include "base/buf.h"
#include "base/err.h"
#include "egress/proxy.h"
#include "support/egress-net.h"
#include "support/plugin-build.h"

#define LABEL "0123456789abcdef0123456789abcdef" /* of the usual door */
#define OTHER "fedcba9876543210fedcba9876543210"

enum {
    PROXY_USUAL = 13, /* hosts in proxy_usual */
    PROXY_TCP = 3128, /* port of the tests' TCP doors */
    PROXY_LOG_MAX = 256 * 1024,
};

/* The proxy of this test and its state folder. */
extern struct mg_egress *proxy;
extern char proxy_state_dir[PLUGIN_PATH_MAX];
extern const struct mango_sv proxy_usual[PROXY_USUAL]; /* what the usual door allows */
extern char proxy_log[PROXY_LOG_MAX];                  /* for messages of a failure */

/* The first thing in main. */
void proxy_begin(void);
/* For cmocka: each test has a proxy with the usual door, and a log without lines. */
int proxy_setup(void **state);
int proxy_teardown(void **state);
#define WITH_PROXY(test) cmocka_unit_test_setup_teardown(test, proxy_setup, proxy_teardown)

/* networks: private ones that may be reached. */
struct mg_egress *proxy_open(const char *networks);
/* Opens a door for session_1. out: what mg_egress_door_open gives; listen "": the folder of its socket, else its URL. */
mg_rc proxy_door(struct mg_egress *e, const char *label, const struct mango_sv *hosts, size_t n, const char *listen,
                 struct mg_buf *out, struct mg_err *err);
void proxy_usual_door(void);

/* Connections; -1: no such door. */
int proxy_dial_unix(const char *label);
int proxy_dial_tcp(const char *address, int port);
/* Reads until want is in what came, or the end. */
const char *proxy_until(int fd, const char *want, struct mg_buf *in);
/* What the proxy says to a whole request on a new connection to the usual door. */
void proxy_ask(const char *request, size_t n, struct mg_buf *answer);
/* A tunnel through the usual door to host:port; nothing behind the proxy's answer is read. */
int proxy_tunnel(const char *to);

/* The lines of the log that hold part. */
int proxy_log_count(const char *part);
void proxy_log_forget(void);

#endif
