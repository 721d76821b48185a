#include "egress/policy.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/address.h"

enum { HTTP = 80, HTTPS = 443 };

struct entry {
    char host[MG_EGRESS_HOST_MAX];
    bool below; /* "*.": names that end with ".host" */
    int port;   /* 0: the web's */
};

struct mg_egress_policy {
    uint32_t mode;
    size_t n;
    struct entry of[];
};

/* ---- hosts ---- */

static bool name_ok(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool dot = s[i] == '.';
        if (!isalnum((unsigned char)s[i]) && s[i] != '-' && s[i] != '_' && !dot)
            return false;
        if (dot && (i == 0 || s[i - 1] == '.'))
            return false;
    }
    return n > 0 && s[0] != '-' && s[n - 1] != '.'; /* one dot at the end was taken off already */
}

bool mg_egress_host_norm(struct mg_sv host, char out[MG_EGRESS_HOST_MAX])
{
    struct in6_addr six;
    bool bracketed = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (bracketed)
        host = mg_sv_n(host.ptr + 1, host.len - 2);
    if (host.len > 1 && host.ptr[host.len - 1] == '.')
        host.len--;
    if (host.len == 0 || host.len >= MG_EGRESS_HOST_MAX)
        return false;
    for (size_t i = 0; i < host.len; i++)
        out[i] = (char)tolower((unsigned char)host.ptr[i]);
    out[host.len] = '\0';
    if (memchr(out, ':', host.len) || bracketed) { /* one spelling for each address */
        if (memchr(out, '\0', host.len) || inet_pton(AF_INET6, out, &six) != 1)
            return false;
        return inet_ntop(AF_INET6, &six, out, MG_EGRESS_HOST_MAX) != NULL;
    }
    return name_ok(out, host.len);
}

/* Cuts ":port" off; false when it is there and is none. */
static bool take_port(struct mg_sv *s, int *ret)
{
    const char *colon = memrchr(s->ptr, ':', s->len);
    int64_t port = 0;
    *ret = 0;
    if (!colon || (s->ptr[0] == '[' && s->ptr[s->len - 1] == ']'))
        return true;
    if (s->ptr[0] != '[' && memchr(s->ptr, ':', s->len) != colon)
        return true; /* an IPv6 address without brackets */
    if (!mg_sv_to_i64(mg_sv_from(*s, (size_t)(colon - s->ptr) + 1), &port) || port < 1 || port > 65535)
        return false;
    s->len = (size_t)(colon - s->ptr);
    *ret = (int)port;
    return true;
}

static bool entry_parse(struct mg_sv s, struct entry *e)
{
    if (s.len == 0 || !take_port(&s, &e->port))
        return false;
    e->below = mg_sv_starts(s, "*.");
    if (e->below)
        s = mg_sv_from(s, 2);
    return mg_egress_host_norm(s, e->host) && !(e->below && strchr(e->host, ':'));
}

mg_rc mg_egress_policy_new(const struct mango_network *net, struct mg_egress_policy **ret, struct mg_err *err)
{
    if (net->mode > MANGO_NET_OPEN)
        return mg_err_set(err, MG_EINVAL, "the network's mode is %u, which this server does not know", net->mode);
    if (net->n_hosts > MG_EGRESS_HOSTS_MAX)
        return mg_err_set(err, MG_EINVAL, "more than %d allowed hosts", MG_EGRESS_HOSTS_MAX);
    struct mg_egress_policy *p = mg_xcalloc(1, sizeof(*p) + (size_t)net->n_hosts * sizeof(p->of[0]));
    p->mode = net->mode;
    for (; p->n < net->n_hosts; p->n++) {
        struct mg_sv s = mg_sv_n(net->hosts[p->n].ptr, net->hosts[p->n].len);
        if (entry_parse(s, &p->of[p->n]))
            continue;
        (void)mg_err_set(err, MG_EINVAL,
                         "allowed host \"%.*s\": must be a host name, \"*.\" and one, or an address, each with or "
                         "without a port",
                         (int)(s.len < 100 ? s.len : 100), s.ptr);
        free(p);
        return MG_EINVAL;
    }
    *ret = p;
    return MG_OK;
}

