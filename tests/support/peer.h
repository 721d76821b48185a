/* A scripted HTTP peer: answers each request by the first rule that matches and has answers left, and records what came. One thread for each
 * connection.
 *
 * A rule: method and the beginning of the path ("GET /v1/x"), and the answers in order; the last one is repeated. An answer is the bytes of
 * an HTTP answer behind the status line's "HTTP/1.1 ": "200 OK\r\n...". peer_json makes one. Special answers: PEER_CUT closes the
 * connection without a byte, PEER_HANG never answers. */
#ifndef TESTS_SUPPORT_PEER_H
#define TESTS_SUPPORT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_CUT "cut"
#define PEER_HANG "hang"

struct peer;

struct peer *peer_start(void);
void peer_stop(struct peer *p);
const char *peer_url(const struct peer *p); /* http://127.0.0.1:PORT */
/* Adds one answer to the rule of match. Copied. */
void peer_answer(struct peer *p, const char *match, const char *answer);
/* The same with status, JSON type and content length. headers: further lines "a: b\r\n", or "". */
void peer_json(struct peer *p, const char *match, int status, const char *headers, const char *body);
/* An event stream: the pieces are sent one after the other, "" waits for peer_go; behind the last the stream ends, unless it is PEER_HANG.
 * NULL-terminated. */
void peer_stream(struct peer *p, const char *match, const char *const *pieces);
void peer_go(struct peer *p); /* lets one waiting stream go on */

/* Requests that came, in order: "METHOD PATH". NULL: fewer came. Valid until peer_stop. */
const char *peer_request(struct peer *p, int i);
const char *peer_head(struct peer *p, int i); /* with all its headers */
const char *peer_body(struct peer *p, int i);
int peer_count(struct peer *p, const char *match);
/* Waits until n requests match; fails the test after 20 s. Returns the index of the n-th. */
int peer_wait(struct peer *p, const char *match, int n);

#endif
