/* Percent decoding, path segments and query strings. Pure. */
#ifndef MG_HTTP_QUERY_H
#define MG_HTTP_QUERY_H

#include "base/arena.h"
#include "base/err.h"
#include "http/http.h"

enum { MG_QUERY_MAX = 256 /* parameters of a request: bounds memory and the check against the route */ };

/* Fills req->seg, n_seg from path. More than eight segments: n_seg = 9, which no route has. MG_EINVAL for a bad
 * escape, NUL, or bytes that are not UTF-8. */
mg_rc mg_path_parse(struct mg_arena *a, struct mg_sv path, struct mg_http_req *req, struct mg_err *err) MG_MUSTCHECK;
/* Fills req->query, n_query. `beta` is left out. */
mg_rc mg_query_parse(struct mg_arena *a, struct mg_sv query, struct mg_http_req *req, struct mg_err *err) MG_MUSTCHECK;
/* MG_EINVAL that lists the valid names when the request has one that allowed (NULL-terminated, may be NULL) does not
 * name. */
mg_rc mg_query_check(const struct mg_http_req *req, const char *const *allowed, struct mg_err *err) MG_MUSTCHECK;

#endif
