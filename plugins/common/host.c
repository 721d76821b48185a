#include "common/host.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FAIL_TEXT_MAX = 700 /* bytes of an error; a path in it has SHOWN_MAX */ };

struct path_error {
    int errnum;
    mango_status status;
    const char *text; /* after the path */
};
static const struct path_error errnos[] = {
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

/* NULL: none that has words of its own. */
static const struct path_error *path_error_of(int errnum)
{
    for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++) {
        if (errnos[i].errnum == errnum)
            return &errnos[i];
    }
    return NULL;
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

mango_status fail(const struct mango_host *h, const struct mango_call *call, mango_status s, const char *fmt, ...)
{
    char text[FAIL_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return h->err_set(h, call, s, text, NULL, 0);
}

mango_status fail_path_as(const struct mango_host *h, const struct mango_call *call, int errnum, struct mango_sv path,
                          struct mango_sv text)
{
    char name[SHOWN_MAX + 1];
    const struct path_error *e = path_error_of(errnum);
    shown(path, name);
    if (text.len > 0)
        return fail(h, call, e ? e->status : MANGO_EINTERNAL, "'%s' %.*s", name, (int)text.len, text.ptr);
    if (e)
        return fail(h, call, e->status, "'%s' %s", name, e->text);
    return fail(h, call, MANGO_EINTERNAL, "'%s': %s", name, strerror(errnum));
}

mango_status fail_path(const struct mango_host *h, const struct mango_call *call, int errnum, struct mango_sv path)
{
    return fail_path_as(h, call, errnum, path, no_text());
}
