/* The head of an HTTP/1 request: a pure, strict parser over the received bytes.
 *
 * Strict where request smuggling begins: CRLF line ends, no folded lines, no space before a colon, one Content-Length,
 * never both Content-Length and Transfer-Encoding, one Host. */
#ifndef MG_HTTP_HEAD_H
#define MG_HTTP_HEAD_H

#include "base/err.h"
#include "base/sv.h"
#include "http/http.h"

struct mg_head {
    enum mg_http_method method;
    struct mg_sv path, query; /* as sent; query without the question mark */
    bool http10, keep_alive, expect_continue, chunked, has_length, upgrade_websocket;
    uint64_t length; /* Content-Length */
    int n;
    struct mg_http_pair line[MG_HTTP_HEADERS_COUNT_MAX]; /* views of the input */
};

enum mg_head_result { MG_HEAD_MORE, MG_HEAD_DONE, MG_HEAD_BAD };

/* in: everything received since the last request. *scanned: 0 for a new request; bytes that are known to hold no end
 * of the head (makes byte-wise arrival linear). MG_HEAD_DONE: *ret_used bytes were the head. MG_HEAD_BAD: err has the
 * text, *ret_status the answer; the connection cannot be used any more. */
enum mg_head_result mg_head_parse(struct mg_sv in, size_t *scanned, struct mg_head *h, size_t *ret_used,
                                  int *ret_status, struct mg_err *err);
/* The first line with this name, or an empty view with ptr NULL. */
struct mg_sv mg_head_get(const struct mg_head *h, const char *name);
/* True when the comma-separated list holds token (case-insensitive). */
bool mg_head_has_token(struct mg_sv list, const char *token);

#endif
