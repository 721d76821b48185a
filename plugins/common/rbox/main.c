#include "common/rbox/rbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/errand/program.h"

enum { USAGE = 64 };

struct confine ws = {.root_fd = -1};
int run_dir = -1;

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* In place: it only becomes shorter. */
static void decode(char *z)
{
    char *out = z;
    for (const char *in = z; *in; in++) {
        bool escaped = in[0] == '%' && hex(in[1]) >= 0 && hex(in[2]) >= 0;
        *out++ = escaped ? (char)(hex(in[1]) << 4 | hex(in[2])) : *in;
        in += escaped ? 2 : 0;
    }
    *out = '\0';
}

static bool number(const char *z, uint64_t *ret)
{
    char *end = NULL;
    errno = 0;
    *ret = *z >= '0' && *z <= '9' ? strtoull(z, &end, 10) : 0;
    return end && !*end && errno == 0;
}

/* a: ROOT and what follows, n of them. */
static int run(char **a, int n)
{
    uint64_t in, envc;
    struct command c = {.id = a[1], .cwd = n > 6 ? a[6] : ""};
    if (n < 9 || !number(a[2], &c.offset) || !number(a[3], &c.limit_ms) || !number(a[4], &c.max) ||
        !number(a[5], &in) || !number(a[7], &envc) || envc > (uint64_t)n - 9)
        return USAGE;
    c.in = in;
    c.env = a + 8;
    c.envc = (uint32_t)envc;
    c.argv = a + 8 + envc;
    c.argc = (uint32_t)n - 8 - c.envc;
    return run_main(&c);
}

static int hello(void)
{
    struct stat st;
    began();
    if (fstat(ws.root_fd, &st) < 0 || !confine_works(ws.root_fd))
        return say_errno(ENOSYS, "the sandbox's kernel is older than 5.6: it has no openat2");
    return say_result("{\"how\":\"" RBOX_DONE "\"}");
}

static int dispatch(const char *what, char **a, int n)
{
    uint64_t x, y;
    if (strcmp(what, "hello") == 0)
        return hello();
    if (strcmp(what, "sync") == 0) {
        began();
        sync();
        return say_result("{\"how\":\"" RBOX_DONE "\"}");
    }
    if (n < 2 || !id_ok(a[1]))
        return USAGE;
    if (strcmp(what, "run") == 0)
        return run(a, n);
    if (strcmp(what, "kill") == 0)
        return kill_main(a[1]);
    if (strcmp(what, "stat") == 0 && n == 4 && number(a[2], &x))
        return stat_main(a[3], x);
    if (strcmp(what, "read") == 0 && n == 5 && number(a[2], &x) && number(a[3], &y))
        return read_main(a[1], x, y, a[4]);
    if (strcmp(what, "put") == 0 && n == 4 && number(a[2], &x))
        return put_main(a[1], (uint32_t)x, a[3]);
    return USAGE;
}

int main(int argc, char **argv)
{
    bool encoded = false;
    int i = 1;
    signal(SIGPIPE, SIG_IGN);
    for (; i < argc && argv[i][0] == '-'; i++)
        encoded |= strcmp(argv[i], "-x") == 0;
    for (int k = i + 1; encoded && k < argc; k++)
        decode(argv[k]);
    if (i < argc && strcmp(argv[i], "errand") == 0)
        return errand_main(argv[0], argv + i + 1, argc - i - 1);
    if (argc - i < 2) {
        fputs("mango-rbox: started by the sandbox backend of a service, not by hand\n", stderr);
        return USAGE;
    }
    if (!open_root(argv[i + 1])) {
        began();
        return say_errno(errno, "the workspace cannot be used");
    }
    return dispatch(argv[i], argv + i + 1, argc - i - 1);
}
