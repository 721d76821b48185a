/* The least server on libwebsockets' libev loop: what the library itself costs in memory. The reference of rows 9 and 22.
 *
 *   lwsfan       prints "port N"; any GET is a stream of events that stays open; ends with SIGTERM */
#include <libwebsockets.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/client.h"

struct session {
    bool head_sent;
};

static int on_http(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct session *s = user;
    unsigned char buf[LWS_PRE + 512], *start = buf + LWS_PRE, *p = start, *end = buf + sizeof(buf) - 1;
    if (reason != LWS_CALLBACK_HTTP)
        return lws_callback_http_dummy(wsi, reason, user, in, len);
    if (lws_add_http_common_headers(wsi, 200, "text/event-stream", LWS_ILLEGAL_HTTP_CONTENT_LEN, &p, end) ||
        lws_finalize_write_http_header(wsi, start, &p, end))
        return 1;
    s->head_sent = true;
    lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    return 0;
}

static const struct lws_protocols protocols[] = {
    {.name = "http", .callback = on_http, .per_session_data_size = sizeof(struct session)},
    {.name = NULL},
};

int main(void)
{
    struct rlimit r = {0};
    (void)getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max < 16384 ? r.rlim_max : 16384;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    lws_set_log_level(LLL_ERR, NULL);
    struct lws_context_creation_info info = {
        .iface = "lo",
        .protocols = protocols,
        .options = LWS_SERVER_OPTION_LIBEV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .keepalive_timeout = 3600,
    };
    struct lws_context *context = lws_create_context(&info);
    struct lws_vhost *vhost = context ? lws_create_vhost(context, &info) : NULL;
    if (!vhost)
        die("libwebsockets cannot start on its libev loop (Debian: libwebsockets-evlib-ev)");
    (void)printf("port %d\n", lws_get_vhost_listen_port(vhost));
    (void)fflush(stdout);
    while (lws_service(context, 0) >= 0)
        ;
    lws_context_destroy(context);
    return 0;
}
