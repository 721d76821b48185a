#include "common/brought.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/host.h"
#include "common/text.h"

#ifndef MANGO_LIBEXECDIR
#define MANGO_LIBEXECDIR "/usr/local/libexec/mango"
#endif

static char *beside_plugin(const char *name)
{
    Dl_info info;
    static const char anchor = 0; /* any address inside of the plugin's file */
    struct text t = {0};
    if (dladdr(&anchor, &info) == 0 || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    text_printf(&t, "%.*s/%s", slash ? (int)(slash - info.dli_fname) : 1, slash ? info.dli_fname : ".", name);
    if (t.bad)
        text_free(&t);
    return t.ptr;
}

static char *installed(const char *name)
{
    struct text t = {0};
    text_printf(&t, MANGO_LIBEXECDIR "/%s", name);
    if (t.bad)
        text_free(&t);
    return t.ptr;
}

char *brought_path(const char *name, int mode)
{
    char *path = beside_plugin(name);
    if (path && access(path, mode) == 0)
        return path;
    free(path);
    return installed(name);
}

static uint64_t fnv1a(struct mango_sv s)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint64_t i = 0; i < s.len; i++)
        hash = (hash ^ (unsigned char)s.ptr[i]) * UINT64_C(1099511628211);
    return hash;
}

mango_status brought_load(const struct mango_host *h, const struct mango_call *call, const struct brought_file *f,
                          char *path, struct brought *ret)
{
    char piece[65536];
    if (!path)
        path = brought_path(f->name, R_OK);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const char *shown_path = path ? path : f->name;
    *ret = (struct brought){.bytes = h->buf_new(h, f->max)};
    ssize_t n = -1;
    mango_status s = MANGO_OK;
    while (fd >= 0 && ret->bytes && s == MANGO_OK && (n = read(fd, piece, sizeof(piece))) > 0)
        s = h->buf_append(h, ret->bytes, piece, (uint64_t)n);
    if (s < 0)
        s = fail(h, call, MANGO_EINVALID, "%s%.300s has more than %llu bytes; %s", f->title, shown_path,
                 (unsigned long long)f->max, f->remedy);
    else if (n < 0)
        s = fail(h, call, MANGO_EINVALID, "%s%.300s cannot be read: %s; %s", f->title, shown_path, strerror(errno),
                 f->remedy);
    if (fd >= 0)
        close(fd);
    free(path);
    if (s == MANGO_OK) {
        ret->hash = fnv1a(h->buf_view(h, ret->bytes));
    } else {
        h->buf_free(h, ret->bytes);
        *ret = (struct brought){0};
    }
    return s;
}
