#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/when.h"
#include "daytona/daytona.h"

/* Calls to the API. */

/* The toolbox chooses shapes of answers by the version of the client. */
#define CLIENT_VERSION "0.218.0"

uint64_t api_headers(const struct daytona *d, struct mango_http_header *list)
{
    uint64_t n = 0;
    remote_header(list, &n, "Authorization", d->bearer);
    remote_header(list, &n, "X-Daytona-Organization-ID", d->organization);
    remote_header(list, &n, "X-Daytona-Source", "mango");
    remote_header(list, &n, "X-Daytona-SDK-Version", CLIENT_VERSION);
    return n;
}

mango_status api_call(struct daytona *d, const struct mango_call *call, const char *method, const char *path,
                      const struct text *body, uint32_t flags, const char *what, struct api_res *ret)
{
    struct mango_http_header headers[REMOTE_HEADERS_MAX];
    text_auto struct text url = {0};
    *ret = (struct api_res){0};
    text_printf(&url, "%s%s", d->base, path);
    if (url.bad || (body && body->bad))
        return fail(d->remote.host, call, MANGO_EINTERNAL, "cannot put together a request to Daytona");
    struct remote_req req = {.method = method,
                             .url = url.ptr,
                             .what = what,
                             .flags = flags,
                             .headers = headers,
                             .n_headers = api_headers(d, headers),
                             .body = body ? text_view(body) : no_text(),
                             .on_header = when_on_header,
                             .header_ctx = &d->clock_us};
    mango_status s = remote_call(&d->remote, call, &req, &ret->http);
    ret->body = s == MANGO_OK ? remote_body(&d->remote, &ret->http) : no_text();
    return s;
}

void api_free(struct daytona *d, struct api_res *r)
{
    remote_free(&d->remote, &r->http);
    r->body = no_text();
}

/* The API's own 404 names the sandbox that was asked for; that of a missing route, "Cannot GET /...", does not. */
bool api_gone(const struct api_res *r)
{
    int64_t status;
    char message[200] = "";
    (void)json_copy(r->body, "message", message, sizeof(message));
    return r->http.status == 404 && json_int(r->body, "statusCode", &status) && status == 404 &&
           strncmp(message, "Cannot ", 7) != 0;
}

mango_status api_fail(struct daytona *d, const struct mango_call *call, const struct api_res *r, const char *what,
                      mango_status not_found)
{
    const struct remote_req req = {.what = what};
    return remote_fail(&d->remote, call, &req, &r->http, api_gone(r) ? not_found : MANGO_ERETRY);
}
