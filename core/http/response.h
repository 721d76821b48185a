/* Turns what a handler left behind into the bytes of an HTTP/1 answer. Pure; any thread. */
#ifndef MG_HTTP_RESPONSE_H
#define MG_HTTP_RESPONSE_H

#include "base/buf.h"
#include "http/http.h"

struct mg_response_head {
    int status;
    const struct mg_id *request_id;
    bool keep_alive; /* else `connection: close` */
    bool http10;
    bool no_body; /* HEAD: the length is told, the bytes are not sent */
};

/* Appends the answer. body is used as it is. */
void mg_response_write(struct mg_buf *out, const struct mg_response_head *h, const struct mg_http_res *res,
                       struct mg_sv body);
/* Status line and headers of a body of length bytes, which follows by other ways. */
void mg_response_write_head(struct mg_buf *out, const struct mg_response_head *h, const struct mg_http_res *res,
                            uint64_t length);
/* The same for an error: the error object, x-should-retry, retry-after. allow may be NULL. */
void mg_response_error(struct mg_buf *out, const struct mg_response_head *h, const struct mg_err *err,
                       const char *allow);
/* The error object alone: `{"type":"error","error":{...},"request_id":...}`. request_id may be NULL. */
void mg_error_object(struct mg_buf *out, int status, const struct mg_err *err, const struct mg_id *request_id);
struct mg_jw;
/* Its inner object alone: {"type":...,"message":...}. */
void mg_error_value(struct mg_jw *w, int status, const struct mg_err *err);
/* `status line` and the headers that every answer has, without the empty line. */
void mg_response_begin(struct mg_buf *out, const struct mg_response_head *h);

#endif
