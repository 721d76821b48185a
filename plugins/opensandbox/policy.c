#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opensandbox/opensandbox.h"

/* Limited networks: a filter beside the sandbox, made with it and changed over its own small API. It knows names, no addresses
 * and no ports, and holds only where it filters packets too ("dns+nft"): in its other mode an address can be reached directly. */

/* "example.org" or "*.example.org"; the service has no way to allow one port only. */
static mango_status check_host(struct osb *o, const struct mango_call *call, struct mango_sv host)
{
    char name[SHOWN_MAX + 1];
    shown(host, name);
    if (memchr(host.ptr, ':', host.len))
        return fail(o->remote.host, call, MANGO_EUNSUPPORTED, "'%s': OpenSandbox cannot allow one port of a host only",
                    name);
    if (!remote_name_ok(host))
        return fail(o->remote.host, call, MANGO_EUNSUPPORTED, "'%s': OpenSandbox allows names, no addresses", name);
    return MANGO_OK;
}

static mango_status put_rules(struct osb *o, const struct mango_call *call, const struct mango_network *net,
                              struct text *t)
{
    text_add(t, "[");
    for (uint64_t i = 0; net && net->mode == MANGO_NET_LIMITED && i < net->n_hosts; i++) {
        mango_status s = check_host(o, call, net->hosts[i]);
        if (s < 0)
            return s;
        text_add(t, i ? ",{\"action\":\"allow\",\"target\":" : "{\"action\":\"allow\",\"target\":");
        text_json(t, net->hosts[i]);
        text_add(t, "}");
    }
    text_add(t, "]");
    return MANGO_OK;
}

mango_status policy_body(struct osb *o, const struct mango_call *call, const struct mango_network *net,
                         struct text *body)
{
    if (net && net->mode == MANGO_NET_OPEN)
        return MANGO_OK;
    text_add(body, ",\"networkPolicy\":{\"defaultAction\":\"deny\",\"egress\":");
    mango_status s = put_rules(o, call, net, body);
    text_add(body, "}");
    return s;
}

/* ---- the filter of a live sandbox ---- */

struct filter {
    struct endpoint at;
    struct remote_res res;
};

static mango_status filter_call(struct osb *o, const struct mango_call *call, struct filter *f, const char *method,
                                const struct text *body, uint32_t flags, const char *what)
{
    struct mango_http_header headers[REMOTE_HEADERS_MAX];
    text_auto struct text url = {0};
    text_printf(&url, "%s/policy", f->at.url);
    struct remote_req req = {.method = method,
                             .url = url.ptr,
                             .what = what,
                             .flags = flags | REMOTE_SAFE,
                             .headers = headers,
                             .n_headers = endpoint_headers(&f->at, headers),
                             .body = body ? text_view(body) : no_text()};
    remote_free(&o->remote, &f->res);
    mango_status s = remote_call(&o->remote, call, &req, &f->res);
    if (s == MANGO_OK && !remote_good(&f->res))
        s = remote_fail(&o->remote, call, &req, &f->res, MANGO_ERETRY);
    return s;
}

static mango_status filter_open(struct osb *o, const struct mango_call *call, const char *id, struct filter *f)
{
    *f = (struct filter){0};
    mango_status s = endpoint_get(o, call, id, EGRESS_PORT, &f->at);
    if (s == MANGO_OK)
        s = filter_call(o, call, f, "GET", NULL, REMOTE_JSON, "tell the sandbox's network policy");
    return s;
}

static void filter_close(struct osb *o, struct filter *f)
{
    remote_free(&o->remote, &f->res);
    endpoint_free(&f->at);
}

mango_status policy_refused(struct osb *o, const struct mango_call *call)
{
    return fail(
        o->remote.host, call, MANGO_EUNSUPPORTED,
        "this OpenSandbox service filters names only, so that addresses can be reached directly; set [egress] mode = "
        "\"dns+nft\" in its configuration, or use an open network");
}

