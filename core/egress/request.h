/* What a sandbox says to the proxy: an HTTP proxy request, a SOCKS5 hello and request, and the first bytes inside of a
 * tunnel. Pure parsers over the bytes that came so far; also for the fuzzer.
 *
 * Each returns MG_OK (*ret_used bytes belong to it), MG_EUNAVAIL (more bytes are needed) or MG_EINVAL. */
#ifndef MG_EGRESS_REQUEST_H
#define MG_EGRESS_REQUEST_H

#include "base/buf.h"
#include "base/err.h"
#include "egress/policy.h"

enum {
    MG_EGRESS_HEAD_MAX = 32 * 1024, /* bytes of a request's head, and of a ClientHello */
    MG_EGRESS_HEADERS_MAX = 200,    /* lines of a head, without the first: twice what servers take by default */
    MG_EGRESS_USER_MAX = 65,        /* bytes of a user name or password with the NUL: ours have 32 */
};

struct mg_egress_target {
    char host[MG_EGRESS_HOST_MAX]; /* normalised */
    int port;
};

/* ---- HTTP ---- */

struct mg_egress_http {
    struct mg_egress_target target;
    bool tunnel;          /* CONNECT */
    struct mg_sv method;  /* views into the input */
    struct mg_sv path;    /* of an absolute-form or origin-form request: "/path?query", never empty */
    struct mg_sv headers; /* header lines, without the request line and the empty line */
    char user[MG_EGRESS_USER_MAX], password[MG_EGRESS_USER_MAX]; /* of Proxy-Authorization: Basic, or "" */
    bool chunked;
    uint64_t length; /* of the body; 0 when chunked */
    size_t used;
};

/* A request to a proxy: CONNECT host:port, or METHOD http://host/path. */
mg_rc mg_egress_http_parse(struct mg_sv in, struct mg_egress_http *ret);
/* A request inside of a tunnel to host and port 80: METHOD /path with a Host that is the tunnel's. */
mg_rc mg_egress_origin_parse(struct mg_sv in, const struct mg_egress_target *tunnel, struct mg_egress_http *ret);
/* The head as the origin shall see it: origin-form, Host from the target, no hop-by-hop headers, Connection: close.
 * extra: header lines ("Name: value\r\n") that replace the client's of the same names. */
void mg_egress_http_write(const struct mg_egress_http *h, struct mg_sv extra, struct mg_buf *out);

/* ---- SOCKS5 ---- */

struct mg_egress_hello {
    bool plain, password; /* methods that the client offers */
    size_t used;
};
mg_rc mg_egress_socks_hello(struct mg_sv in, struct mg_egress_hello *ret);
mg_rc mg_egress_socks_password(struct mg_sv in, char user[MG_EGRESS_USER_MAX], char password[MG_EGRESS_USER_MAX],
                               size_t *ret_used);
/* *ret_command: 1 is CONNECT, the only one that is served. */
mg_rc mg_egress_socks_request(struct mg_sv in, struct mg_egress_target *ret, int *ret_command, size_t *ret_used);

/* ---- TLS ---- */

/* Whether it can begin a TLS handshake, judged by as much as is there (at least one byte). */
bool mg_egress_tls_begins(struct mg_sv in);
/* The server name of a ClientHello, normalised; "" when it names none. */
mg_rc mg_egress_tls_name(struct mg_sv in, char name[MG_EGRESS_HOST_MAX]);

#endif
