/* A real HTTP server with test routes over an event log in memory, and a client that speaks raw bytes to it. */
#ifndef MG_TESTS_HTTP_RIG_H
#define MG_TESTS_HTTP_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sv.h"
#include "http/http.h"

enum { RIG_WAIT_S = 20 /* a test that waits longer for a byte fails */ };

struct rig;

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

struct client {
    int fd;
    char *buf; /* received and not yet taken; NUL behind */
    size_t len, cap;
    bool eof;
};

struct answer {
    int status;
    char head[8192]; /* with the status line */
    char *body;      /* malloc memory, NUL behind; chunks joined */
    size_t len;
};

struct client *client_open(const struct rig *r);
void client_close(struct client *c);
void client_send(struct client *c, const char *bytes, size_t n);
void client_say(struct client *c, const char *text);
void client_drip(struct client *c, const char *text); /* one byte a segment */
/* Reads one answer; fails the test when it does not come. */
struct answer *client_answer(struct client *c);
void answer_free(struct answer *a);
/* Reads until text has come; the bytes up to its end are taken. Returns them (valid until the next call). */
const char *client_until(struct client *c, const char *text);
bool client_ended(struct client *c); /* waits for the end of the connection; false: bytes came */
const char *answer_header(const struct answer *a, const char *name); /* value or NULL; a static buffer */

/* WebSocket client */
struct client *ws_open(struct rig *r, const char *path, const char *headers);
void ws_send_frame(struct client *c, int first_byte, const char *content, size_t n);
void ws_text(struct client *c, const char *text);
/* The next frame's content (NUL-terminated, valid until the next call); *ret_opcode its opcode. Pings are answered and
 * skipped unless want_pings. */
const char *ws_frame(struct client *c, int *ret_opcode, size_t *ret_len, bool want_pings);
const char *ws_expect_text(struct client *c);
int ws_expect_close(struct client *c); /* its code */

#endif
