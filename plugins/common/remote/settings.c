#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/remote/remote.h"

/* What an operator says about a service. */

char *remote_setting(const struct mango_host *h, const char *name)
{
    struct mango_buf *b = h->buf_new(h, REMOTE_SETTING_MAX);
    char *z = b && h->secret_get(h, name, b) == MANGO_OK ? sv_dup(h->buf_view(h, b)) : NULL;
    h->buf_free(h, b);
    if (z && *z)
        return z;
    free(z);
    return NULL;
}

mango_status remote_url(const struct mango_host *h, const struct mango_call *call, const char *name,
                        const char *otherwise, char **ret)
{
    char *z = remote_setting(h, name);
    if (!z && !otherwise)
        return fail(h, call, MANGO_EINVALID, "%s is not set; it is the URL of the service", name);
    if (!z && !(z = strdup(otherwise)))
        return fail(h, call, MANGO_ERETRY, "out of memory");
    size_t n = strlen(z);
    const char *rest = strncmp(z, "http://", 7) == 0 ? z + 7 : strncmp(z, "https://", 8) == 0 ? z + 8 : "";
    if (!*rest || *rest == '/' || strpbrk(z, "@?# \t\r\n")) {
        free(z);
        return fail(h, call, MANGO_EINVALID,
                    "%s is no URL such as https://api.example.org (without user, query and blanks)", name);
    }
    while (n > 0 && z[n - 1] == '/')
        z[--n] = '\0';
    *ret = z;
    return MANGO_OK;
}

mango_status remote_seconds(const struct mango_host *h, const struct mango_call *call, const char *name,
                            uint64_t otherwise, uint64_t min, uint64_t max, uint64_t *ret)
{
    char *z = remote_setting(h, name), *end = NULL;
    mango_status s = MANGO_OK;
    *ret = otherwise;
    if (z) {
        errno = 0;
        unsigned long long v = *z >= '0' && *z <= '9' ? strtoull(z, &end, 10) : 0;
        uint64_t unit = !end                                    ? 0
                        : *end == '\0' || strcmp(end, "s") == 0 ? 1
                        : strcmp(end, "m") == 0                 ? 60
                        : strcmp(end, "h") == 0                 ? 3600
                                                                : 0;
        if (!unit || errno || v > max || v * unit < min || v * unit > max)
            s = fail(h, call, MANGO_EINVALID,
                     "%s is '%.50s'; it must be a time such as 300, 300s, 5m or 1h, from %llu to %llu seconds", name, z,
                     (unsigned long long)min, (unsigned long long)max);
        *ret = v * unit;
    }
    free(z);
    return s;
}

mango_status remote_bool(const struct mango_host *h, const struct mango_call *call, const char *name, bool otherwise,
                         bool *ret)
{
    static const struct {
        const char *text;
        bool value;
    } words[] = {{"1", true}, {"true", true}, {"yes", true}, {"0", false}, {"false", false}, {"no", false}};
    char *z = remote_setting(h, name);
    mango_status s = MANGO_OK;
    size_t i = 0;
    *ret = otherwise;
    while (z && i < sizeof(words) / sizeof(words[0]) && strcasecmp(z, words[i].text) != 0)
        i++;
    if (z && i == sizeof(words) / sizeof(words[0]))
        s = fail(h, call, MANGO_EINVALID, "%s is '%.50s'; it must be true or false", name, z);
    else if (z)
        *ret = words[i].value;
    free(z);
    return s;
}

/* The host wants certificates in memory. */
static mango_status read_ca(struct remote *r, const struct mango_call *call, const char *variable)
{
    char *path = remote_setting(r->host, variable);
    if (!path)
        return MANGO_OK;
    r->ca = calloc(1, REMOTE_CA_MAX + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t got = fd < 0 || !r->ca ? -1 : 1;
    while (got > 0 && n < REMOTE_CA_MAX) {
        got = read(fd, r->ca + n, REMOTE_CA_MAX - n);
        n += got > 0 ? (size_t)got : 0;
    }
    mango_status s = MANGO_OK;
    if (got < 0)
        s = fail(r->host, call, MANGO_EINVALID, "%s: %.300s: %s", variable, path, strerror(errno));
    else if (n == REMOTE_CA_MAX || !strstr(r->ca, "-----BEGIN"))
        s = fail(r->host, call, MANGO_EINVALID, "%s: %.300s is no file of certificates in PEM form", variable, path);
    if (fd >= 0)
        close(fd);
    free(path);
    return s;
}

mango_status remote_open(struct remote *r, const struct mango_host *h, const struct mango_call *call,
                         const char *service, const char *prefix)
{
    char variable[64];
    *r = (struct remote){.host = h, .service = service};
    snprintf(variable, sizeof(variable), "%s_PROXY", prefix);
    r->proxy = remote_setting(h, variable);
    snprintf(variable, sizeof(variable), "%s_CA_FILE", prefix);
    return read_ca(r, call, variable);
}

bool remote_secret(struct remote *r, const char *secret)
{
    int i = 0;
    while (i < REMOTE_SECRETS_MAX && r->secrets[i])
        i++;
    if (!secret || !*secret)
        return true;
    return i < REMOTE_SECRETS_MAX && (r->secrets[i] = strdup(secret)) != NULL;
}

void remote_close(struct remote *r)
{
    for (int i = 0; i < REMOTE_SECRETS_MAX; i++) {
        if (r->secrets[i])
            explicit_bzero(r->secrets[i], strlen(r->secrets[i]));
        free(r->secrets[i]);
    }
    free(r->proxy);
    free(r->ca);
    *r = (struct remote){0};
}
