/* Shared by the files of this folder only.
 *
 * Concurrency: lock guards everything in struct mg_egress. The thread holds it while it works on the events of one
 * epoll_wait, which never blocks, and lets go of it to wait. What is freed meanwhile goes to the graveyard first: an
 * event that was already fetched may still name it. */
#ifndef MG_EGRESS_INTERNAL_H
#define MG_EGRESS_INTERNAL_H

#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "crypto/hash.h"
#include "egress/proxy.h"
#include "egress/request.h"
#include "net/upgrade.h"

enum { MG_EGRESS_ADDRS = MG_RESOLVE_ADDRS_MAX };

/* Why something was refused: the metric's label, the log's field. */
enum mg_egress_reason {
    MG_EGRESS_R_HOST,     /* not in the list */
    MG_EGRESS_R_PORT,     /* the host is, with other ports */
    MG_EGRESS_R_ADDRESS,  /* the name leads to no address that may be reached */
    MG_EGRESS_R_RESOLVE,  /* the name does not resolve */
    MG_EGRESS_R_CONNECT,  /* nobody answers there */
    MG_EGRESS_R_NAME,     /* the tunnel's TLS or HTTP is for another name */
    MG_EGRESS_R_PROTOCOL, /* neither HTTP nor SOCKS5 nor what the tunnel may carry */
    MG_EGRESS_R_AUTH,     /* no credential of a door */
    MG_EGRESS_R_LIMIT,    /* too many connections */
    MG_EGRESS_R_COUNT,
};

/* What an event's pointer leads to; the first member of each. */
enum mg_egress_kind { MG_EGRESS_WAKE, MG_EGRESS_LISTENER, MG_EGRESS_CLIENT, MG_EGRESS_UPSTREAM };

struct mg_egress_handle {
    enum mg_egress_kind kind;
    int fd;
    uint32_t events; /* registered with epoll */
    struct mg_egress_conn *conn;
    struct mg_egress_listener *listener;
};

struct mg_egress_listener {
    struct mg_egress_handle handle;
    struct mg_list link;
    struct mg_egress_door *door; /* of a unix socket; NULL: TCP, a credential tells */
    char address[128];           /* of TCP, as it was asked for */
    int port;
    unsigned refs; /* doors */
    bool dead;
};

struct mg_egress_door {
    char label[MG_EGRESS_LABEL_MAX], token[MG_EGRESS_LABEL_MAX];
    char *session;
    struct mg_egress_policy *policy;
    struct mg_egress_listener *unix_listener, *tcp_listener;
    struct mg_list conns;
    unsigned n_conns;
    uint64_t bytes_out, bytes_in, refused, allowed;
    uint64_t say_ns, unsaid; /* the log's bucket: see audit.c */
    unsigned say_left;
};

/* How far a connection is. */
enum mg_egress_state {
    MG_EGRESS_ASKING,     /* the request comes */
    MG_EGRESS_SOCKS_AUTH, /* SOCKS5: name and password come */
    MG_EGRESS_SOCKS_ASK,  /* SOCKS5: the request comes */
    MG_EGRESS_LOOKING,    /* the name is being resolved */
    MG_EGRESS_DIALING,
    MG_EGRESS_RELAYING,
    MG_EGRESS_ENDING, /* a refusal is on its way out */
};

/* What the client's first bytes in a tunnel must be before any goes on. */
enum mg_egress_gate {
    MG_EGRESS_OPEN,
    MG_EGRESS_MAY_BE_TLS, /* the port is listed: any protocol, but TLS must be for this name */
    MG_EGRESS_MUST_TLS,
    MG_EGRESS_WEB_80, /* TLS or HTTP, for this name */
};

/* One direction. */
struct mg_egress_pipe {
    struct mg_buf held; /* taken from the one, not yet by the other */
    bool ended;         /* the one has no more */
    bool passed_on;     /* and the other was told */
};