static mango_status holds(struct osb *o, const struct mango_call *call, const struct filter *f)
{
    char mode[32] = "";
    struct mango_sv body = remote_body(&o->remote, &f->res);
    (void)json_copy(body, "enforcementMode", mode, sizeof(mode));
    if (!strstr(mode, "nft"))
        return policy_refused(o, call);
    if (!json_is(body, "policy/defaultAction", "deny"))
        return fail(o->remote.host, call, MANGO_EINTERNAL, "the sandbox's network filter does not deny by default");
    return MANGO_OK;
}

mango_status policy_check(struct osb *o, const struct mango_call *call, const char *id)
{
    struct filter f;
    struct seen seen = {0};
    mango_status s = sandbox_run(o, call, id, &seen);
    if (s < 0)
        return s;
    s = filter_open(o, call, id, &f);
    if (s == MANGO_OK)
        s = holds(o, call, &f);
    filter_close(o, &f);
    return s;
}

static bool wanted(const struct mango_network *net, const char *target)
{
    for (uint64_t i = 0; net->mode == MANGO_NET_LIMITED && i < net->n_hosts; i++) {
        if (sv_is(net->hosts[i], target))
            return true;
    }
    return false;
}

/* What is allowed now and shall not be any more, as a list of targets. False: nothing. */
static bool stale(struct mango_sv rules, const struct mango_network *net, struct text *out)
{
    uint64_t pos = 0;
    struct mango_sv rule;
    char target[300];
    bool any = false;
    text_add(out, "[");
    while (json_kind(rules) == '[' && json_next(rules, &pos, NULL, &rule)) {
        if (!json_copy(rule, "target", target, sizeof(target)) || wanted(net, target))
            continue;
        if (any)
            text_add(out, ",");
        text_jsonz(out, target);
        any = true;
    }
    text_add(out, "]");
    return any;
}

static mango_status apply(struct osb *o, const struct mango_call *call, struct filter *f,
                          const struct mango_network *net)
{
    text_auto struct text gone = {0}, rules = {0};
    mango_status s = put_rules(o, call, net, &rules);
    if (s < 0)
        return s;
    bool any = stale(json_get(remote_body(&o->remote, &f->res), "policy/egress"), net, &gone);
    if (any)
        s = filter_call(o, call, f, "DELETE", &gone, 0, "take back allowed hosts");
    if (s == MANGO_OK && net->mode == MANGO_NET_LIMITED && net->n_hosts > 0)
        s = filter_call(o, call, f, "PATCH", &rules, 0, "allow hosts");
    return s;
}

mango_status osb_set_network(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_network *net)
{
    struct osb *o = ctx;
    struct errands_box *b;
    struct filter f = {0};
    mango_status s = errands_enter(&o->errands, call, id, &b);
    if (s < 0)
        return s;
    if (net->mode == MANGO_NET_OPEN)
        s = fail(o->remote.host, call, MANGO_EUNSUPPORTED,
                 "a sandbox with a filter cannot be given an open network later");
    if (s == MANGO_OK) {
        struct mango_call own = remote_within(o->remote.host, call, REMOTE_CALL_MS);
        s = endpoint_get(o, &own, b->id, EGRESS_PORT, &f.at);
        if (s == MANGO_OK)
            s = filter_call(o, &own, &f, "GET", NULL, REMOTE_JSON | REMOTE_SINGLE, "tell the sandbox's network policy");
        if (s < 0 && s != MANGO_ECANCELED && s != MANGO_ETIMEOUT && s != MANGO_EGONE)
            s = fail(o->remote.host, call, MANGO_EUNSUPPORTED,
                     "the sandbox has no network filter: it was made with an open network");
    }
    if (s == MANGO_OK)
        s = holds(o, call, &f);
    if (s == MANGO_OK)
        s = apply(o, call, &f, net);
    filter_close(o, &f);
    errands_leave(&o->errands, b);
    return s;
}
