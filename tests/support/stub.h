/* A scripted HTTP peer: answers each request by the first rule that matches and has answers left, and records what came. One thread for each
 * connection.
 *
 * A rule: method and the beginning of the path ("GET /v1/x"), and the answers in order; the last one is repeated. An answer is the bytes of
 * an HTTP answer behind the status line's "HTTP/1.1 ": "200 OK\r\n...". stub_json makes one. Special answers: STUB_CUT closes the
 * connection without a byte, STUB_HANG never answers. */
#ifndef TESTS_SUPPORT_STUB_H
#define TESTS_SUPPORT_STUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STUB_CUT "cut"
#define STUB_HANG "hang"

struct stub;

struct stub *stub_start(void);
void stub_stop(struct stub *p);
const char *stub_url(const struct stub *p); /* http://127.0.0.1:PORT */
/* Adds one answer to the rule of match. Copied. */
void stub_answer(struct stub *p, const char *match, const char *answer);
/* The same with status, JSON type and content length. headers: further lines "a: b\r\n", or "". */
void stub_json(struct stub *p, const char *match, int status, const char *headers, const char *body);
/* An event stream: the pieces are sent one after the other, "" waits for stub_go; behind the last the stream ends, unless it is STUB_HANG.
 * NULL-terminated. */
void stub_stream(struct stub *p, const char *match, const char *const *pieces);
void stub_go(struct stub *p); /* lets one waiting stream go on */

/* Requests that came, in order: "METHOD PATH". NULL: fewer came. Valid until stub_stop. */
const char *stub_request(struct stub *p, int i);
const char *stub_head(struct stub *p, int i); /* with all its headers */
const char *stub_body(struct stub *p, int i);
int stub_count(struct stub *p, const char *match);
/* Waits until n requests match; fails the test after 20 s. Returns the index of the n-th. */
int stub_wait(struct stub *p, const char *match, int n);

#endif
