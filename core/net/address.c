#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* IANA's special-purpose registry: what is not globally reachable, and the ranges that wrap an IPv4 address. */
static const struct {
    uint32_t net;
    int bits;
} special4[] = {
    {0x00000000, 8},  /* this network */
    {0x0a000000, 8},  /* private */
    {0x64400000, 10}, /* shared by carriers */
    {0x7f000000, 8},  /* loopback */
    {0xa9fe0000, 16}, /* link-local, metadata services */
    {0xac100000, 12}, /* private */
    {0xc0000000, 24}, /* protocol assignments */
    {0xc0000200, 24}, /* documentation */
    {0xc0586300, 24}, /* 6to4 relays */
    {0xc0a80000, 16}, /* private */
    {0xc6120000, 15}, /* benchmarks */
    {0xc6336400, 24}, /* documentation */
    {0xcb007100, 24}, /* documentation */
    {0xe0000000, 4},  /* multicast */
    {0xf0000000, 4},  /* reserved, broadcast */
};

static const struct {
    uint8_t net[4];
    int bits;
} special6[] = {
    {{0x20, 0x01, 0x00, 0x00}, 23}, /* protocol assignments, Teredo */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x20, 0x02, 0x00, 0x00}, 16}, /* 6to4 */
    {{0x3f, 0xff, 0x00, 0x00}, 20}, /* documentation */
};

static bool public4(uint32_t a)
{
    for (size_t i = 0; i < sizeof(special4) / sizeof(special4[0]); i++) {
        if (((a ^ special4[i].net) >> (32 - special4[i].bits)) == 0)
            return false;
    }
    return true;
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool public6(const uint8_t a[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (memcmp(a, mapped, sizeof(mapped)) == 0)
        return public4(be32(a + 12));
    if (a[0] >> 5 != 1) /* only 2000::/3 is global unicast */
        return false;
    for (size_t i = 0; i < sizeof(special6) / sizeof(special6[0]); i++) {
        if (((be32(a) ^ be32(special6[i].net)) >> (32 - special6[i].bits)) == 0)
            return false;
    }
    return true;
}

bool mg_address_is_public(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, sa, sizeof(v4));
        return public4(ntohl(v4.sin_addr.s_addr));
    }
    if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, sa, sizeof(v6));
        return public6(v6.sin6_addr.s6_addr);
    }
    return false;
}

bool mg_address_text_is_public(const char *host, bool *ret_literal)
{
    char text[INET6_ADDRSTRLEN + 20];
    struct in_addr v4;
    struct in6_addr v6;
    size_t n = strlen(host);
    bool bracketed = n >= 2 && host[0] == '[' && host[n - 1] == ']';
    (void)snprintf(text, sizeof(text), "%.*s", (int)(bracketed ? n - 2 : n), bracketed ? host + 1 : host);
    char *zone = strchr(text, '%');
    if (zone)
        *zone = '\0';
    *ret_literal = true;
    if (n < sizeof(text) && inet_pton(AF_INET, text, &v4) == 1)
        return public4(ntohl(v4.s_addr));
    if (n < sizeof(text) && inet_pton(AF_INET6, text, &v6) == 1)
        return public6(v6.s6_addr);
    *ret_literal = false;
    return false;
}
