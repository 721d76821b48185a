/* SOCKS5 (RFC 1928, 1929) and the ClientHello of TLS: length-prefixed bytes. */
#include <arpa/inet.h>
#include <stdio.h>

#include "egress/request.h"

enum { SOCKS_VERSION = 5, PASSWORD_VERSION = 1, METHOD_PLAIN = 0, METHOD_PASSWORD = 2 };

static unsigned byte(struct mg_sv s, size_t i)
{
    return (unsigned char)s.ptr[i];
}

mg_rc mg_egress_socks_hello(struct mg_sv in, struct mg_egress_hello *ret)
{
    *ret = (struct mg_egress_hello){0};
    if (in.len > 0 && byte(in, 0) != SOCKS_VERSION)
        return MG_EINVAL;
    if (in.len < 2 || in.len < 2 + (size_t)byte(in, 1))
        return MG_EUNAVAIL;
    for (size_t i = 0; i < byte(in, 1); i++) {
        ret->plain |= byte(in, 2 + i) == METHOD_PLAIN;
        ret->password |= byte(in, 2 + i) == METHOD_PASSWORD;
    }
    ret->used = 2 + (size_t)byte(in, 1);
    return MG_OK;
}

mg_rc mg_egress_socks_password(struct mg_sv in, char user[MG_EGRESS_USER_MAX], char password[MG_EGRESS_USER_MAX],
                               size_t *ret_used)
{
    if (in.len > 0 && byte(in, 0) != PASSWORD_VERSION)
        return MG_EINVAL;
    if (in.len < 2 || in.len < 3 + (size_t)byte(in, 1))
        return MG_EUNAVAIL;
    size_t n_user = byte(in, 1), n_password = byte(in, 2 + n_user);
    if (n_user >= MG_EGRESS_USER_MAX || n_password >= MG_EGRESS_USER_MAX)
        return MG_EINVAL;
    if (in.len < 3 + n_user + n_password)
        return MG_EUNAVAIL;
    memcpy(user, in.ptr + 2, n_user);
    memcpy(password, in.ptr + 3 + n_user, n_password);
    user[n_user] = password[n_password] = '\0';
    *ret_used = 3 + n_user + n_password;
    return MG_OK;
}

/* The address of a request: kind 1 IPv4, 3 a name, 4 IPv6. *ret_len: bytes of it with a name's length. */
static mg_rc socks_address(struct mg_sv in, unsigned kind, struct mg_egress_target *ret, size_t *ret_len)
{
    char text[INET6_ADDRSTRLEN];
    if (in.len == 0)
        return MG_EUNAVAIL;
    *ret_len = kind == 1 ? 4 : kind == 4 ? 16 : 1 + (size_t)byte(in, 0);
    if (kind != 1 && kind != 3 && kind != 4)
        return MG_EINVAL;
    if (in.len < *ret_len)
        return MG_EUNAVAIL;
    if (kind == 3)
        return mg_egress_host_norm(mg_sv_n(in.ptr + 1, *ret_len - 1), ret->host) ? MG_OK : MG_EINVAL;
    if (!inet_ntop(kind == 1 ? AF_INET : AF_INET6, in.ptr, text, sizeof(text)))
        return MG_EINVAL;
    (void)snprintf(ret->host, sizeof(ret->host), "%s", text);
    return MG_OK;
}

mg_rc mg_egress_socks_request(struct mg_sv in, struct mg_egress_target *ret, int *ret_command, size_t *ret_used)
{
    size_t len = 0;
    if ((in.len > 0 && byte(in, 0) != SOCKS_VERSION) || (in.len > 2 && byte(in, 2) != 0))
        return MG_EINVAL;
    if (in.len < 5)
        return MG_EUNAVAIL;
    mg_rc rc = socks_address(mg_sv_from(in, 4), byte(in, 3), ret, &len);
    if (rc < 0)
        return rc;
    if (in.len < 4 + len + 2)
        return MG_EUNAVAIL;
    ret->port = (int)(byte(in, 4 + len) << 8 | byte(in, 5 + len));
    *ret_command = (int)byte(in, 1);
    *ret_used = 4 + len + 2;
    return ret->port > 0 ? MG_OK : MG_EINVAL;
}

/* ---- TLS ---- */

enum { RECORD_HANDSHAKE = 22, CLIENT_HELLO = 1, EXTENSION_NAME = 0, RECORD_HEAD = 5 };

