/* Result codes and error details.
 *
 * Every function that can fail returns mg_rc: 0 or a negative code. The text is made once, where the error arises, and
 * wrapped with context on the way up; it is logged once, where it stops. Texts may reach a client: they never hold
 * a secret, SQL, or a path of the server. */
#ifndef MG_BASE_ERR_H
#define MG_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MG_MUSTCHECK __attribute__((warn_unused_result))

typedef int mg_rc;

enum {
    MG_OK = 0,
    MG_EINVAL = -1,       /* 400 invalid_request_error */
    MG_EAUTH = -2,        /* 401 authentication_error */
    MG_EDENIED = -3,      /* 403 permission_error */
    MG_ENOTFOUND = -4,    /* 404 not_found_error */
    MG_ECONFLICT = -5,    /* 409 conflict_error; deterministic, answered with x-should-retry: false */
    MG_EPRECOND = -6,     /* 412 */
    MG_ETOOBIG = -7,      /* 413 request_too_large */
    MG_ERATE = -8,        /* 429 rate_limit_error */
    MG_EUNAVAIL = -9,     /* 503 api_error: a dependency is down; retry later */
    MG_ETIMEOUT = -10,    /* 504 timeout_error */
    MG_EINTERNAL = -11,   /* 500 api_error */
    MG_ECANCELED = -12,   /* the caller's mg_cancel fired */
    MG_EFENCED = -13,     /* the lease or epoch of this writer is no longer the current one */
    MG_EGONE = -14,       /* a bound sandbox or workspace no longer exists */
    MG_EIO = -15,         /* operating system or connection failure */
    MG_ECONFIG = -16,     /* configuration or installation; startup stops with 78 */
    MG_EMETHOD = -17,     /* 405 */
    MG_EMEDIA = -18,      /* 415 */
    MG_EURITOOLONG = -19, /* 414 */
    MG_EHEADERS = -20,    /* 431 */
};

enum { MG_ERR_TEXT_MAX = 1024 /* bytes with the NUL; longer texts are cut at a character */ };

struct mg_err {
    mg_rc rc;
    char code[64];          /* error.details.error_code of the API, or "" */
    char details[320];      /* further members of error.details, JSON text of ours without braces, or "" */
    const char *type;       /* error.type of the API instead of the status's own; a literal, or NULL */
    const char *members;    /* further members of error, JSON text without braces, in the request's arena, or NULL */
    uint32_t retry_after_s; /* 0: none */
    char text[MG_ERR_TEXT_MAX];
};

/* Fill err (may be NULL) and return rc, so that `return mg_err_set(err, MG_EINVAL, "...")` reads well. */
mg_rc mg_err_set(struct mg_err *err, mg_rc rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with an error_code. */
mg_rc mg_err_code(struct mg_err *err, mg_rc rc, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Puts "context: " before the text that is there. rc is returned as it came. */
mg_rc mg_err_wrap(struct mg_err *err, mg_rc rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* From errno: MG_EIO (MG_ENOTFOUND for ENOENT) with strerror. */
mg_rc mg_err_errno(struct mg_err *err, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

const char *mg_rc_name(mg_rc rc); /* "MG_EINVAL"; for logs */

#endif
