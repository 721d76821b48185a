#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/conformance-internal.h"

/* What holds commands back: the network, read-only mounts, limits, the host itself. */

enum {
    CONNECT_MS = 4000, /* for a connection to this machine to come about, or to be dropped on its way */
    ADDRESSES_MAX = 4, /* of this machine that are tried */
    MEMORY = 96 * 1024 * 1024,
    PIDS = 48,
};

/* ---- the network ---- */

static struct mango_sandbox_spec networked(struct mango_network *net, uint32_t mode)
{
    *net = (struct mango_network){.struct_size = sizeof(*net), .mode = mode};
    return (struct mango_sandbox_spec){.struct_size = sizeof(struct mango_sandbox_spec), .network = net};
}

static int listen_here(char port[8])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 8) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &len) == 0) {
        snprintf(port, 8, "%u", ntohs(a.sin_port));
        return fd;
    }
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static int own_addresses(char out[ADDRESSES_MAX][INET_ADDRSTRLEN])
{
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all) < 0)
        return 0;
    for (const struct ifaddrs *i = all; i && n < ADDRESSES_MAX; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP))
            continue;
        const void *in = &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        n += inet_ntop(AF_INET, in, out[n], INET_ADDRSTRLEN) != NULL;
    }
    freeifaddrs(all);
    return n;
}

/* Takes what has arrived; true when anything had. */
static bool anybody(int fd)
{
    bool any = false;
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);
    for (int peer; (peer = accept4(fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC)) >= 0; len = sizeof(from)) {
        any = true;
        (void)close(peer);
    }
    return any;
}

static const char connect_script[] =
    "if command -v bash >/dev/null; then bash -c 'exec 3<>/dev/tcp/$0/$1' $1 $2; "
    "elif command -v nc >/dev/null; then nc -w 2 $1 $2 </dev/null; "
    "elif command -v wget >/dev/null; then wget -q -T 2 -O /dev/null http://$1:$2/; "
    "elif command -v curl >/dev/null; then curl -s -m 2 http://$1:$2/; "
    "elif command -v python3 >/dev/null; then python3 -c 'import socket,sys; "
    "socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)' $1 $2; else echo no-tool; fi >tried 2>&1; cat tried";

/* No connection from the present sandbox reaches this machine, by whatever address. */
static void reaches_nobody(struct cf *c, const char *what)
{
    char port[8], addresses[ADDRESSES_MAX][INET_ADDRSTRLEN];
    int fd = listen_here(port), n = own_addresses(addresses);
    bool no_tool = false;
    if (!cf_check(c, fd >= 0, "this machine cannot listen: %s", strerror(errno)))
        return;
    for (int i = 0; i < n; i++) {
        const char *const args[] = {"sh", addresses[i], port, NULL};
        struct cf_exec x = {.script = connect_script, .args = args, .limit_ms = CONNECT_MS};
        cf_exec(c, &x);
        no_tool |= mg_sv_eqz(mg_buf_view(&x.out), "no-tool\n");
        (void)cf_check(c, !anybody(fd), "%s: a command reached %s", what, addresses[i]);
        cf_exec_done(&x);
    }
    (void)close(fd);
    if (no_tool) /* then it must be seen another way */
        (void)cf_says(c, "grep -c : /proc/net/dev", 0, "1\n");
    cf_note(c, "%d addresses of this machine tried%s", n, no_tool ? ", without a tool that connects" : "");
}

static void mode_none_reaches_nobody(struct cf *c)
{
    struct mango_network net;
    struct mango_sandbox_spec spec = networked(&net, MANGO_NET_NONE);
    if (cf_second(c, &spec))
        reaches_nobody(c, "without a network");
}

static void an_empty_allow_list_reaches_nobody(struct cf *c)
{
    struct mg_err err;
    struct mango_network net;
    struct mango_sandbox_spec spec = networked(&net, MANGO_NET_LIMITED);
    if (!cf_second(c, &spec))
        return;
    reaches_nobody(c, "limited from the start");
    struct mango_sv host = {"example.invalid", 15};
    net.hosts = &host;
    net.n_hosts = 1;
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    mango_status s = c->p->sandbox->set_network(c->p->ctx, &call, cf_id(c), &net);
    (void)cf_check(c, s == MANGO_OK, "set_network: status %d: %s", (int)s, err.text);
    reaches_nobody(c, "limited to another host");
}

static void limits_are_set_while_it_runs(struct cf *c)
{
    struct mg_err err;
    struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_LIMITED};
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    mango_status s = c->p->sandbox->set_network(c->p->ctx, &call, cf_id(c), &net);
    if (cf_check(c, s == MANGO_OK || s == MANGO_EUNSUPPORTED, "set_network on an open one: status %d: %s", (int)s,
                 err.text) &&
        s == MANGO_OK)
        reaches_nobody(c, "limited later");
}

/* ---- mounts ---- */

