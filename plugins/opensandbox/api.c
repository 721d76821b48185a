#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/when.h"
#include "opensandbox/opensandbox.h"

/* Calls to the lifecycle API. */

int64_t service_now_us(struct osb *o)
{
    return when_now_us() + atomic_load(&o->clock_us);
}

mango_status api_call(struct osb *o, const struct mango_call *call, const char *method, const char *path,
                      const struct text *body, uint32_t flags, const char *what, struct api_res *ret)
{
    struct mango_http_header headers[2];
    text_auto struct text url = {0};
    *ret = (struct api_res){0};
    text_printf(&url, "%s%s", o->base, path);
    if (url.bad || (body && body->bad))
        return fail(o->remote.host, call, MANGO_EINTERNAL, "cannot put together a request to OpenSandbox");
    struct remote_req req = {.method = method,
                             .url = url.ptr,
                             .what = what,
                             .flags = flags,
                             .headers = headers,
                             .body = body ? text_view(body) : no_text(),
                             .on_header = when_on_header,
                             .header_ctx = &o->clock_us};
    remote_header(headers, &req.n_headers, "OPEN-SANDBOX-API-KEY", o->key);
    remote_header(headers, &req.n_headers, "Accept", "application/json");
    mango_status s = remote_call(&o->remote, call, &req, &ret->http);
    ret->body = s == MANGO_OK ? remote_body(&o->remote, &ret->http) : no_text();
    return s;
}

void api_free(struct osb *o, struct api_res *r)
{
    remote_free(&o->remote, &r->http);
    r->body = no_text();
}

/* A 404 of a proxy, of another path or of a service that starts is no answer to the question. */
bool api_gone(const struct api_res *r)
{
    char code[64];
    return r->http.status == 404 && json_copy(r->body, "code", code, sizeof(code)) && strstr(code, "NOT_FOUND");
}

mango_status api_fail(struct osb *o, const struct mango_call *call, const struct api_res *r, const char *what,
                      mango_status not_found)
{
    const struct remote_req req = {.what = what};
    return remote_fail(&o->remote, call, &req, &r->http, api_gone(r) ? not_found : MANGO_ERETRY);
}
