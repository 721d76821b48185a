/* Mango plugin ABI 1: plain types that cross the line between the server and a plugin.
 *
 * Fixed-width integers only: no enum, bool, bitfield, size_t, time_t, FILE or library type. Text and bytes cross as a
 * pointer with a length. Every struct that may grow begins with struct_size: the side that makes it writes sizeof, the
 * other side reads only the members inside of that size. Nobody frees what the other side allocated. The layout is the
 * one of 64-bit machines. */
#ifndef MANGO_TYPES_H
#define MANGO_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define MANGO_ASSERT(cond) static_assert(cond, #cond)
#else
#define MANGO_ASSERT(cond) _Static_assert(cond, #cond)
#endif

/* Proves at compile time that a member sits where ABI 1 put it. */
#define MANGO_AT(type, member, off) MANGO_ASSERT(offsetof(type, member) == (off))

/* True when the other side's struct reaches as far as the member and the member is set. */
#define MANGO_HAS(p, member) \
    ((p)->struct_size >= offsetof(__typeof__(*(p)), member) + sizeof((p)->member) && (p)->member)
/* True when the other side's struct reaches as far as the member. */
#define MANGO_REACHES(p, member) ((p)->struct_size >= offsetof(__typeof__(*(p)), member) + sizeof((p)->member))

#define MANGO_ABI_MAJOR 1
#define MANGO_ABI_MINOR 0

/* What an operation returns. The core decides about retries; a plugin must choose the class truthfully. */
typedef int32_t mango_status;
#define MANGO_OK 0
#define MANGO_ERETRY (-1) /* transient: connection, overload, 5xx; a later try may work */
#define MANGO_EGONE (-2)  /* the sandbox does not exist any more */
#define MANGO_EDENIED \
    (-3) /* credentials refused, a label that is not ours, a path outside of the roots, no permission */
#define MANGO_EQUOTA (-4)        /* a limit of the service or of the disk */
#define MANGO_EINVALID (-5)      /* the request cannot work as it is: bad argument, special file */
#define MANGO_ECANCELED (-6)     /* the call's token fired */
#define MANGO_ETIMEOUT (-7)      /* the call's deadline passed (not for the time limit of a command: see exec) */
#define MANGO_EINTERNAL (-8)     /* a fault of the plugin or of the service that a retry will not mend */
#define MANGO_ENOENT (-9)        /* the file, snapshot or process does not exist; the sandbox does */
#define MANGO_EUNSUPPORTED (-10) /* this plugin or this object cannot do that */
#define MANGO_ETOOBIG (-11)      /* past a limit that the text names */

/* Borrowed bytes; not NUL-terminated. */
struct mango_sv {
    const char *ptr;
    uint64_t len;
};
MANGO_ASSERT(sizeof(void *) == 8);
MANGO_ASSERT(sizeof(struct mango_sv) == 16);

/* Host-owned, opaque: a bounded growing buffer (host->buf_append), an error text (host->err_set), a cancel token. */
struct mango_buf;
struct mango_err;
struct mango_token;

/* Carried by every operation. Borrowed for the call. */
struct mango_call {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t deadline_ns; /* absolute, host->now_ns time; 0: none. Return MANGO_ETIMEOUT soon after it */
    struct mango_token
        *token; /* NULL: cannot be cancelled; else host->cancelled and host->cancel_fd. Return within 2 s of it */
    struct mango_err *err; /* where host->err_set puts the text; never NULL */
};
MANGO_AT(struct mango_call, deadline_ns, 8);
MANGO_AT(struct mango_call, token, 16);
MANGO_AT(struct mango_call, err, 24);
MANGO_ASSERT(sizeof(struct mango_call) == 32);

/* Bytes that come out of an operation, as they come. The callee copies what it keeps. stream: 1 stdout, 2 stderr, else
 * 0. Returns 0 to go on, anything else to stop being called: the operation then goes on and drops (drains) the rest. */
typedef int32_t mango_sink_fn(void *ctx, int32_t stream, const char *p, uint64_t n);
/* Bytes that go into an operation. Fills at most n bytes; returns their number, 0 at the end, negative (a mango_status)
 * to give up. */
typedef int64_t mango_source_fn(void *ctx, char *p, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
