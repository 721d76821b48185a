#include "http/response.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "json/write.h"

enum { ERROR_BODY_MAX = 16 * 1024 /* bytes: a message of MG_ERR_TEXT_MAX, every byte of it escaped */ };

static const struct {
    mg_rc rc;
    int status;
} statuses[] = {
    {MG_EINVAL, 400},    {MG_EAUTH, 401},     {MG_EDENIED, 403}, {MG_ENOTFOUND, 404},   {MG_ECONFLICT, 409},
    {MG_EPRECOND, 412},  {MG_ETOOBIG, 413},   {MG_ERATE, 429},   {MG_EUNAVAIL, 503},    {MG_ETIMEOUT, 504},
    {MG_EINTERNAL, 500}, {MG_ECANCELED, 499}, {MG_EFENCED, 503}, {MG_EGONE, 500},       {MG_EIO, 500},
    {MG_ECONFIG, 500},   {MG_EMETHOD, 405},   {MG_EMEDIA, 415},  {MG_EURITOOLONG, 414}, {MG_EHEADERS, 431},
};

static const struct {
    int status;
    const char *reason;
    const char *type; /* error.type; NULL: no error */
} answers[] = {
    {101, "Switching Protocols", NULL},
    {200, "OK", NULL},
    {201, "Created", NULL},
    {202, "Accepted", NULL},
    {204, "No Content", NULL},
    {301, "Moved Permanently", NULL},
    {302, "Found", NULL},
    {304, "Not Modified", NULL},
    {400, "Bad Request", "invalid_request_error"},
    {401, "Unauthorized", "authentication_error"},
    {402, "Payment Required", "billing_error"},
    {403, "Forbidden", "permission_error"},
    {404, "Not Found", "not_found_error"},
    {405, "Method Not Allowed", "invalid_request_error"},
    {408, "Request Timeout", "timeout_error"},
    {409, "Conflict", "conflict_error"},
    {412, "Precondition Failed", "invalid_request_error"},
    {413, "Content Too Large", "request_too_large"},
    {414, "URI Too Long", "invalid_request_error"},
    {415, "Unsupported Media Type", "invalid_request_error"},
    {417, "Expectation Failed", "invalid_request_error"},
    {422, "Unprocessable Content", "invalid_request_error"},
    {426, "Upgrade Required", "invalid_request_error"},
    {429, "Too Many Requests", "rate_limit_error"},
    {431, "Request Header Fields Too Large", "invalid_request_error"},
    {499, "Client Closed Request", "api_error"},
    {500, "Internal Server Error", "api_error"},
    {501, "Not Implemented", "api_error"},
    {503, "Service Unavailable", "api_error"},
    {504, "Gateway Timeout", "timeout_error"},
    {505, "HTTP Version Not Supported", "invalid_request_error"},
    {529, "Overloaded", "overloaded_error"},
};

int mg_http_status(mg_rc rc)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].rc == rc)
            return statuses[i].status;
    return rc < 0 ? 500 : 200;
}

const char *mg_http_error_type(int status)
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (answers[i].status == status && answers[i].type)
            return answers[i].type;
    return status < 500 ? "invalid_request_error" : "api_error";
}

static const char *reason(int status)
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (answers[i].status == status)
            return answers[i].reason;
    return "Unknown";
}

/* The date header's text, made once a second by each thread. */
static const char *http_date(void)
{
    static _Thread_local time_t made;
    static _Thread_local char text[40];
    time_t now = time(NULL);
    if (now != made) {
        struct tm tm;
        made = now;
        (void)gmtime_r(&now, &tm);
        (void)strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    }
    return text;
}

void mg_response_begin(struct mg_buf *out, const struct mg_response_head *h)
{
    (void)mg_buf_printf(out, "HTTP/1.1 %d %s\r\ndate: %s\r\nrequest-id: %s\r\n", h->status, reason(h->status),
                        http_date(), h->request_id->s);
    if (h->status == 101)
        return;
    if (!h->keep_alive)
        (void)mg_buf_str(out, "connection: close\r\n");
    else if (h->http10)
        (void)mg_buf_str(out, "connection: keep-alive\r\n");
}

static bool has_extra(const struct mg_http_res *res, const char *name)
{
    for (int i = 0; i < res->n_extra; i++)
        if (mg_sv_eq_nocase(res->extra[i].name, mg_sv_of(name)))
            return true;
    return false;
}

void mg_response_write_head(struct mg_buf *out, const struct mg_response_head *h, const struct mg_http_res *res,
                            uint64_t length)
{
    mg_response_begin(out, h);
    if (h->status != 204 && h->status != 304)
        (void)mg_buf_printf(out, "content-type: %s\r\ncontent-length: %" PRIu64 "\r\n",
                            res->content_type ? res->content_type : "application/json", length);
    if (!has_extra(res, "cache-control"))
        (void)mg_buf_str(out, "cache-control: no-store\r\n");
    if (res->should_not_retry)
        (void)mg_buf_str(out, "x-should-retry: false\r\n");
    if (res->retry_after_s)
        (void)mg_buf_printf(out, "retry-after: %u\r\n", res->retry_after_s);
    for (int i = 0; i < res->n_extra; i++)
        (void)mg_buf_printf(out, "%.*s: %.*s\r\n", MG_SV_ARG(res->extra[i].name), MG_SV_ARG(res->extra[i].value));
    (void)mg_buf_str(out, "\r\n");
}

void mg_response_write(struct mg_buf *out, const struct mg_response_head *h, const struct mg_http_res *res,
                       struct mg_sv body)
{
    mg_response_write_head(out, h, res, body.len);
    if (!h->no_body && h->status != 204 && h->status != 304)
        (void)mg_buf_sv(out, body);
}

void mg_error_value(struct mg_jw *w, int status, const struct mg_err *err)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", err->type ? err->type : mg_http_error_type(status));
    mg_jw_kstrz(w, "message", err->text);
    if (err->members)
        (void)mg_buf_printf(w->out, ",%s", err->members);
    if (err->code[0]) {
        mg_jw_key(w, "details");
        mg_jw_obj(w);
        mg_jw_kstrz(w, "error_code", err->code);
        if (err->details[0])
            (void)mg_buf_printf(w->out, ",%s", err->details);
        mg_jw_obj_end(w);
    }
    mg_jw_obj_end(w);
}

void mg_error_object(struct mg_buf *out, int status, const struct mg_err *err, const struct mg_id *request_id)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "error");
    mg_jw_key(&w, "error");
    mg_error_value(&w, status, err);
    mg_jw_kstrz(&w, "request_id", request_id ? request_id->s : NULL);
    mg_jw_obj_end(&w);
}

void mg_response_error(struct mg_buf *out, const struct mg_response_head *h, const struct mg_err *err,
                       const char *allow)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(ERROR_BODY_MAX);
    struct mg_http_res res = {
        .should_not_retry = err->rc == MG_ECONFLICT || err->rc == MG_EINVAL,
        .retry_after_s = err->retry_after_s,
    };
    if (allow && allow[0])
        res.extra[res.n_extra++] = (struct mg_http_pair){MG_SV("allow"), mg_sv_of(allow)};
    if (h->status == 401)
        res.extra[res.n_extra++] = (struct mg_http_pair){MG_SV("www-authenticate"), MG_SV("Bearer")};
    if (h->status == 426)
        res.extra[res.n_extra++] = (struct mg_http_pair){MG_SV("upgrade"), MG_SV("websocket")};
    mg_error_object(&body, h->status, err, h->request_id);
    mg_response_write(out, h, &res, mg_buf_view(&body));
}
