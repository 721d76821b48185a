#include "common/parcel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/files.h"
#include "common/sv.h"

/* ---- strings ---- */

bool parcel_begin(struct parcel *p, uint64_t room)
{
    *p = (struct parcel){.room = (uint32_t)(room < WIRE_STRINGS_MAX ? room : WIRE_STRINGS_MAX)};
    p->strings = malloc(p->room);
    return p->strings != NULL;
}

bool parcel_string(struct parcel *p, struct mango_sv s)
{
    if (s.len > WIRE_STRING_MAX || p->len + s.len + 1 > p->room || (s.len > 0 && memchr(s.ptr, '\0', s.len)))
        return false;
    if (s.len > 0)
        memcpy(p->strings + p->len, s.ptr, s.len);
    p->len += (uint32_t)s.len;
    p->strings[p->len++] = '\0';
    return true;
}

bool parcel_args(struct parcel *p, const struct mango_sv *args, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++, p->argc++) {
        if (!parcel_string(p, args[i]))
            return false;
    }
    return true;
}

static bool among(const struct mango_sv *own, uint64_t n, const char *variable)
{
    uint64_t name = strcspn(variable, "=");
    for (uint64_t i = 0; i < n; i++) {
        if (own[i].len > name && memcmp(own[i].ptr, variable, name) == 0 && own[i].ptr[name] == '=')
            return true;
    }
    return false;
}

bool parcel_env(struct parcel *p, char *const *base, const struct mango_sv *own, uint64_t n)
{
    for (; *base; base++) {
        if (among(own, n, *base))
            continue;
        if (!parcel_string(p, sv_z(*base)))
            return false;
        p->envc++;
    }
    for (uint64_t i = 0; i < n; i++, p->envc++) {
        if (!parcel_string(p, own[i]))
            return false;
    }
    return true;
}

/* ---- descriptors ---- */

static int open_pipe(struct parcel *p, int *ret_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    *ret_end = ends[0];
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    p->fds[p->n_fds++] = ends[1];
    return 0;
}

int parcel_streams(struct parcel *p, int in, struct ends *ret)
{
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0) {
        int e = errno;
        close(in);
        return e;
    }
    ret->status = sv[0];
    p->fds[p->n_fds++] = sv[1];
    p->fds[p->n_fds++] = in;
    int e = open_pipe(p, &ret->out);
    return e ? e : open_pipe(p, &ret->err);
}

void parcel_fd(struct parcel *p, int fd, uint32_t flag)
{
    p->fds[p->n_fds++] = fd;
    p->flags |= flag;
}

int parcel_payload(struct parcel *p)
{
    if (p->len <= WIRE_INLINE_MAX)
        return 0;
    int fd = memfd_create("args", MFD_CLOEXEC);
    if (fd < 0)
        return errno;
    parcel_fd(p, fd, WIRE_FLAG_PAYLOAD);
    return write_whole(fd, p->strings, p->len) ? 0 : errno;
}

void parcel_done(struct parcel *p)
{
    for (int i = 0; i < p->n_fds; i++)
        close(p->fds[i]);
    free(p->strings);
    *p = (struct parcel){0};
}

/* ---- messages ---- */

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
};

/* fds into m, which has room for WIRE_FDS_MAX. */
static void attach(struct msghdr *m, union control *room, const int *fds, int n)
{
    memset(room, 0, sizeof(*room));
    if (n == 0)
        return;
    m->msg_control = room->bytes;
    m->msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
    memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
}

int parcel_send(int runner, const struct parcel *p)
{
    struct wire_request head = {
        .magic = WIRE_MAGIC, .flags = p->flags, .argc = p->argc, .envc = p->envc, .len = p->len};
    struct iovec iov[2] = {{&head, sizeof(head)}, {p->strings, p->flags & WIRE_FLAG_PAYLOAD ? 0 : p->len}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    union control control;
    attach(&m, &control, p->fds, p->n_fds);
    while (sendmsg(runner, &m, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* ---- status ---- */

bool status_hear(int status, struct wire_event *ret)
{
    struct wire_event ev;
    ssize_t n = recv(status, &ev, sizeof(ev), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    *ret = n == sizeof(ev) ? ev : (struct wire_event){.kind = WIRE_GONE};
    return true;
}

void status_kill(int status)
{
    const struct wire_command cmd = {.kind = WIRE_KILL};
    if (status >= 0)
        (void)send(status, &cmd, sizeof(cmd), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void status_release(const struct ends *e)
{
    struct wire_command cmd = {.kind = WIRE_RELEASE};
    struct iovec iov = {&cmd, sizeof(cmd)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    union control control;
    int fds[2], n = 0;
    if (e->out >= 0)
        fds[n++] = e->out;
    if (e->err >= 0)
        fds[n++] = e->err;
    attach(&m, &control, fds, n);
    (void)sendmsg(e->status, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}
