/* Cancellation: an atomic flag for those who ask and an eventfd for those who poll. */
#include "base/cancel.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

struct mg_cancel {
    atomic_uint refs;
    atomic_bool fired;
    int fd; /* -1 when the process was out of descriptors: then only the flag works */
};

struct mg_cancel *mg_cancel_new(void)
{
    struct mg_cancel *c = mg_xcalloc(1, sizeof(*c));

    atomic_init(&c->refs, 1);
    atomic_init(&c->fired, false);
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c;
}

struct mg_cancel *mg_cancel_ref(struct mg_cancel *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void mg_cancel_unref(struct mg_cancel *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

void mg_cancel_fire(struct mg_cancel *c)
{
    static const uint64_t one = 1;

    if (atomic_exchange_explicit(&c->fired, true, memory_order_acq_rel) || c->fd < 0)
        return;
    (void)!write(c->fd, &one, sizeof(one)); /* the first write to an eventfd cannot block */
}

bool mg_cancel_fired(const struct mg_cancel *c)
{
    return c && atomic_load_explicit(&c->fired, memory_order_acquire);
}

int mg_cancel_fd(struct mg_cancel *c)
{
    return c->fd;
}