struct mg_egress_conn {
    struct mg_list link, all; /* link: of the door, or of the waiting; all: of the proxy */
    struct mg_egress *e;
    struct mg_egress_door *door; /* NULL: no credential yet */
    struct mg_egress_handle client, upstream;
    enum mg_egress_state state;
    enum mg_egress_gate gate;
    bool socks, dead, replied;
    struct mg_egress_target target;
    struct mg_buf in; /* of the client: request, then what the gate holds back */
    struct mg_egress_pipe out, back;
    /* A plain HTTP request: its head, and how much of its body still belongs to it. */
    bool http;
    bool chunked;
    uint64_t body_left;
    struct mg_chunks chunks;
    struct mg_buf head;
    struct sockaddr_storage addrs[MG_EGRESS_ADDRS];
    int n_addrs, at_addr;
    uint64_t until_ns; /* monotonic */
};

struct mg_egress {
    struct mg_egress_opts opts;
    char *state_dir;
    int dir_fd; /* STATE/egress; -1 until it is needed */
    uint8_t key[32];
    bool have_key;
    pthread_t thread;
    pthread_mutex_t lock;
    int epoll_fd;
    struct mg_egress_handle wake;
    struct mg_resolver *resolver;
    bool closing;
    bool resting;         /* listeners wait for descriptors */
    struct mg_map *doors; /* label -> struct mg_egress_door */
    struct mg_list listeners, conns, waiting, graveyard, dead_listeners;
    unsigned n_waiting, n_conns;
    uint64_t total, bytes_out, bytes_in, refused[MG_EGRESS_R_COUNT];
};

/* files.c: the sockets' folders and the key */
mg_rc mg_egress_socket_make(struct mg_egress *e, const char *label, int *ret_fd, struct mg_buf *ret_dir,
                            struct mg_err *err) MG_MUSTCHECK;
void mg_egress_socket_remove(struct mg_egress *e, const char *label);
mg_rc mg_egress_token(struct mg_egress *e, const char *label, char out[MG_EGRESS_LABEL_MAX],
                      struct mg_err *err) MG_MUSTCHECK;

/* client.c: with the lock held */
void mg_egress_accept(struct mg_egress *e, struct mg_egress_listener *l);
void mg_egress_conn_event(struct mg_egress_conn *c, struct mg_egress_handle *h, uint32_t events);
void mg_egress_conn_kill(struct mg_egress_conn *c); /* to the graveyard */
void mg_egress_conn_free(struct mg_egress_conn *c);
/* Adds to c->in what the client says. False: nothing came, or it is gone, or it said too much and is refused. */
bool mg_egress_conn_fill(struct mg_egress_conn *c);
void mg_egress_conn_expire(struct mg_egress_conn *c, uint64_t now_ns);
void mg_egress_conn_refuse(struct mg_egress_conn *c, enum mg_egress_reason why);
void mg_egress_conn_watch(struct mg_egress_conn *c);              /* sets what epoll waits for */
void mg_egress_conn_after(struct mg_egress_conn *c, uint64_t ms); /* new deadline */

/* dial.c */
void mg_egress_dial(struct mg_egress_conn *c);   /* the request is known and allowed */
void mg_egress_look(struct mg_egress_conn *c);   /* again, when a lookup ended */
void mg_egress_dialed(struct mg_egress_conn *c); /* the socket became writable */

/* relay.c */
void mg_egress_relay_begin(struct mg_egress_conn *c);
void mg_egress_relay(struct mg_egress_conn *c, struct mg_egress_handle *h, uint32_t events);

/* audit.c */
void mg_egress_audit(struct mg_egress_conn *c, enum mg_egress_reason why);
void mg_egress_door_farewell(const struct mg_egress_door *d);

/* door.c */
void mg_egress_listener_drop(struct mg_egress *e, struct mg_egress_listener *l);
struct mg_egress_door *mg_egress_door_find(struct mg_egress *e, const char *label, const char *token);

/* loop.c */
void mg_egress_watch(struct mg_egress *e, struct mg_egress_handle *h, uint32_t events); /* 0: none */
void *mg_egress_run(void *arg);

#endif
