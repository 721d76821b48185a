/* Whether an environment with limited networking lets a session reach its MCP servers. The server makes those calls itself, but the operator's word about
 * where a session may talk to holds for them too. Pure. */
#ifndef MG_DOMAIN_EGRESS_H
#define MG_DOMAIN_EGRESS_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"

/* config: an environment's resolved config; servers: a resolved mcp_servers array. MG_EINVAL with the code mcp_egress_blocked_error. */
mg_rc mg_egress_check_servers(struct mg_arena *a, struct mg_sv config, struct mg_sv servers,
                              struct mg_err *err) MG_MUSTCHECK;
/* The host of an http or https URL, without a port; brackets of an IPv6 address are left out. */
struct mg_sv mg_egress_host(struct mg_sv url);
/* pattern: a host, or "*.example.com" for every host below it. Case does not matter. */
bool mg_egress_match(struct mg_sv pattern, struct mg_sv host);

#endif
