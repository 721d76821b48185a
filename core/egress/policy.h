/* Who may be reached by one sandbox: an allow list of hosts with ports, as an environment's network config gives it, and
 * the networks that no name may lead to. Pure.
 *
 *   example.org         ports 80 and 443
 *   example.org:8443    that port alone
 *   *.example.org       any name below it, not itself; also with a port
 *   192.0.2.7           an address as it stands in the request; [2001:db8::7]:8443
 *
 * Case and a final dot of a name make no difference. */
#ifndef MG_EGRESS_POLICY_H
#define MG_EGRESS_POLICY_H

#include <sys/socket.h>

#include "base/err.h"
#include "base/sv.h"
#include "mango/sandbox.h"

enum {
    MG_EGRESS_HOST_MAX = 254,    /* bytes of a name with its NUL */
    MG_EGRESS_HOSTS_MAX = 1000,  /* entries of one list; the API takes no more */
    MG_EGRESS_NETWORKS_MAX = 64, /* entries of the operator's list */
};

struct mg_egress_policy;

/* MG_EINVAL names the entry that is none of the above. mode: MANGO_NET_NONE lets nothing through, OPEN every public
 * host and port. */
mg_rc mg_egress_policy_new(const struct mango_network *net, struct mg_egress_policy **ret,
                           struct mg_err *err) MG_MUSTCHECK;
void mg_egress_policy_free(struct mg_egress_policy *p); /* NULL is fine */

enum mg_egress_match {
    MG_EGRESS_NO_HOST, /* no entry names it */
    MG_EGRESS_NO_PORT, /* the host is listed, with other ports */
    MG_EGRESS_WEB,     /* listed without a port: HTTP on 80, TLS on 443 */
    MG_EGRESS_LISTED,  /* listed with this port */
    MG_EGRESS_ALL,     /* the mode is OPEN */
};

/* host as mg_egress_host_norm made it. */
enum mg_egress_match mg_egress_policy_match(const struct mg_egress_policy *p, struct mg_sv host, int port);

/* Lower case, without the final dot and the brackets of IPv6, NUL behind it. False: this can be no host. */
bool mg_egress_host_norm(struct mg_sv host, char out[MG_EGRESS_HOST_MAX]);

/* Networks that may be reached although they are not public ("10.1.0.0/16", "fd00:1::/32", "192.0.2.7"): the operator's
 * list, separated by commas or blanks. */
struct mg_egress_networks {
    struct {
        uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
        int bits;            /* of 128 */
    } of[MG_EGRESS_NETWORKS_MAX];
    int n;
};
mg_rc mg_egress_networks_parse(struct mg_sv list, struct mg_egress_networks *ret, struct mg_err *err) MG_MUSTCHECK;
/* Public, or in one of the networks. */
bool mg_egress_address_ok(const struct mg_egress_networks *n, const struct sockaddr *sa);

#endif
