#include "domain/egress.h"

#include "json/json.h"

struct mg_sv mg_egress_host(struct mg_sv url)
{
    const char *at = memmem(url.ptr, url.len, "://", 3);
    struct mg_sv host = at ? mg_sv_from(url, (size_t)(at - url.ptr) + 3) : url;
    size_t n = 0;
    while (n < host.len && !memchr("/?#", host.ptr[n], 3))
        n++;
    host.len = n;
    if (host.len && host.ptr[0] == '[') {
        host = mg_sv_from(host, 1);
        host.len = mg_sv_find(host, ']');
        return host;
    }
    host.len = mg_sv_find(host, ':');
    return host;
}

bool mg_egress_match(struct mg_sv pattern, struct mg_sv host)
{
    if (!mg_sv_starts(pattern, "*."))
        return mg_sv_eq_nocase(pattern, host);
    struct mg_sv below = mg_sv_from(pattern, 1);
    return host.len > below.len && mg_sv_eq_nocase(mg_sv_from(host, host.len - below.len), below);
}

static bool allowed(struct mg_arena *a, const struct mg_json *hosts, struct mg_sv host)
{
    for (const struct mg_json *h = hosts ? hosts->child : NULL; h; h = h->next)
        if (h->type == MG_JSON_STRING && mg_egress_match(mg_json_str(a, h), host))
            return true;
    return false;
}

mg_rc mg_egress_check_servers(struct mg_arena *a, struct mg_sv config, struct mg_sv servers, struct mg_err *err)
{
    struct mg_json *c, *s;
    mg_rc rc = mg_json_parse(a, config, &mg_json_raw_limits, &c, err);
    if (rc >= 0)
        rc = mg_json_parse(a, servers, &mg_json_raw_limits, &s, err);
    if (rc < 0)
        return mg_err_wrap(err, MG_EINTERNAL, "stored environment or agent");
    const struct mg_json *net = mg_json_get(c, "networking"), *mcp = mg_json_get(net, "allow_mcp_servers");
    if (!mg_sv_eqz(mg_json_get_str(a, net, "type"), "limited") || (mg_json_is(mcp, MG_JSON_BOOL) && mcp->boolean))
        return MG_OK;
    unsigned i = 0;
    for (const struct mg_json *v = s->child; v; v = v->next, i++) {
        struct mg_sv host = mg_egress_host(mg_json_get_str(a, v, "url"));
        if (!allowed(a, mg_json_get(net, "allowed_hosts"), host))
            return mg_err_code(
                err, MG_EINVAL, "mcp_egress_blocked_error",
                "agent.mcp_servers[%u]: the environment's networking does not let a session reach the host "
                "%.*s; add it to networking.allowed_hosts, or set networking.allow_mcp_servers",
                i, MG_SV_ARG(host));
    }
    return MG_OK;
}