static void mounts_are_there_and_read_only(struct cf *c)
{
    char dir[] = "/tmp/mango-conformance-XXXXXX", file[64];
    struct mango_network net;
    struct mango_sandbox_spec spec = networked(&net, MANGO_NET_OPEN);
    if (!cf_check(c, mkdtemp(dir) != NULL, "no folder under /tmp: %s", strerror(errno)))
        return;
    snprintf(file, sizeof(file), "%s/f", dir);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    (void)cf_check(c, fd >= 0 && write(fd, "hosts", 5) == 5 && fchmod(fd, 0666) == 0 && chmod(dir, 0777) == 0,
                   "cannot prepare %s", file);
    (void)close(fd);
    struct mango_mount m = {.struct_size = sizeof(m), .source = {dir, strlen(dir)}, .target = {"/mnt/conformance", 16}};
    spec.mounts = &m;
    spec.n_mounts = 1;
    if (cf_second(c, &spec)) {
        (void)cf_says(c, "cat /mnt/conformance/f", 0, "hosts");
        (void)cf_says(
            c,
            "{ echo x >/mnt/conformance/f; echo x >/mnt/conformance/new; rm -f /mnt/conformance/f; "
            "chmod 600 /mnt/conformance/f; mount -o remount,rw /mnt/conformance; echo x >/mnt/conformance/f; } "
            "2>/dev/null; cat /mnt/conformance/f; ls /mnt/conformance",
            0, "hostsf\n");
        (void)cf_check(c, cf_write(c, MG_SV("/mnt/conformance/f"), MG_SV("x")) < 0, "a write into the mount succeeded");
    }
    char back[8] = "";
    fd = open(file, O_RDONLY | O_CLOEXEC);
    (void)cf_check(c, fd >= 0 && read(fd, back, sizeof(back)) == 5 && memcmp(back, "hosts", 5) == 0,
                   "the host's file was changed through the mount");
    if (fd >= 0)
        (void)close(fd);
    (void)unlink(file);
    (void)rmdir(dir);
}

/* ---- limits ---- */

static void memory_and_processes_are_limited(struct cf *c)
{
    struct mango_network net;
    struct mango_sandbox_spec spec = networked(&net, MANGO_NET_OPEN);
    spec.memory_bytes = MEMORY;
    spec.pids = PIDS;
    if (!cf_second(c, &spec))
        return;
    struct cf_exec big = {.script = "head -c 268435456 /dev/zero | tail -c 268435456 | wc -c", .limit_ms = 60000};
    cf_exec(c, &big);
    (void)cf_check(c, memmem(mg_buf_view(&big.out).ptr, big.out.len, "268435456", 9) == NULL,
                   "a command kept 256 MiB with a limit of 96 MiB");
    cf_exec_done(&big);
    (void)cf_says(c, "echo alive", 0, "alive\n");
    struct cf_exec many = {.script =
                               "i=0; p=; while [ $i -lt 96 ]; do sleep $MARK & p=\"$p $!\"; i=$((i+1)); done; n=0; "
                               "for q in $p; do kill -0 $q && n=$((n+1)); done; echo $n; kill -9 $p",
                           .limit_ms = 60000};
    cf_exec(c, &many);
    (void)cf_check(c, !mg_sv_eqz(mg_buf_view(&many.out), "96\n"), "96 processes lived with a limit of %d", PIDS);
    cf_exec_done(&many);
}

/* ---- the host ---- */

static pid_t sleeper(const char *seconds)
{
    pid_t pid = 0;
    const char *const argv[] = {"sleep", seconds, NULL};
    return posix_spawnp(&pid, "sleep", NULL, NULL, (char *const *)argv, environ) == 0 ? pid : 0;
}

static void the_host_is_out_of_sight(struct cf *c)
{
    struct mango_sandbox_spec spec = {.struct_size = sizeof(spec)}; /* the plugin's own, closest to no network */
    char file[64], script[512];
    snprintf(file, sizeof(file), "/var/tmp/mango-conformance-%s", c->mark);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    (void)cf_check(c, fd >= 0, "cannot make %s: %s", file, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    pid_t pid = sleeper(c->mark);
    if (cf_second(c, &spec)) {
        (void)cf_nothing_left(c); /* the sleeper is the host's: a command must not see it */
        snprintf(
            script, sizeof(script),
            "ls -d %s /proc/1/root%s 2>/dev/null; (: >%s) 2>/dev/null; for s in /run/docker.sock /var/run/docker.sock; "
            "do test -S $s && echo $s; done; true",
            file, file, file);
        (void)cf_says(c, script, 0, "");
        snprintf(script, sizeof(script), "kill -9 %d 2>/dev/null; true", (int)pid);
        struct cf_exec x = {.script = script};
        cf_exec(c, &x); /* there it is another process, or none */
        cf_exec_done(&x);
        (void)cf_check(c, pid > 0 && waitpid(pid, NULL, WNOHANG) == 0, "a command ended a process of the host");
    }
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    struct stat st;
    (void)cf_check(c, stat(file, &st) == 0 && st.st_size == 0, "a command changed a file of the host");
    (void)unlink(file);
}

const struct cf_case cf_boundary_cases[] = {
    CF_CASE(MANGO_CAP_NO_NETWORK, mode_none_reaches_nobody),
    CF_CASE(MANGO_CAP_EGRESS_LIMITED, an_empty_allow_list_reaches_nobody),
    CF_CASE(MANGO_CAP_EGRESS_LIMITED, limits_are_set_while_it_runs),
    CF_CASE(MANGO_CAP_MOUNTS_RO, mounts_are_there_and_read_only),
    CF_CASE(MANGO_CAP_LIMITS, memory_and_processes_are_limited),
    CF_CASE(MANGO_CAP_ISOLATED, the_host_is_out_of_sight),
    {NULL, 0, NULL},
};
