#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daytona/daytona.h"

/* Limited networks: the service blocks all, or lets through the domains of a list. */

static mango_status domains(struct daytona *d, const struct mango_call *call, const struct mango_network *net,
                            struct text *t)
{
    for (uint64_t i = 0; net->mode == MANGO_NET_LIMITED && i < net->n_hosts; i++) {
        char name[SHOWN_MAX + 1];
        struct mango_sv host = net->hosts[i];
        shown(host, name);
        if (memchr(host.ptr, ':', host.len))
            return fail(d->remote.host, call, MANGO_EUNSUPPORTED, "'%s': Daytona cannot allow one port of a host only",
                        name);
        if (!remote_name_ok(host))
            return fail(d->remote.host, call, MANGO_EUNSUPPORTED, "'%s': Daytona allows domains, no addresses", name);
        if (memchr(host.ptr, ',', host.len))
            return fail(d->remote.host, call, MANGO_EINVALID, "'%s' is no host", name);
        if (i)
            text_add(t, ",");
        text_sv(t, host);
    }
    return t->bad || t->len >= LIST_MAX
               ? fail(d->remote.host, call, MANGO_ETOOBIG, "more than %d bytes of allowed hosts", LIST_MAX)
               : MANGO_OK;
}

static bool open_net(const struct mango_network *net)
{
    return net && net->mode == MANGO_NET_OPEN;
}

mango_status network_body(struct daytona *d, const struct mango_call *call, const struct mango_network *net,
                          bool change, struct text *body)
{
    text_auto struct text list = {0};
    mango_status s = net ? domains(d, call, net, &list) : MANGO_OK;
    bool block = !open_net(net) && list.len == 0;
    if (s < 0 || (open_net(net) && !change))
        return s;
    text_printf(body, "%s\"networkBlockAll\":%s", change ? "" : ",", block ? "true" : "false");
    if (list.len > 0 || change) {
        text_add(body, ",\"domainAllowList\":");
        text_json(body, text_view(&list));
    }
    return MANGO_OK;
}

mango_status network_check(struct daytona *d, const struct mango_call *call, const struct mango_network *net,
                           const struct seen *seen)
{
    text_auto struct text list = {0};
    mango_status s = net ? domains(d, call, net, &list) : MANGO_OK;
    if (s < 0 || open_net(net))
        return s;
    bool held = list.len == 0 ? seen->blocked : seen->blocked || sv_is(text_view(&list), seen->domains);
    return held ? MANGO_OK
                : fail(d->remote.host, call, MANGO_EUNSUPPORTED,
                       "Daytona did not take the sandbox's network limits; use an open network, or another service");
}

mango_status daytona_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                                 const struct mango_network *net)
{
    struct daytona *d = ctx;
    struct errands_box *b;
    struct seen seen = {0};
    int http = 0;
    text_auto struct text body = {0};
    mango_status s = errands_enter(&d->errands, call, id, &b);
    if (s < 0)
        return s;
    text_add(&body, "{");
    s = network_body(d, call, net, true, &body);
    text_add(&body, "}");
    if (s == MANGO_OK)
        s = sandbox_post(d, call, b->id, "/network-settings", &body, "change the sandbox's network", &http);
    if (s == MANGO_OK && http >= 400)
        s = MANGO_ERETRY; /* another change is under way, or it does not run: the words are there */
    if (s == MANGO_OK)
        s = sandbox_get(d, call, b->id, &seen);
    if (s == MANGO_OK)
        s = network_check(d, call, net, &seen);
    errands_leave(&d->errands, b);
    return s;
}
