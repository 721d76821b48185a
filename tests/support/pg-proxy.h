/* A unix-socket proxy in front of the test's PostgreSQL that can misbehave like a network. One thread. */
#ifndef TESTS_SUPPORT_PG_PROXY_H
#define TESTS_SUPPORT_PG_PROXY_H

enum pgproxy_mode {
    PGPROXY_PASS,
    PGPROXY_FREEZE, /* all packets vanish: nothing moves, nothing is closed */
    PGPROXY_CUT,    /* the server hears everything; when it answers, both ends are closed and the answer is lost */
};

struct pgproxy;

/* conninfo: of the real server, by unix socket (as pgtest gives it). */
struct pgproxy *pgproxy_new(const char *conninfo);
const char *pgproxy_conninfo(const struct pgproxy *p);
void pgproxy_mode(struct pgproxy *p, enum pgproxy_mode mode);
/* How often clients began to talk after the server had: round trips. */
unsigned pgproxy_round_trips(struct pgproxy *p);
unsigned pgproxy_connections(struct pgproxy *p); /* accepted so far */
void pgproxy_free(struct pgproxy *p);

#endif