void mg_egress_policy_free(struct mg_egress_policy *p)
{
    free(p);
}

static bool entry_matches(const struct entry *e, struct mg_sv host)
{
    size_t n = strlen(e->host);
    if (!e->below)
        return mg_sv_eqz(host, e->host);
    return host.len > n + 1 && host.ptr[host.len - n - 1] == '.' && mg_sv_ends(host, e->host);
}

enum mg_egress_match mg_egress_policy_match(const struct mg_egress_policy *p, struct mg_sv host, int port)
{
    enum mg_egress_match best = MG_EGRESS_NO_HOST;
    if (p->mode == MANGO_NET_OPEN)
        return MG_EGRESS_ALL;
    for (size_t i = 0; p->mode == MANGO_NET_LIMITED && i < p->n; i++) {
        const struct entry *e = &p->of[i];
        if (!entry_matches(e, host))
            continue;
        bool web = e->port == 0 && (port == HTTP || port == HTTPS);
        enum mg_egress_match m = e->port == port ? MG_EGRESS_LISTED : web ? MG_EGRESS_WEB : MG_EGRESS_NO_PORT;
        if (m > best)
            best = m;
    }
    return best;
}

/* ---- networks ---- */

static bool to_six(const char *text, uint8_t out[16], int *ret_family)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (inet_pton(AF_INET6, text, out) == 1) {
        *ret_family = AF_INET6;
        return true;
    }
    memcpy(out, mapped, sizeof(mapped));
    *ret_family = AF_INET;
    return inet_pton(AF_INET, text, out + 12) == 1;
}

static bool network_parse(struct mg_sv s, uint8_t address[16], int *bits)
{
    char text[64];
    int64_t given = 0;
    int family = 0;
    size_t slash = mg_sv_find(s, '/');
    if (slash >= sizeof(text))
        return false;
    memcpy(text, s.ptr, slash);
    text[slash] = '\0';
    if (!to_six(text, address, &family))
        return false;
    int width = family == AF_INET ? 32 : 128;
    *bits = 128;
    if (slash == s.len)
        return true;
    if (!mg_sv_to_i64(mg_sv_from(s, slash + 1), &given) || given < 0 || given > width)
        return false;
    *bits = 128 - width + (int)given;
    return true;
}

mg_rc mg_egress_networks_parse(struct mg_sv list, struct mg_egress_networks *ret, struct mg_err *err)
{
    *ret = (struct mg_egress_networks){0};
    while (list.len > 0) {
        struct mg_sv one = mg_sv_trim(mg_sv_split(&list, ','));
        if (one.len == 0)
            continue;
        if (ret->n == MG_EGRESS_NETWORKS_MAX)
            return mg_err_set(err, MG_ECONFIG, "more than %d networks", MG_EGRESS_NETWORKS_MAX);
        if (!network_parse(one, ret->of[ret->n].address, &ret->of[ret->n].bits))
            return mg_err_set(err, MG_ECONFIG, "\"%.*s\" is not a network like 10.1.0.0/16",
                              (int)(one.len < 60 ? one.len : 60), one.ptr);
        ret->n++;
    }
    return MG_OK;
}

static bool in_network(const uint8_t a[16], const uint8_t net[16], int bits)
{
    int whole = bits / 8, rest = bits % 8;
    if (memcmp(a, net, (size_t)whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ net[whole]) >> (8 - rest)) == 0;
}

bool mg_egress_address_ok(const struct mg_egress_networks *n, const struct sockaddr *sa)
{
    uint8_t a[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (mg_address_is_public(sa))
        return true;
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, sa, sizeof(v4));
        memcpy(a + 12, &v4.sin_addr, 4);
    } else if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, sa, sizeof(v6));
        memcpy(a, &v6.sin6_addr, 16);
    } else {
        return false;
    }
    for (int i = 0; i < n->n; i++) {
        if (in_network(a, n->of[i].address, n->of[i].bits))
            return true;
    }
    return false;
}
