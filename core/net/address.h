/* Which addresses of the Internet a request that users can aim may reach. Pure. */
#ifndef MG_NET_ADDRESS_H
#define MG_NET_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* False for every address that is private, local, shared, reserved, for documentation, multicast, or that carries an
 * IPv4 address inside (6to4, Teredo, NAT64) and so can reach a private one. Families other than IPv4 and IPv6 are
 * never public. */
bool mg_address_is_public(const struct sockaddr *sa);
/* The same for a literal ("10.0.0.1", "::1", "[::1]"); *ret_literal tells whether it is one. */
bool mg_address_text_is_public(const char *host, bool *ret_literal);

#endif
