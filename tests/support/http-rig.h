/* A real HTTP server with test routes over an event log in memory. support/http-client.h speaks to it. */
#ifndef MG_TESTS_HTTP_RIG_H
#define MG_TESTS_HTTP_RIG_H

#include <stdint.h>

#include "http/http.h"

enum { RIG_WAIT_S = 20 /* a test that waits longer for a byte fails */ };

struct rig;

/* The server of the test that runs: a new one for each test of HTTP_TEST. */
extern struct rig *rig;
#define HTTP_TEST(f) cmocka_unit_test_setup_teardown(f, http_up, http_down)
int http_up(void **state);
int http_down(void **state);
/* Another server for the rest of the test. */
void http_restart(const struct mg_http_limits *limits);

/* limits: NULL for the defaults. Routes: see http-rig.c. Keys: "k1" and "k2" are valid, "?ticket=t" too. */
struct rig *rig_start(const struct mg_http_limits *limits);
/* The same with TLS. */
struct rig *rig_start_tls(const char *cert, const char *key);
void rig_stop(struct rig *r);
struct mg_http *rig_http(struct rig *r);
struct mg_hub *rig_hub(struct rig *r);
int rig_port(const struct rig *r);
/* Appends an event to the log of a session and publishes it; type and a JSON object. Returns its number; its id is
 * "sevt_SESSION_NUMBER". */
int64_t rig_event(struct rig *r, const char *session, const char *type, const char *json);
/* An event in the log that nobody is told of: another node wrote it. */
int64_t rig_event_quietly(struct rig *r, const char *session, const char *type, const char *json);
/* Lets go the handlers that wait at /hold. */
void rig_release(struct rig *r);
/* Blocks until n handlers wait at /hold. */
void rig_held(struct rig *r, int n);
/* Waits until the metrics hold the line, at most RIG_WAIT_S: the metric is the event that is waited for. */
void rig_wait_metric(struct rig *r, const char *line);
/* For pthread_create: drains the rig. */
void *rig_drain(void *r);

#endif
