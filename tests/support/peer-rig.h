/* The host's network services as the plugin tests/abi/network.c is given them, and a real peer for them (net-peer.py)
 * that behaves well or badly. One per test program. */
#ifndef MG_TESTS_PEER_RIG_H
#define MG_TESTS_PEER_RIG_H

#include "base/buf.h"
#include "base/cancel.h"
#include "plugin/net.h"
#include "plugin/plugin.h"
#include "plugin/registry.h"
#include "support/plugin-build.h"

enum {
    PEER_SECOND_NS = 1000000000,
    PEER_PATIENCE_S = 20, /* for what must end by itself */
    PEER_PEM_MAX = 64 * 1024,
};

extern char peer_sock[PLUGIN_PATH_MAX + 16]; /* the peer's unix socket */
extern int peer_port_tcp, peer_port_tls, peer_port_proxy, peer_port_socks;
extern struct mg_registry *peer_registry;
extern struct mg_plugin *peer_plugin;
extern const struct mango_host *peer_host; /* of the plugin */

/* For cmocka: the group builds the plugin and starts the peer. */
int peer_group_up(void **state);
int peer_group_down(void **state);

static inline struct mango_sv z(const char *s)
{
    return (struct mango_sv){s, strlen(s)};
}

/* scheme://localhost:port/path in out. */
struct mango_sv peer_url(char out[128], const char *scheme, int port, const char *path);

/* What the answer said. */
struct peer_answer {
    struct mg_buf body, headers;
    struct mango_http_res res;
    uint64_t got;       /* bytes that came to the sink */
    uint64_t enough_at; /* the sink has enough then; 0: never */
    struct mg_err err;
};

/* An answer that is freed at the end of the block. */
#define ANSWER(name)                                                       \
    __attribute__((cleanup(peer_answer_cleanup))) struct peer_answer name; \
    peer_answer_init(&(name))
void peer_answer_init(struct peer_answer *a);
void peer_answer_cleanup(struct peer_answer *a);
/* The body goes to a sink, with the answer as its ctx, instead of a->body. */
void peer_sink_to(struct peer_answer *a, mango_sink_fn *sink);
/* A sink that counts in a->got until a->enough_at. */
int32_t peer_count_sink(void *ctx, int32_t stream, const char *p, uint64_t n);

/* http_call with PEER_PATIENCE_S. */
mango_status peer_call(struct mango_http_req req, struct peer_answer *a);
mango_status peer_call_for(struct mango_http_req req, struct peer_answer *a, uint64_t deadline_ns,
                           struct mg_cancel *cancel);
mango_status peer_open_conn(struct mango_http_req req, struct peer_answer *a, mango_conn *ret);

/* A number of the peer's /facts, or 0; and the assertion that /facts hold a text. */
long peer_fact(const char *name);
void peer_fact_is(const char *text);

/* A PEM file of the peer: ca.pem, client.pem, client.key. Freed with free. */
struct peer_pem {
    char s[PEER_PEM_MAX];
    struct mango_sv sv;
};
struct peer_pem *peer_pem(const char *name);

#endif