bool mg_egress_tls_begins(struct mg_sv in)
{
    return byte(in, 0) == RECORD_HANDSHAKE && (in.len < 2 || byte(in, 1) == 3);
}

/* A cursor over length-prefixed fields; ok falls at the first read past the end. */
struct cursor {
    struct mg_sv rest;
    bool ok;
};

static size_t take_number(struct cursor *c, size_t bytes)
{
    size_t n = 0;
    if (c->rest.len < bytes)
        c->ok = false;
    for (size_t i = 0; c->ok && i < bytes; i++)
        n = n << 8 | byte(c->rest, i);
    if (c->ok)
        c->rest = mg_sv_from(c->rest, bytes);
    return n;
}

static struct mg_sv take_field(struct cursor *c, size_t length_bytes)
{
    size_t n = take_number(c, length_bytes);
    if (!c->ok || c->rest.len < n) {
        c->ok = false;
        return mg_sv_n("", 0);
    }
    struct mg_sv field = mg_sv_n(c->rest.ptr, n);
    c->rest = mg_sv_from(c->rest, n);
    return field;
}

/* The handshake message out of its records. */
static mg_rc take_handshake(struct mg_sv in, struct mg_buf *out)
{
    while (in.len > 0) {
        if (byte(in, 0) != RECORD_HANDSHAKE || (in.len > 1 && byte(in, 1) != 3))
            return MG_EINVAL;
        if (in.len < RECORD_HEAD)
            break;
        size_t n = byte(in, 3) << 8 | byte(in, 4);
        struct mg_sv body = mg_sv_from(in, RECORD_HEAD);
        if (n == 0 || mg_buf_append(out, body.ptr, body.len < n ? body.len : n) < 0)
            return MG_EINVAL;
        struct mg_sv got = mg_buf_view(out);
        if (got.len >= 1 && byte(got, 0) != CLIENT_HELLO)
            return MG_EINVAL;
        if (got.len >= 4 && got.len >= 4 + (byte(got, 1) << 16 | byte(got, 2) << 8 | byte(got, 3)))
            return MG_OK;
        if (body.len < n)
            break;
        in = mg_sv_from(body, n);
    }
    return MG_EUNAVAIL;
}

static mg_rc find_name(struct mg_sv extensions, char name[MG_EGRESS_HOST_MAX])
{
    struct cursor c = {extensions, true};
    while (c.ok && c.rest.len > 0) {
        size_t type = take_number(&c, 2);
        struct mg_sv body = take_field(&c, 2);
        if (!c.ok || type != EXTENSION_NAME)
            continue;
        struct cursor list = {body, true}, names = {take_field(&list, 2), true};
        size_t kind = take_number(&names, 1);
        struct mg_sv host = take_field(&names, 2);
        if (!list.ok || !names.ok || kind != 0 || name[0] || names.rest.len > 0)
            return MG_EINVAL;
        if (memchr(host.ptr, ':', host.len) || !mg_egress_host_norm(host, name))
            return MG_EINVAL;
    }
    return c.ok ? MG_OK : MG_EINVAL;
}

mg_rc mg_egress_tls_name(struct mg_sv in, char name[MG_EGRESS_HOST_MAX])
{
    enum { RANDOM = 32 };
    mg_auto(buf) struct mg_buf hello = MG_BUF_INIT(MG_EGRESS_HEAD_MAX);
    name[0] = '\0';
    mg_rc rc = take_handshake(in, &hello);
    if (rc < 0)
        return rc == MG_EUNAVAIL && in.len >= MG_EGRESS_HEAD_MAX ? MG_EINVAL : rc;
    struct cursor c = {mg_sv_from(mg_buf_view(&hello), 1), true};
    struct cursor body = {take_field(&c, 3), true};
    (void)take_number(&body, 2); /* version */
    if (body.rest.len < RANDOM)
        return MG_EINVAL;
    body.rest = mg_sv_from(body.rest, RANDOM);
    (void)take_field(&body, 1); /* session */
    (void)take_field(&body, 2); /* ciphers */
    (void)take_field(&body, 1); /* compression */
    if (!body.ok)
        return MG_EINVAL;
    if (body.rest.len == 0)
        return MG_OK;
    struct mg_sv extensions = take_field(&body, 2);
    return body.ok ? find_name(extensions, name) : MG_EINVAL;
}
