#include "docker/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

#define HUB "https://index.docker.io/v1/"

void registry_of(const char *image, char *host, size_t size)
{
    size_t n = strcspn(image, "/");
    /* As the docker command has it: the first part is a host when it has a dot or a port, or is localhost. */
    bool is_host = image[n] == '/' &&
                   (memchr(image, '.', n) || memchr(image, ':', n) || (n == 9 && memcmp(image, "localhost", 9) == 0));
    if (!is_host || (n == 9 && memcmp(image, "docker.io", 9) == 0))
        snprintf(host, size, "%s", HUB);
    else
        snprintf(host, size, "%.*s", (int)n, image);
}

/* "https://host/v1/" and "host" are one. */
static void bare(const char *z, char *out, size_t size)
{
    const char *scheme = strstr(z, "://");
    snprintf(out, size, "%s", scheme ? scheme + 3 : z);
    out[strcspn(out, "/")] = '\0';
}

static bool same_host(struct mango_sv key, const char *host)
{
    text_auto struct text plain = {0};
    char a[256], b[256];
    if (!json_text(key, &plain) || plain.len == 0)
        return false;
    bare(plain.ptr, a, sizeof(a));
    bare(host, b, sizeof(b));
    return strcmp(a, b) == 0;
}

static int value_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+' || c == '-' ? 62
           : c == '/' || c == '_' ? 63
                                  : -1;
}

static bool decode(struct mango_sv in, struct text *out)
{
    uint32_t bits = 0;
    int n = 0;
    for (uint64_t i = 0; i < in.len && in.ptr[i] != '='; i++) {
        int v = value_of(in.ptr[i]);
        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        n += 6;
        if (n >= 8) {
            n -= 8;
            char c = (char)(bits >> n & 0xFF);
            text_bytes(out, &c, 1);
        }
    }
    return !out->bad;
}

static void put_header(struct text *out, struct mango_sv user, struct mango_sv password, struct mango_sv token,
                       const char *host)
{
    text_auto struct text json = {0};
    if (token.len > 0) {
        text_add(&json, "{\"identitytoken\":");
        text_json(&json, token);
    } else {
        text_add(&json, "{\"username\":");
        text_json(&json, user);
        text_add(&json, ",\"password\":");
        text_json(&json, password);
    }
    text_add(&json, ",\"serveraddress\":");
    text_jsonz(&json, host);
    text_add(&json, "}");
    text_base64(out, text_view(&json), true);
    out->bad |= json.bad;
    if (json.ptr)
        explicit_bzero(json.ptr, json.cap);
}

static bool from_entry(struct mango_sv entry, const char *host, struct text *out)
{
    text_auto struct text token = {0};
    text_auto struct text coded = {0};
    text_auto struct text plain = {0};
    if (json_text(json_get(entry, "identitytoken"), &token) && token.len > 0) {
        put_header(out, sv_z(""), sv_z(""), text_view(&token), host);
        return true;
    }
    if (!json_text(json_get(entry, "auth"), &coded) || !decode(text_view(&coded), &plain))
        return false;
    const char *colon = plain.len ? memchr(plain.ptr, ':', plain.len) : NULL;
    if (!colon)
        return false;
    uint64_t user = (uint64_t)(colon - plain.ptr);
    put_header(out, (struct mango_sv){plain.ptr, user}, (struct mango_sv){colon + 1, plain.len - user - 1}, sv_z(""),
               host);
    explicit_bzero(plain.ptr, plain.cap);
    return true;
}

/* The name becomes a part of a program's: letters, digits and -_. alone. */
static int put_helper(struct mango_sv value, char helper[REGISTRY_HELPER_MAX], char *why, size_t why_size)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    text_auto struct text name = {0};
    if (json_text(value, &name) && name.len > 0 && name.len < REGISTRY_HELPER_MAX &&
        strspn(name.ptr, allowed) == name.len) {
        snprintf(helper, REGISTRY_HELPER_MAX, "%s", name.ptr);
        return REGISTRY_HELPER;
    }
    snprintf(why, why_size,
             "names a credential helper that is no name: 1 to %d letters, digits, '-', '_' and '.' are one",
             REGISTRY_HELPER_MAX - 1);
    return -1;
}

int registry_lookup(struct mango_sv config, const char *host, struct text *out, char helper[REGISTRY_HELPER_MAX],
                    char *why, size_t why_size)
{
    struct mango_sv name, entry;
    if (!json_valid(config)) {
        snprintf(why, why_size, "is not JSON");
        return -1;
    }
    struct mango_sv helpers = json_get(config, "credHelpers"), auths = json_get(config, "auths");
    for (uint64_t pos = 0; json_next(helpers, &pos, &name, &entry);) {
        if (same_host(name, host))
            return put_helper(entry, helper, why, why_size);
    }
    for (uint64_t pos = 0; json_next(auths, &pos, &name, &entry);) {
        if (same_host(name, host) && from_entry(entry, host, out))
            return REGISTRY_HEADER;
    }
    struct mango_sv all = json_get(config, "credsStore");
    return all.len > 2 ? put_helper(all, helper, why, why_size) : REGISTRY_NONE; /* "" is none */
}

bool registry_from_helper(struct mango_sv answer, const char *host, struct text *out)
{
    text_auto struct text user = {0};
    text_auto struct text secret = {0};
    bool ok = json_valid(answer) && json_text(json_get(answer, "Username"), &user) &&
              json_text(json_get(answer, "Secret"), &secret) && secret.len > 0;
    if (ok && sv_z("<token>").len == user.len && memcmp(user.ptr, "<token>", user.len) == 0)
        put_header(out, sv_z(""), sv_z(""), text_view(&secret), host);
    else if (ok)
        put_header(out, text_view(&user), text_view(&secret), sv_z(""), host);
    if (secret.ptr)
        explicit_bzero(secret.ptr, secret.cap);
    return ok;
}
