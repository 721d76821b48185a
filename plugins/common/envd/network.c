#include <string.h>

#include "common/envd/envd.h"

/* Who may be reached, in the service's words: allow entries win over deny entries. */

#define EVERYTHING "[\"0.0.0.0/0\"]"

static mango_status host_json(const struct envd *e, const struct mango_call *call, struct mango_sv host,
                              struct text *out)
{
    char name[SHOWN_MAX + 1];
    shown(host, name);
    if (host.len == 0 || host.len > 253)
        return fail(e->host, call, MANGO_EINVALID, "'%s' is no host", name);
    if (memchr(host.ptr, ':', host.len))
        return fail(e->host, call, MANGO_EUNSUPPORTED,
                    "%s limits a network to hosts, not to ports or IPv6 addresses: '%s'", e->flavor->service, name);
    text_json(out, host);
    return MANGO_OK;
}

/* {"allowOut":[..],"denyOut":[..]} without its braces. */
static mango_status lists_json(const struct envd *e, const struct mango_call *call, const struct mango_network *net,
                               struct text *out)
{
    mango_status s = MANGO_OK;
    if (net->n_hosts > ENVD_HOSTS_MAX)
        return fail(e->host, call, MANGO_ETOOBIG, "an allow list of more than %d hosts", ENVD_HOSTS_MAX);
    text_add(out, "\"allowOut\":[");
    for (uint64_t i = 0; i < net->n_hosts && s == MANGO_OK; i++) {
        text_add(out, i ? "," : "");
        s = host_json(e, call, net->hosts[i], out);
    }
    text_add(out, "],\"denyOut\":" EVERYTHING);
    return s;
}

mango_status network_json(const struct envd *e, const struct mango_call *call, const struct mango_network *net,
                          bool create, struct text *out)
{
    bool open = net && net->mode == MANGO_NET_OPEN, limited = net && net->mode == MANGO_NET_LIMITED && net->n_hosts > 0;
    mango_status s = MANGO_OK;
    if (!create) {
        text_add(out, "{");
        if (limited)
            s = lists_json(e, call, net, out);
        else if (!open)
            text_add(out, "\"denyOut\":" EVERYTHING);
        text_add(out, "}");
        return s;
    }
    text_printf(out, ",\"allow_internet_access\":%s", open || limited ? "true" : "false");
    if (e->flavor->both_spellings && !atomic_load(&e->one_spelling))
        text_printf(out, ",\"allowInternetAccess\":%s", open || limited ? "true" : "false");
    bool closed = !e->public_traffic && e->flavor->v2;
    if (!limited && !closed)
        return MANGO_OK;
    text_printf(out, ",\"network\":{%s", closed ? "\"allowPublicTraffic\":false" : "");
    if (limited) {
        text_add(out, closed ? "," : "");
        s = lists_json(e, call, net, out);
    }
    text_add(out, "}");
    return s;
}
