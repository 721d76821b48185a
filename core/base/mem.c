/* Allocation that aborts when memory is gone. */
#include "base/mem.h"

#include <string.h>

static void out_of_memory(void)
{
    static const char line[] = "mango: out of memory\n";

    (void)!write(STDERR_FILENO, line, sizeof(line) - 1);
    abort();
}

void *mg_xmalloc(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (!p)
        out_of_memory();
    return p;
}

void *mg_xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p)
        out_of_memory();
    return p;
}

void *mg_xrealloc(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);

    if (!q)
        out_of_memory();
    return q;
}

char *mg_xstrdup(const char *z)
{
    return mg_xstrndup(z, strlen(z));
}

char *mg_xstrndup(const char *p, size_t n)
{
    char *s = mg_xmalloc(n + 1);

    if (n)
        memcpy(s, p, n);
    s[n] = '\0';
    return s;
}

void mg_wipe(void *p, size_t n)
{
    if (n)
        explicit_bzero(p, n);
}
