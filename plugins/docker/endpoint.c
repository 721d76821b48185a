#include "docker/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/var/run/docker.sock"

enum {
    PEM_MAX = 1024 * 1024, /* bytes of a certificate file */
    API_MAJOR = 1,
    API_OLDEST = 40, /* Docker 19.03: the first with all that the adapter asks for */
    API_NEWEST = 51, /* what the adapter was written against */
};

static char *read_pem(const char *dir, const char *name, char why[ENDPOINT_WHY_MAX])
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : malloc(PEM_MAX + 1);
    ssize_t n = text ? read(fd, text, PEM_MAX) : -1;
    if (n < 0) {
        snprintf(why, ENDPOINT_WHY_MAX, "cannot read %.200s: %s; see DOCKER_CERT_PATH", path, strerror(errno));
        free(text);
        text = NULL;
    } else {
        text[n] = '\0';
    }
    if (fd >= 0)
        close(fd);
    return text;
}

static bool read_certs(struct endpoint *e, const char *dir, char why[ENDPOINT_WHY_MAX])
{
    e->ca = read_pem(dir, "ca.pem", why);
    e->cert = e->ca ? read_pem(dir, "cert.pem", why) : NULL;
    e->key = e->cert ? read_pem(dir, "key.pem", why) : NULL;
    return e->key != NULL;
}

static bool starts(const char *z, const char *with)
{
    return strncmp(z, with, strlen(with)) == 0;
}

/* "host", "host:port", "[v6]:port" and nothing else. */
static bool address_ok(const char *z)
{
    const char *colon = strrchr(z, ':'), *bracket = strrchr(z, ']');
    size_t host = strlen(z);
    if (colon && (!bracket || colon > bracket)) {
        char *end;
        long port = strtol(colon + 1, &end, 10);
        if (*end || colon[1] < '0' || colon[1] > '9' || port < 1 || port > 65535)
            return false;
        host = (size_t)(colon - z);
    }
    return host > 0 && strspn(z, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") == strlen(z);
}

static bool has_port(const char *z)
{
    const char *colon = strrchr(z, ':'), *bracket = strrchr(z, ']');
    return colon && (!bracket || colon > bracket);
}

static char *url_of(const char *address, bool tls)
{
    struct text t = {0};
    text_printf(&t, "%s://%s%s", tls ? "https" : "http", address, has_port(address) ? "" : tls ? ":2376" : ":2375");
    return t.ptr; /* the caller's */
}

static bool parse_tcp(struct endpoint *e, const char *host, bool tls, char why[ENDPOINT_WHY_MAX])
{
    text_auto struct text address = {0};
    text_add(&address, strstr(host, "://") + 3);
    while (address.len > 0 && address.ptr[address.len - 1] == '/')
        address.ptr[--address.len] = '\0';
    if (address.bad || address.len == 0 || !address_ok(address.ptr)) {
        snprintf(why, ENDPOINT_WHY_MAX,
                 "'%.200s' has no host[:port]; set DOCKER_HOST or MANGO_DOCKER_HOST to tcp://HOST:PORT", host);
        return false;
    }
    e->base = url_of(address.ptr, tls);
    return e->base != NULL;
}

bool endpoint_parse(struct endpoint *ret, const char *host, const char *cert_path, bool tls_verify,
                    char why[ENDPOINT_WHY_MAX])
{
    *ret = (struct endpoint){0};
    snprintf(why, ENDPOINT_WHY_MAX, "out of memory");
    bool tcp = starts(host, "tcp://") || starts(host, "http://") || starts(host, "https://"), ok;
    if (*host == '\0' || starts(host, "unix://")) {
        const char *path = *host ? host + strlen("unix://") : DEFAULT_SOCKET;
        if (*path != '/') {
            snprintf(why, ENDPOINT_WHY_MAX, "'%.200s' has no absolute path; set DOCKER_HOST to unix:///PATH", host);
            return false;
        }
        ret->socket = strdup(path);
        ret->base = strdup("http://docker");
        return ret->socket && ret->base;
    }
    if (!tcp) {
        snprintf(
            why, ENDPOINT_WHY_MAX,
            "DOCKER_HOST='%.100s' is not supported; use unix:///PATH, tcp://HOST:PORT or https://HOST:PORT%s", host,
            starts(host, "ssh://") ? " (for ssh, forward the socket: ssh -L /run/d.sock:/var/run/docker.sock)" : "");
        return false;
    }
    /* As the docker command has it: verification makes tcp:// speak TLS. */
    bool tls = starts(host, "https://") || (tls_verify && !starts(host, "http://"));
    ok = parse_tcp(ret, host, tls, why);
    if (ok && tls && *cert_path)
        ok = read_certs(ret, cert_path, why);
    return ok;
}

void endpoint_done(struct endpoint *e)
{
    free(e->socket);
    free(e->base);
    free(e->ca);
    free(e->cert);
    if (e->key)
        explicit_bzero(e->key, strlen(e->key));
    free(e->key);
    *e = (struct endpoint){0};
}

bool endpoint_version(const char *engine, char ret[16])
{
    char *end, *end2;
    long major = strtol(engine, &end, 10);
    if (end == engine || *end != '.' || major != API_MAJOR || end[1] < '0' || end[1] > '9')
        return false;
    long minor = strtol(end + 1, &end2, 10);
    if (*end2 || minor < API_OLDEST || minor > INT_MAX)
        return false;
    snprintf(ret, 16, "%d.%ld", API_MAJOR, minor < API_NEWEST ? minor : API_NEWEST);
    return true;
}
