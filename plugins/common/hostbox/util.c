#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/hostbox/hostbox.h"

enum { FAIL_TEXT_MAX = 700 };

mango_status fail(const struct boxes *all, const struct mango_call *call, mango_status s, const char *fmt, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return all->host->err_set(all->host, call, s, text, NULL, 0);
}

mango_status fail_path(const struct boxes *all, const struct mango_call *call, int errnum, struct mango_sv path)
{
    char name[SHOWN_MAX + 1];
    const struct path_error *e = path_error_of(errnum);
    shown(path, name);
    if (e)
        return fail(all, call, e->status, "'%s' %s", name, e->text);
    return fail(all, call, MANGO_EINTERNAL, "'%s': %s", name, strerror(errnum));
}

bool sv_is(struct mango_sv s, const char *z)
{
    return s.len == strlen(z) && memcmp(s.ptr, z, s.len) == 0;
}

char *sv_dup(struct mango_sv s)
{
    if (s.len > 0 && memchr(s.ptr, '\0', s.len))
        return NULL;
    char *z = malloc(s.len + 1);
    if (!z)
        return NULL;
    if (s.len)
        memcpy(z, s.ptr, s.len);
    z[s.len] = '\0';
    return z;
}

void random_hex(char *out, size_t digits)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[64];
    while (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
    }
    for (size_t i = 0; i < digits; i++)
        out[i] = hex[bytes[i % sizeof(bytes)] & 15];
    out[digits] = '\0';
}

uint64_t now_ns(const struct boxes *all)
{
    return all->host->now_ns(all->host);
}
