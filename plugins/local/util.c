#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "local/local.h"

enum { FAIL_TEXT_MAX = 700 };

mango_status fail(const struct local *l, const struct mango_call *call, mango_status s, const char *fmt, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return l->host->err_set(l->host, call, s, text, NULL, 0);
}

static const struct {
    int errnum;
    mango_status status;
    const char *text; /* after the path */
} errnos[] = {
    {ENOENT, MANGO_ENOENT, "does not exist"},
    {EXDEV, MANGO_EDENIED, "leads outside of the workspace"},
    {ELOOP, MANGO_EINVALID, "goes through too many symbolic links"},
    {EACCES, MANGO_EDENIED, "cannot be accessed: permission denied"},
    {EPERM, MANGO_EDENIED, "cannot be changed: not permitted"},
    {EROFS, MANGO_EDENIED, "is on a read-only file system"},
    {ENOTDIR, MANGO_EINVALID, "goes through a file: a folder was expected above it"},
    {EISDIR, MANGO_EINVALID, "is a folder, not a file"},
    {ENAMETOOLONG, MANGO_EINVALID, "is too long: a name has at most 255 bytes, a path at most 4,095"},
    {EINVAL, MANGO_EINVALID, "is not a path: it holds a NUL byte"},
    {ENOSPC, MANGO_EQUOTA, "cannot be written: no space left on the disk"},
    {EDQUOT, MANGO_EQUOTA, "cannot be written: the disk quota is used up"},
    {EFBIG, MANGO_EQUOTA, "cannot be written: larger than the file system or a limit allows"},
    {EMFILE, MANGO_ERETRY, "cannot be opened: the server has too many open files"},
    {ENFILE, MANGO_ERETRY, "cannot be opened: the host has too many open files"},
    {EAGAIN, MANGO_ERETRY, "is being renamed all the time"},
};

mango_status fail_path(const struct local *l, const struct mango_call *call, int errnum, struct mango_sv path)
{
    char name[SHOWN_MAX + 1];
    shown(path, name);
    for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++) {
        if (errnos[i].errnum == errnum)
            return fail(l, call, errnos[i].status, "'%s' %s", name, errnos[i].text);
    }
    return fail(l, call, MANGO_EINTERNAL, "'%s': %s", name, strerror(errnum));
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

void shown(struct mango_sv path, char out[SHOWN_MAX + 1])
{
    size_t n = path.len < SHOWN_MAX ? path.len : SHOWN_MAX;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)path.ptr[i];
        out[i] = c < 0x20 || c >= 0x7F ? '?' : (char)c;
    }
    out[n] = '\0';
}

uint64_t now_ns(const struct local *l)
{
    return l->host->now_ns(l->host);
}
