/* Allocation and cleanup helpers. */
#ifndef MG_BASE_MEM_H
#define MG_BASE_MEM_H

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* These abort when memory is gone: use them for small objects of ours only. An allocation whose size a client or
 * a peer chooses goes through a bounded mg_buf or mg_arena, which report the limit instead. */
void *mg_xmalloc(size_t n) __attribute__((malloc, returns_nonnull, alloc_size(1)));
void *mg_xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *mg_xrealloc(void *p, size_t n) __attribute__((returns_nonnull));
char *mg_xstrdup(const char *z) __attribute__((malloc, returns_nonnull));
char *mg_xstrndup(const char *p, size_t n) __attribute__((malloc, returns_nonnull));

/* Overwrites memory in a way that the compiler keeps; for secrets. */
void mg_wipe(void *p, size_t n);

static inline void mg_free_cleanup(void *p)
{
    free(*(void **)p);
}

static inline void mg_fd_cleanup(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* mg_autofree char *s = ...;  mg_autofd int fd = -1; */
#define mg_autofree __attribute__((cleanup(mg_free_cleanup)))
#define mg_autofd __attribute__((cleanup(mg_fd_cleanup)))
/* mg_auto(buf) struct mg_buf b = ...; calls mg_buf_cleanup(&b) at the end of the scope. */
#define mg_auto(noun) __attribute__((cleanup(mg_##noun##_cleanup)))

/* Hands a pointer or descriptor over: the variable forgets it. */
#define mg_steal(p)                      \
    ({                                   \
        __typeof__(*(p)) stolen_ = *(p); \
        *(p) = NULL;                     \
        stolen_;                         \
    })

static inline int mg_steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#endif
