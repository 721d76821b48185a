/* Bounded growing buffer. ptr always has room for len, a NUL, and stays below max plus the NUL. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

enum { BUF_FIRST_CAP = 128 /* bytes; most log lines and headers fit */ };

static mg_rc fail(struct mg_buf *b)
{
    free(b->ptr);
    b->ptr = NULL;
    b->len = b->cap = 0;
    b->failed = true;
    return MG_ETOOBIG;
}

void mg_buf_done(struct mg_buf *b)
{
    free(b->ptr);
    b->ptr = NULL;
    b->len = b->cap = 0;
    b->failed = false;
}

void mg_buf_wipe(struct mg_buf *b)
{
    if (b->ptr)
        mg_wipe(b->ptr, b->cap);
    mg_buf_done(b);
}

mg_rc mg_buf_reserve(struct mg_buf *b, size_t n)
{
    size_t need, cap;

    if (b->failed)
        return MG_ETOOBIG;
    if (n > b->max || b->len > b->max - n)
        return fail(b);
    need = b->len + n + 1;
    if (need <= b->cap)
        return MG_OK;
    cap = b->cap ? b->cap : BUF_FIRST_CAP;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    if (cap > b->max && b->max < SIZE_MAX)
        cap = b->max + 1 > need ? b->max + 1 : need;
    char *p = realloc(b->ptr, cap);
    if (!p)
        return fail(b);
    if (!b->ptr)
        p[0] = '\0';
    b->ptr = p;
    b->cap = cap;
    return MG_OK;
}

mg_rc mg_buf_append(struct mg_buf *b, const void *p, size_t n)
{
    mg_rc rc = mg_buf_reserve(b, n);

    if (rc < 0)
        return rc;
    if (n)
        memcpy(b->ptr + b->len, p, n);
    b->len += n;
    b->ptr[b->len] = '\0';
    return MG_OK;
}

mg_rc mg_buf_sv(struct mg_buf *b, struct mg_sv s)
{
    return mg_buf_append(b, s.ptr, s.len);
}

mg_rc mg_buf_str(struct mg_buf *b, const char *z)
{
    return mg_buf_append(b, z, strlen(z));
}

mg_rc mg_buf_char(struct mg_buf *b, char c)
{
    return mg_buf_append(b, &c, 1);
}

mg_rc mg_buf_percent(struct mg_buf *b, struct mg_sv s)
{
    mg_rc rc = MG_OK;
    for (size_t i = 0; i < s.len && rc >= 0; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '.' || c == '_' || c == '~';
        rc = plain ? mg_buf_char(b, (char)c) : mg_buf_printf(b, "%%%02X", c);
    }
    return rc;
}

mg_rc mg_buf_printf(struct mg_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n;
    mg_rc rc;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    rc = n < 0 ? fail(b) : mg_buf_reserve(b, (size_t)n);
    if (rc == MG_OK) {
        (void)vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

void mg_buf_consume(struct mg_buf *b, size_t n)
{
    if (n > b->len)
        n = b->len;
    if (!n)
        return;
    memmove(b->ptr, b->ptr + n, b->len - n);
    b->len -= n;
    b->ptr[b->len] = '\0';
}

void mg_buf_reset(struct mg_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->ptr)
        b->ptr[0] = '\0';
}

char *mg_buf_steal(struct mg_buf *b, size_t *ret_len)
{
    char *p = b->ptr ? b->ptr : mg_xstrdup("");

    if (ret_len)
        *ret_len = b->len;
    b->ptr = NULL;
    b->len = b->cap = 0;
    return p;
}
