#include "peer-rig.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "unit/unit.h"

static char peer_dir[PLUGIN_PATH_MAX];
static FILE *peer_out;
static int peer_in = -1;
static pid_t peer_pid;
static struct mg_plugin_net *net;
static struct mg_plugin_services services;

char peer_sock[PLUGIN_PATH_MAX + 16];
int peer_port_tcp, peer_port_tls, peer_port_proxy, peer_port_socks;
struct mg_registry *peer_registry;
struct mg_plugin *peer_plugin;
const struct mango_host *peer_host;

/* ---- the peer ---- */

static bool read_ports(void)
{
    char line[128];
    while (fgets(line, sizeof(line), peer_out)) {
        const char *port = strchr(line, ' ');
        int n = port ? (int)strtol(port + 1, NULL, 10) : 0;
        if (strncmp(line, "ready", 5) == 0)
            return true;
        if (strncmp(line, "tcp ", 4) == 0)
            peer_port_tcp = n;
        else if (strncmp(line, "tls ", 4) == 0)
            peer_port_tls = n;
        else if (strncmp(line, "proxy ", 6) == 0)
            peer_port_proxy = n;
        else if (strncmp(line, "socks ", 6) == 0)
            peer_port_socks = n;
    }
    return false;
}

static void peer_start(void)
{
    int in[2], out[2];
    char script[PLUGIN_PATH_MAX + 64];
    const char *python = getenv("PYTHON3");
    (void)snprintf(script, sizeof(script), "%s/tests/support/net-peer.py", plugin_srcdir());
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    peer_pid = fork();
    if (peer_pid == 0) {
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execlp(python ? python : "python3", "python3", script, peer_dir, NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    peer_in = in[1];
    peer_out = fdopen(out[0], "r");
    assert_true(read_ports());
    (void)snprintf(peer_sock, sizeof(peer_sock), "%s/peer.sock", peer_dir);
}

int peer_group_up(void **state)
{
    struct mg_err err = {0};
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    plugin_dir_make(peer_dir);
    assert_true(plugin_build(peer_dir, "network", "tests/abi/network.c", ""));
    peer_start();
    assert_int_equal(mg_plugin_net_open(&(struct mg_plugin_net_opts){0}, &net, &err), MG_OK);
    services.net = net;
    peer_registry = mg_registry_new(peer_dir, &services);
    if (mg_registry_get(peer_registry, "network", "MANGO_SANDBOX", (struct mg_sv){0}, &peer_plugin, &err) < 0)
        fail_msg("%s", err.text);
    peer_host = peer_plugin->host;
    return 0;
}

int peer_group_down(void **state)
{
    (void)state;
    mg_registry_free(peer_registry);
    mg_plugin_net_close(net);
    close(peer_in);
    (void)fclose(peer_out);
    (void)waitpid(peer_pid, NULL, 0);
    plugin_dir_remove(peer_dir);
    return 0;
}

/* ---- calls ---- */

struct mango_sv peer_url(char out[128], const char *scheme, int port, const char *path)
{
    (void)snprintf(out, 128, "%s://localhost:%d%s", scheme, port, path);
    return z(out);
}

void peer_answer_cleanup(struct peer_answer *a)
{
    mg_buf_done(&a->body);
    mg_buf_done(&a->headers);
}

static void keep_header(void *ctx, struct mango_sv name, struct mango_sv value)
{
    struct peer_answer *a = ctx;
    (void)mg_buf_printf(&a->headers, "%.*s=%.*s\n", (int)name.len, name.ptr, (int)value.len, value.ptr);
}

void peer_answer_init(struct peer_answer *a)
{
    *a = (struct peer_answer){.body = MG_BUF_INIT(1024 * 1024), .headers = MG_BUF_INIT(64 * 1024)};
    a->res = (struct mango_http_res){
        .struct_size = sizeof(a->res), .body = (struct mango_buf *)&a->body, .on_header = keep_header, .header_ctx = a};
}

int32_t peer_count_sink(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct peer_answer *a = ctx;
    (void)p;
    assert_int_equal(stream, 0);
    a->got += n;
    return a->enough_at && a->got >= a->enough_at;
}

void peer_sink_to(struct peer_answer *a, mango_sink_fn *sink)
{
    a->res.body = NULL;
    a->res.sink = sink;
    a->res.sink_ctx = a;
}

mango_status peer_call_for(struct mango_http_req req, struct peer_answer *a, uint64_t deadline_ns,
                           struct mg_cancel *cancel)
{
    struct mango_call call = mg_plugin_call(deadline_ns, cancel, &a->err);
    req.struct_size = sizeof(req);
    return peer_host->http_call(peer_host, &call, &req, &a->res);
}

mango_status peer_call(struct mango_http_req req, struct peer_answer *a)
{
    return peer_call_for(req, a, mg_now_ns() + (uint64_t)PEER_PATIENCE_S * PEER_SECOND_NS, NULL);
}

mango_status peer_open_conn(struct mango_http_req req, struct peer_answer *a, mango_conn *ret)
{
    struct mango_call c = mg_plugin_call(mg_now_ns() + (uint64_t)PEER_PATIENCE_S * PEER_SECOND_NS, NULL, &a->err);
    req.struct_size = sizeof(req);
    return peer_host->conn_open(peer_host, &c, &req, &a->res, ret);
}

long peer_fact(const char *name)
{
    ANSWER(a);
    char key[64];
    assert_int_equal(peer_call((struct mango_http_req){.url = z("http://peer/facts"), .unix_socket = z(peer_sock)}, &a),
                     MANGO_OK);
    (void)snprintf(key, sizeof(key), "\"%s\": ", name);
    const char *at = strstr(a.body.ptr, key);
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

void peer_fact_is(const char *text)
{
    ANSWER(a);
    assert_int_equal(peer_call((struct mango_http_req){.url = z("http://peer/facts"), .unix_socket = z(peer_sock)}, &a),
                     MANGO_OK);
    assert_contains(a.body.ptr, text);
}

struct peer_pem *peer_pem(const char *name)
{
    struct peer_pem *p = mg_xcalloc(1, sizeof(*p));
    char path[PLUGIN_PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", peer_dir, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    p->sv = (struct mango_sv){p->s, fread(p->s, 1, sizeof(p->s), f)};
    (void)fclose(f);
    return p;
}
