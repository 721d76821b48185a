/* The host's network services against real peers (tests/support/net-peer.py): unix sockets, TLS with client certificates, proxies, streamed
 * bodies with back-pressure, upgraded connections, and peers that misbehave. */
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "net/upgrade.h"
#include "plugin/counters.h"
#include "plugin/net.h"
#include "support/plugin-build.h"

enum {
    SECOND_NS = 1000000000,
    PATIENCE_S = 20, /* for what must end by itself */
    PEM_MAX = 64 * 1024,
};

static char dir[PLUGIN_PATH_MAX], sock[PLUGIN_PATH_MAX + 16];
static FILE *peer_out;
static int peer_in = -1, port_tcp, port_tls, port_proxy, port_socks;
static pid_t peer;
static struct mg_plugin_net *net;
static struct mg_plugin_services services;
static struct mg_registry *registry;
static struct mg_plugin *plugin;
static const struct mango_host *host;

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
            port_tcp = n;
        else if (strncmp(line, "tls ", 4) == 0)
            port_tls = n;
        else if (strncmp(line, "proxy ", 6) == 0)
            port_proxy = n;
        else if (strncmp(line, "socks ", 6) == 0)
            port_socks = n;
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
    peer = fork();
    if (peer == 0) {
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execlp(python ? python : "python3", "python3", script, dir, NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    peer_in = in[1];
    peer_out = fdopen(out[0], "r");
    assert_true(read_ports());
    (void)snprintf(sock, sizeof(sock), "%s/peer.sock", dir);
}

static int open_all(void **state)
{
    struct mg_err err = {0};
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    plugin_dir_make(dir);
    assert_true(plugin_build(dir, "network", "tests/abi/network.c", ""));
    peer_start();
    assert_int_equal(mg_plugin_net_open(&(struct mg_plugin_net_opts){0}, &net, &err), MG_OK);
    services.net = net;
    registry = mg_registry_new(dir, &services);
    if (mg_registry_get(registry, "network", "MANGO_SANDBOX", (struct mg_sv){0}, &plugin, &err) < 0)
        fail_msg("%s", err.text);
    host = plugin->host;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    mg_registry_free(registry);
    mg_plugin_net_close(net);
    close(peer_in);
    (void)fclose(peer_out);
    (void)waitpid(peer, NULL, 0);
    plugin_dir_remove(dir);
    return 0;
}

/* ---- calls ---- */

static struct mango_sv z(const char *s)
{
    return (struct mango_sv){s, strlen(s)};
}

static struct mango_sv url(char out[128], const char *scheme, int port, const char *path)
{
    (void)snprintf(out, 128, "%s://localhost:%d%s", scheme, port, path);
    return z(out);
}

/* What the answer said. */
struct answer {
    struct mg_buf body, headers;
    struct mango_http_res res;
    uint64_t got;       /* bytes that came to the sink */
    uint64_t enough_at; /* the sink has enough then; 0: never */
    struct mg_err err;
};

static void answer_cleanup(struct answer *a)
{
    mg_buf_done(&a->body);
    mg_buf_done(&a->headers);
}

#define ANSWER(name)                                             \
    __attribute__((cleanup(answer_cleanup))) struct answer name; \
    answer_init(&(name))

static void keep_header(void *ctx, struct mango_sv name, struct mango_sv value)
{
    struct answer *a = ctx;
    (void)mg_buf_printf(&a->headers, "%.*s=%.*s\n", (int)name.len, name.ptr, (int)value.len, value.ptr);
}

static void answer_init(struct answer *a)
{
    *a = (struct answer){.body = MG_BUF_INIT(1024 * 1024), .headers = MG_BUF_INIT(64 * 1024)};
    a->res = (struct mango_http_res){
        .struct_size = sizeof(a->res), .body = (struct mango_buf *)&a->body, .on_header = keep_header, .header_ctx = a};
}

static int32_t count_sink(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct answer *a = ctx;
    (void)p;
    assert_int_equal(stream, 0);
    a->got += n;
    return a->enough_at && a->got >= a->enough_at;
}

static void sink_to(struct answer *a, mango_sink_fn *sink)
{
    a->res.body = NULL;
    a->res.sink = sink;
    a->res.sink_ctx = a;
}

static mango_status call_for(struct mango_http_req req, struct answer *a, uint64_t deadline_ns,
                             struct mg_cancel *cancel)
{
    struct mango_call call = mg_plugin_call(deadline_ns, cancel, &a->err);
    req.struct_size = sizeof(req);
    return host->http_call(host, &call, &req, &a->res);
}

static mango_status call(struct mango_http_req req, struct answer *a)
{
    return call_for(req, a, mg_now_ns() + (uint64_t)PATIENCE_S * SECOND_NS, NULL);
}

static mango_status open_conn(struct mango_http_req req, struct answer *a, mango_conn *ret)
{
    struct mango_call c = mg_plugin_call(mg_now_ns() + (uint64_t)PATIENCE_S * SECOND_NS, NULL, &a->err);
    req.struct_size = sizeof(req);
    return host->conn_open(host, &c, &req, &a->res, ret);
}

/* A number of /facts, or 0. */
static long fact(const char *name)
{
    ANSWER(a);
    char key[64];
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/facts"), .unix_socket = z(sock)}, &a),
                     MANGO_OK);
    (void)snprintf(key, sizeof(key), "\"%s\": ", name);
    const char *at = strstr(a.body.ptr, key);
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

static void fact_is(const char *text)
{
    ANSWER(a);
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/facts"), .unix_socket = z(sock)}, &a),
                     MANGO_OK);
    assert_contains(a.body.ptr, text);
}

struct pem {
    char s[PEM_MAX];
    struct mango_sv sv;
};

static struct pem *pem(const char *name)
{
    struct pem *p = mg_xcalloc(1, sizeof(*p));
    char path[PLUGIN_PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    p->sv = (struct mango_sv){p->s, fread(p->s, 1, sizeof(p->s), f)};
    (void)fclose(f);
    return p;
}

/* ---- the plugin itself ---- */

static int32_t collect(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    (void)mg_buf_append(ctx, p, n);
    return 0;
}

static void a_plugin_that_needs_http_loads_and_uses_it(void **state)
{
    (void)state;
    static const struct {
        const char *what, *url, *want;
    } cases[] = {
        {"http", "http://peer/echo", "hello"},
        {"hijack", "http://peer/upgrade", "early hellofarewell"},
        {"hijack", "http://peer/hijack", "hellofarewell"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_err err = {0};
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4096);
        struct mango_call c = mg_plugin_call(mg_now_ns() + (uint64_t)PATIENCE_S * SECOND_NS, NULL, &err);
        const struct mango_sv argv[] = {z(cases[i].what), z(cases[i].url), z(sock), z("hello")};
        struct mango_exec_req req = {
            .struct_size = sizeof(req), .argv = argv, .n_argv = 4, .sink = collect, .sink_ctx = &out};
        struct mango_exec_result ret = {.struct_size = sizeof(ret)};
        assert_int_equal(plugin->sandbox->exec(plugin->ctx, &c, z("x"), &req, &ret), MANGO_OK);
        assert_sv_equal(mg_buf_view(&out), cases[i].want);
    }
    fact_is("\"upgrade\": \"tcp\"");
    fact_is("\"body\": \"{\\\"Tty\\\":false}\"");
    fact_is("\"content-length\": \"13\"");
}

static void counters_are_checked_and_bounded(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(256 * 1024);
    char name[64];
    host->metric_add(host, "bytes_sent", 40);
    host->metric_add(host, "bytes_sent", 2);
    static const char *const bad[] = {
        "",        "Upper",  "two words", "a\"} 1\nx",
        "digits9", "_first", NULL,        "much_too_long_for_the_name_of_a_counter_of_a_plugin"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        host->metric_add(host, bad[i], 1);
    host->metric_add(host, "never", 0);
    host->metric_add(host, "never", -5);
    for (int i = 0; i < 2 * MG_COUNTERS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "flood_%c%c", 'a' + i / 26, 'a' + i % 26);
        host->metric_add(host, name, 1);
    }
    mg_registry_metrics(registry, &out);
    assert_contains(
        out.ptr,
        "# TYPE mango_plugin_bytes_sent_total counter\nmango_plugin_bytes_sent_total{plugin=\"network\"} 42\n");
    assert_contains(out.ptr, "mango_plugin_execs_total{plugin=\"network\"} ");
    assert_null(strstr(out.ptr, "never"));
    assert_null(strstr(out.ptr, "Upper"));
    int series = 0;
    for (const char *at = out.ptr; (at = strstr(at, "_total{plugin=\"network\"}")); at++)
        series++;
    assert_int_equal(series, MG_COUNTERS_MAX);
}

/* ---- http_call ---- */

static void unix_sockets_carry_requests_and_are_reused(void **state)
{
    (void)state;
    const struct mango_http_header h[] = {{z("X-One"), z("a: b")}, {z("Host"), z("docker")}};
    for (int i = 0; i < 3; i++) {
        ANSWER(a);
        assert_int_equal(call((struct mango_http_req){.method = z("PUT"),
                                                      .url = z("http://peer/echo"),
                                                      .unix_socket = z(sock),
                                                      .headers = h,
                                                      .n_headers = 2,
                                                      .body = z("content")},
                              &a),
                         MANGO_OK);
        assert_int_equal(a.res.status, 200);
        assert_sv_equal(mg_buf_view(&a.body), "content");
        assert_contains(a.headers.ptr, "X-Answer=yes\n");
        assert_true(a.res.flags & MANGO_HTTP_RES_SENT);
        assert_true(i == 0 || (a.res.flags & MANGO_HTTP_RES_REUSED));
    }
    fact_is("\"method\": \"PUT\", \"headers\": {\"host\": \"docker\"");
    fact_is("\"x-one\": \"a: b\"");
}

static void a_missing_socket_is_told_from_a_request_that_went_out(void **state)
{
    (void)state;
    ANSWER(a);
    assert_int_equal(
        call((struct mango_http_req){.url = z("http://peer/"), .unix_socket = z("/nonexistent/x.sock")}, &a),
        MANGO_ERETRY);
    assert_int_equal(a.res.flags & MANGO_HTTP_RES_SENT, 0);
    ANSWER(b);
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/once"), .unix_socket = z(sock)}, &b),
                     MANGO_ERETRY);
    assert_true(b.res.flags & MANGO_HTTP_RES_SENT);
}

static void what_must_happen_once_is_sent_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* with an idle connection in the pool each time */
        ANSWER(warm);
        ANSWER(a);
        assert_int_equal(call((struct mango_http_req){.url = z("http://peer/echo"), .unix_socket = z(sock)}, &warm),
                         MANGO_OK);
        long before = fact("once");
        assert_int_equal(call((struct mango_http_req){.method = z("POST"),
                                                      .url = z("http://peer/once"),
                                                      .unix_socket = z(sock),
                                                      .flags = MANGO_HTTP_ONCE},
                              &a),
                         MANGO_ERETRY);
        assert_int_equal(fact("once") - before, 1);
    }
}

static void bad_requests_never_leave(void **state)
{
    (void)state;
    static const struct mango_http_header crlf[] = {{{"X", 1}, {"a\r\nB: c", 7}}};
    char long_path[200];
    memset(long_path, 'x', sizeof(long_path));
    const struct mango_http_req bad[] = {
        {.url = z("ftp://x/")},
        {.url = z("http://user:pw@x/")},
        {.url = z("http://peer/"), .unix_socket = {long_path, sizeof(long_path)}},
        {.url = z("http://peer/"), .unix_socket = z("a\nb")},
        {.url = z("http://peer/"), .connect_to = z("nowhere")},
        {.url = z("http://peer/"), .connect_to = z("host:0")},
        {.url = z("http://peer/"), .proxy = z("::::")},
        {.url = z("http://peer/"), .headers = crlf, .n_headers = 1},
        {.url = z("http://peer/"), .headers = crlf, .n_headers = 1000},
        {.url = z("http://peer/"), .method = z("G T")},
        {.url = z("http://peer/"), .flags = 1u << 20},
        {.url = z("http://peer/"), .flags = MANGO_HTTP_RAW},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ANSWER(a);
        if (call(bad[i], &a) != MANGO_EINVALID)
            fail_msg("case %zu: %s", i, a.err.text);
        assert_int_equal(a.res.flags, 0);
    }
    ANSWER(a);
    assert_int_equal(call((struct mango_http_req){.url = z("https://peer/"), .flags = MANGO_HTTP_INSECURE}, &a),
                     MANGO_EDENIED);
    assert_contains(a.err.text, "MANGO_PLUGIN_INSECURE_TLS");
}

struct source {
    uint64_t total, given;
    int64_t fail; /* returned at half of it, when not 0 */
    uint64_t delay_ns;
    atomic_uint_fast64_t calls;
};

static int64_t give(void *ctx, char *p, uint64_t n)
{
    struct source *s = ctx;
    atomic_fetch_add(&s->calls, 1);
    if (s->fail && s->given >= s->total / 2)
        return s->fail;
    uint64_t left = s->total - s->given;
    n = n < left ? n : left;
    memset(p, 'u', n);
    s->given += n;
    return (int64_t)n;
}

static void a_body_is_streamed_out_with_and_without_a_length(void **state)
{
    (void)state;
    enum { TOTAL = 5 * 1000 * 1000 + 7 };
    char hex[MG_SHA256_HEX], want[128];
    mg_autofree char *all = mg_xmalloc(TOTAL);
    memset(all, 'u', TOTAL);
    mg_sha256_hex(mg_sv_n(all, TOTAL), hex);
    (void)snprintf(want, sizeof(want), "%d %s", TOTAL, hex);
    for (int known = 0; known < 2; known++) {
        ANSWER(a);
        struct source s = {.total = TOTAL};
        assert_int_equal(call((struct mango_http_req){.method = z("PUT"),
                                                      .url = z("http://peer/count"),
                                                      .unix_socket = z(sock),
                                                      .source = give,
                                                      .source_ctx = &s,
                                                      .source_len = known ? TOTAL : -1},
                              &a),
                         MANGO_OK);
        assert_sv_equal(mg_buf_view(&a.body), want);
    }
}

static void a_source_that_fails_or_lies_ends_the_request(void **state)
{
    (void)state;
    static const struct {
        struct source s;
        int64_t said;
        mango_status want;
    } cases[] = {
        {{.total = 300000, .fail = MANGO_EQUOTA}, -1, MANGO_EQUOTA},
        {{.total = 300000}, 300001, MANGO_EINVALID},
        {{.total = 300000}, 299999, MANGO_EINVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ANSWER(a);
        struct source s = {.total = cases[i].s.total, .fail = cases[i].s.fail};
        mango_status got = call((struct mango_http_req){.method = z("PUT"),
                                                        .url = z("http://peer/count"),
                                                        .unix_socket = z(sock),
                                                        .source = give,
                                                        .source_ctx = &s,
                                                        .source_len = cases[i].said},
                                &a);
        if (got != cases[i].want)
            fail_msg("case %zu: %d %s", i, got, a.err.text);
    }
}

struct cancelling {
    struct mg_cancel *cancel;
    struct source *source; /* until its number of calls does not change any more */
};

/* Fires once the peer has been holding the source back for a while. */
static void *cancel_when_stuck(void *arg)
{
    struct cancelling *c = arg;
    const struct timespec step = {.tv_nsec = 20000000};
    uint64_t last = 0, same = 0;
    for (int i = 0; i < 500 && same < 10; i++) {
        uint64_t now = atomic_load(&c->source->calls);
        same = now == last && now > 0 ? same + 1 : 0;
        last = now;
        (void)nanosleep(&step, NULL);
    }
    mg_cancel_fire(c->cancel);
    return NULL;
}

static void a_peer_that_reads_nothing_holds_the_source_back_and_a_cancel_ends_it(void **state)
{
    (void)state;
    ANSWER(a);
    pthread_t t;
    struct source s = {.total = UINT64_MAX / 2};
    struct cancelling c = {.cancel = mg_cancel_new(), .source = &s};
    assert_int_equal(pthread_create(&t, NULL, cancel_when_stuck, &c), 0);
    assert_int_equal(call_for((struct mango_http_req){.method = z("PUT"),
                                                      .url = z("http://peer/deaf"),
                                                      .unix_socket = z(sock),
                                                      .source = give,
                                                      .source_ctx = &s,
                                                      .source_len = -1},
                              &a, 0, c.cancel),
                     MANGO_ECANCELED);
    (void)pthread_join(t, NULL);
    assert_true(s.given < 8 * 1024 * 1024); /* sockets' buffers and ours */
    mg_cancel_unref(c.cancel);
}

static void an_early_refusal_comes_through_while_the_body_is_sent(void **state)
{
    (void)state;
    ANSWER(a);
    struct source s = {.total = 64 * 1024 * 1024};
    mango_status got = call((struct mango_http_req){.method = z("PUT"),
                                                    .url = z("http://peer/early"),
                                                    .unix_socket = z(sock),
                                                    .source = give,
                                                    .source_ctx = &s,
                                                    .source_len = -1},
                            &a);
    if (got == MANGO_OK) /* a reset may have overtaken the answer */
        assert_int_equal(a.res.status, 413);
    else
        assert_int_equal(got, MANGO_ERETRY);
    assert_true(s.given < s.total);
}

static int32_t slow_sink(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct answer *a = ctx;
    (void)stream;
    (void)p;
    a->got += n;
    if (a->got == n) { /* the first time: so long that an endless peer would fill any memory */
        uint64_t until = mg_now_ns() + SECOND_NS / 2;
        while (mg_now_ns() < until) {
            const struct timespec step = {.tv_nsec = 50000000};
            (void)nanosleep(&step, NULL);
        }
        a->enough_at = (uint64_t)fact("flooded");
    }
    return 0;
}

static void a_slow_reader_holds_a_flooding_peer_back(void **state)
{
    (void)state;
    enum { TOTAL = 64 * 1000 * 1000 };
    ANSWER(a);
    char path[64];
    (void)snprintf(path, sizeof(path), "http://peer/flood/%d", TOTAL);
    sink_to(&a, slow_sink);
    assert_int_equal(
        call((struct mango_http_req){.url = z(path), .unix_socket = z(sock), .max_body = UINT64_MAX, .idle_ms = 200},
             &a),
        MANGO_OK);
    assert_int_equal(a.got, TOTAL); /* and the pause was no idle time */
    assert_true(a.enough_at < 8 * 1000 * 1000);
}

static void a_body_past_its_limit_is_refused(void **state)
{
    (void)state;
    ANSWER(a);
    sink_to(&a, count_sink);
    assert_int_equal(
        call((struct mango_http_req){.url = z("http://peer/flood/3200000"), .unix_socket = z(sock), .max_body = 100000},
             &a),
        MANGO_ETOOBIG);
    assert_true(a.got <= 100000);
    ANSWER(b);
    b.body.max = 1000;
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/flood/3200000"), .unix_socket = z(sock)}, &b),
                     MANGO_ETOOBIG);
    ANSWER(c);
    sink_to(&c, count_sink);
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/flood/48000000"), .unix_socket = z(sock)}, &c),
                     MANGO_ETOOBIG); /* the daemon's default of 32 MiB */
}

static void a_reader_that_has_enough_ends_the_exchange_well(void **state)
{
    (void)state;
    ANSWER(a);
    uint64_t since = mg_now_ns();
    sink_to(&a, count_sink);
    a.enough_at = 1;
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/endless"), .unix_socket = z(sock)}, &a),
                     MANGO_OK);
    assert_int_equal(a.res.status, 200);
    assert_true(mg_now_ns() - since < 5ull * SECOND_NS);
}

static void deadlines_and_silence_end_a_request(void **state)
{
    (void)state;
    ANSWER(a);
    uint64_t since = mg_now_ns();
    assert_int_equal(call_for((struct mango_http_req){.url = z("http://peer/hang"), .unix_socket = z(sock)}, &a,
                              since + SECOND_NS / 5, NULL),
                     MANGO_ETIMEOUT);
    ANSWER(b);
    assert_int_equal(
        call_for((struct mango_http_req){.url = z("http://peer/hang"), .unix_socket = z(sock), .idle_ms = 200}, &b, 0,
                 NULL),
        MANGO_ETIMEOUT);
    assert_contains(b.err.text, "nothing came for 200 ms");
    assert_true(mg_now_ns() - since < 5ull * SECOND_NS);
    ANSWER(c);
    struct mg_cancel *fired = mg_cancel_new();
    mg_cancel_fire(fired);
    assert_int_equal(
        call_for((struct mango_http_req){.url = z("http://peer/hang"), .unix_socket = z(sock)}, &c, 0, fired),
        MANGO_ECANCELED);
    mg_cancel_unref(fired);
}

static void a_cut_answer_is_no_answer(void **state)
{
    (void)state;
    ANSWER(a);
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/half"), .unix_socket = z(sock)}, &a),
                     MANGO_ERETRY);
    assert_contains(a.err.text, "in the middle of the answer, after 10 bytes");
    assert_int_equal(a.res.status, 200);
}

static void retry_after_is_told(void **state)
{
    (void)state;
    ANSWER(a);
    assert_int_equal(call((struct mango_http_req){.url = z("http://peer/busy"), .unix_socket = z(sock)}, &a), MANGO_OK);
    assert_int_equal(a.res.status, 429);
    assert_int_equal(a.res.retry_after_ms, 7000);
    assert_sv_equal(mg_buf_view(&a.body), "slow down");
}

/* ---- TLS and proxies ---- */

static void tls_material_in_memory_is_used(void **state)
{
    (void)state;
    char u[128];
    mg_autofree struct pem *ca = pem("ca.pem"), *cert = pem("client.pem"), *key = pem("client.key"),
                           *other = pem("client.pem");
    const struct mango_http_req good = {.method = z("POST"),
                                        .url = url(u, "https", port_tls, "/echo"),
                                        .body = z("secret"),
                                        .ca_pem = ca->sv,
                                        .cert_pem = cert->sv,
                                        .key_pem = key->sv};
    ANSWER(a);
    if (call(good, &a) != MANGO_OK)
        fail_msg("%s", a.err.text);
    assert_sv_equal(mg_buf_view(&a.body), "secret");
    fact_is("\"client\": \"client\"");
    struct mango_http_req bad = good;
    bad.ca_pem = (struct mango_sv){0}; /* the system's authorities do not know it */
    ANSWER(b);
    assert_int_equal(call(bad, &b), MANGO_ERETRY);
    assert_contains(b.err.text, "certificate");
    assert_null(strstr(b.err.text, "PRIVATE"));
    bad = good;
    bad.cert_pem = bad.key_pem = (struct mango_sv){0};
    ANSWER(c);
    assert_int_equal(call(bad, &c), MANGO_ERETRY);
    bad = good;
    bad.ca_pem = other->sv;
    ANSWER(d);
    assert_int_equal(call(bad, &d), MANGO_ERETRY);
    bad = good;
    bad.ca_pem = z("not a certificate");
    ANSWER(e);
    assert_int_equal(call(bad, &e), MANGO_ERETRY);
    /* the certificate's name is checked, and connect_to keeps it */
    char to[64];
    (void)snprintf(to, sizeof(to), "127.0.0.1:%d", port_tls);
    bad = good;
    bad.url = z("https://localhost/echo");
    bad.connect_to = z(to);
    ANSWER(f);
    assert_int_equal(call(bad, &f), MANGO_OK);
    bad.url = z("https://other.test/echo");
    ANSWER(g);
    assert_int_equal(call(bad, &g), MANGO_ERETRY);
    assert_contains(g.err.text, "other.test");
}

static void proxies_carry_requests_and_connections(void **state)
{
    (void)state;
    char proxies[2][64];
    (void)snprintf(proxies[0], 64, "http://127.0.0.1:%d", port_proxy);
    (void)snprintf(proxies[1], 64, "socks5://127.0.0.1:%d", port_socks);
    for (int i = 0; i < 2; i++) {
        ANSWER(a);
        assert_int_equal(
            call((struct mango_http_req){.method = z("GET"), .url = z("http://far.test/echo"), .proxy = z(proxies[i])},
                 &a),
            MANGO_OK);
        assert_int_equal(a.res.status, 200);
        fact_is(i ? "\"socks\": \"far.test:80\"" : "\"proxy\": \"GET http://far.test/echo\"");
        ANSWER(b);
        mango_conn c = 0;
        char p[64];
        uint64_t n = 0;
        assert_int_equal(open_conn((struct mango_http_req){.method = z("POST"),
                                                           .url = z("http://far.test/hijack"),
                                                           .proxy = z(proxies[i])},
                                   &b, &c),
                         MANGO_OK);
        assert_true(c != 0);
        struct mango_call k = mg_plugin_call(mg_now_ns() + (uint64_t)PATIENCE_S * SECOND_NS, NULL, &b.err);
        assert_int_equal(host->conn_write(host, &k, c, "ping", 4), MANGO_OK);
        assert_int_equal(host->conn_read(host, &k, c, p, sizeof(p), &n), MANGO_OK);
        assert_int_equal(n, 4);
        host->conn_close(host, c);
        fact_is(i ? "\"socks\": \"far.test:80\"" : "\"proxy\": \"CONNECT far.test:80\"");
    }
    mg_autofree struct pem *ca = pem("ca.pem"), *cert = pem("client.pem"), *key = pem("client.key");
    ANSWER(s);
    if (call((struct mango_http_req){.url = z("https://localhost/echo"),
                                     .proxy = z(proxies[0]),
                                     .ca_pem = ca->sv,
                                     .cert_pem = cert->sv,
                                     .key_pem = key->sv},
             &s) != MANGO_OK)
        fail_msg("%s", s.err.text);
    fact_is("\"proxy\": \"CONNECT localhost:443\"");
}

static void the_daemons_proxy_applies_unless_a_request_names_another(void **state)
{
    (void)state;
    char proxy[64], u[128];
    struct mg_plugin_net *own = NULL;
    struct mg_err err = {0};
    (void)snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", port_proxy);
    assert_int_equal(mg_plugin_net_open(&(struct mg_plugin_net_opts){.proxy = "::::"}, &own, &err), MG_ECONFIG);
    assert_contains(err.text, "MANGO_PLUGIN_PROXY");
    assert_int_equal(mg_plugin_net_open(&(struct mg_plugin_net_opts){.proxy = proxy}, &own, &err), MG_OK);
    struct mango_call k = mg_plugin_call(0, NULL, &err);
    long before = fact("proxied");
    struct mango_http_req reqs[] = {
        {.struct_size = sizeof(reqs[0]), .url = z("http://far.test/echo")},
        {.struct_size = sizeof(reqs[0]), .url = url(u, "http", port_tcp, "/echo"), .proxy = z("none")},
        {.struct_size = sizeof(reqs[0]), .url = z("http://peer/echo"), .unix_socket = z(sock)},
    };
    for (int i = 0; i < 3; i++) {
        ANSWER(a);
        assert_int_equal(mg_plugin_http_call(own, &k, &reqs[i], &a.res), MANGO_OK);
        assert_int_equal(a.res.status, 200);
        assert_int_equal(fact("proxied") - before, 1); /* the first one alone */
    }
    mg_plugin_net_close(own);
}

/* ---- connections ---- */

static void an_answer_that_is_no_stream_is_given_whole(void **state)
{
    (void)state;
    static const struct {
        const char *url, *body;
        int status;
        uint32_t retry_ms;
        mango_status want;
    } cases[] = {
        {"http://peer/refuse", "{\"message\":\"not now\"}", 409, 2000, MANGO_OK},
        {"http://peer/refuse-chunked", "in pieces", 500, 0, MANGO_OK},
        {"http://peer/echo", "x", 200, 0, MANGO_OK}, /* 200 with a length is an answer */
        {"http://peer/half", "half of it", 200, 0, MANGO_ERETRY},
        {"http://peer/garbage", "", 0, 0, MANGO_ERETRY},
        {"http://peer/once", "", 0, 0, MANGO_ERETRY},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ANSWER(a);
        mango_conn c = 99;
        mango_status got = open_conn(
            (struct mango_http_req){
                .method = z("POST"), .url = z(cases[i].url), .unix_socket = z(sock), .body = z("x")},
            &a, &c);
        if (got != cases[i].want || a.res.status != cases[i].status || c != 0)
            fail_msg("%s: %d, status %d, %s", cases[i].url, got, a.res.status, a.err.text);
        assert_sv_equal(mg_buf_view(&a.body), cases[i].body);
        assert_int_equal(a.res.retry_after_ms, cases[i].retry_ms);
    }
}

static void raw_tls_is_a_stream_without_http(void **state)
{
    (void)state;
    char u[128], p[64];
    uint64_t n = 0;
    mango_conn c = 0;
    mg_autofree struct pem *ca = pem("ca.pem"), *cert = pem("client.pem"), *key = pem("client.key");
    struct mg_err err = {0};
    struct mango_call k = mg_plugin_call(mg_now_ns() + (uint64_t)PATIENCE_S * SECOND_NS, NULL, &err);
    const struct mango_http_req req = {.struct_size = sizeof(req),
                                       .url = url(u, "https", port_tls, "/"),
                                       .flags = MANGO_HTTP_RAW,
                                       .ca_pem = ca->sv,
                                       .cert_pem = cert->sv,
                                       .key_pem = key->sv};
    if (host->conn_open(host, &k, &req, NULL, &c) != MANGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(host->conn_write(host, &k, c, "RAW\nhi", 6), MANGO_OK);
    assert_int_equal(host->conn_read(host, &k, c, p, sizeof(p), &n), MANGO_OK);
    assert_sv_equal(mg_sv_n(p, n), "raw:hi");
    host->conn_close(host, c);
    assert_int_equal(host->conn_read(host, &k, c, p, sizeof(p), &n), MANGO_EINVALID);
}

struct reader {
    mango_conn c;
    struct mg_cancel *cancel;
    uint64_t deadline_ns, total;
    atomic_bool began;
    mango_status status;
};

/* Reads until it cannot any more. */
static void *read_on(void *arg)
{
    struct reader *r = arg;
    struct mg_err err = {0};
    char p[65536];
    uint64_t n = 1;
    struct mango_call k = mg_plugin_call(r->deadline_ns, r->cancel, &err);
    atomic_store(&r->began, true);
    while (n > 0 && (r->status = host->conn_read(host, &k, r->c, p, sizeof(p), &n)) == MANGO_OK)
        r->total += n;
    return NULL;
}

static void reads_end_by_cancel_deadline_and_close(void **state)
{
    (void)state;
    enum { BY_CANCEL, BY_DEADLINE, BY_CLOSE };
    for (int how = BY_CANCEL; how <= BY_CLOSE; how++) {
        ANSWER(a);
        pthread_t t;
        struct reader r = {.cancel = mg_cancel_new()};
        assert_int_equal(
            open_conn(
                (struct mango_http_req){.method = z("POST"), .url = z("http://peer/hijack"), .unix_socket = z(sock)},
                &a, &r.c),
            MANGO_OK);
        r.deadline_ns = how == BY_DEADLINE ? mg_now_ns() + SECOND_NS / 5 : 0;
        assert_int_equal(pthread_create(&t, NULL, read_on, &r), 0);
        while (!atomic_load(&r.began))
            (void)sched_yield();
        if (how == BY_CANCEL)
            mg_cancel_fire(r.cancel);
        if (how == BY_CLOSE)
            host->conn_close(host, r.c);
        (void)pthread_join(t, NULL);
        if (how == BY_CLOSE && r.status == MANGO_EINVALID)
            r.status = MANGO_ECANCELED; /* it had not looked the connection up yet */
        assert_int_equal(r.status, how == BY_DEADLINE ? MANGO_ETIMEOUT : MANGO_ECANCELED);
        host->conn_close(host, r.c);
        mg_cancel_unref(r.cancel);
    }
}

static void a_stream_that_nobody_reads_holds_its_peer_back(void **state)
{
    (void)state;
    ANSWER(a);
    mango_conn c = 0;
    const struct timespec step = {.tv_nsec = 50000000};
    assert_int_equal(
        open_conn(
            (struct mango_http_req){.method = z("POST"), .url = z("http://peer/stream-flood"), .unix_socket = z(sock)},
            &a, &c),
        MANGO_OK);
    long last = -1, now = 0;
    for (int i = 0; i < 100 && now != last; i++) { /* until the peer is stuck */
        last = now;
        (void)nanosleep(&step, NULL);
        now = fact("stream_flooded");
    }
    assert_true(now < 8 * 1024 * 1024);
    host->conn_close(host, c);
}

static void both_directions_go_at_once_and_a_second_reader_is_refused(void **state)
{
    (void)state;
    enum { TOTAL = 16 * 1024 * 1024, PIECE = 100 * 1000 };
    ANSWER(a);
    pthread_t t;
    struct reader r = {0};
    mg_autofree char *piece = mg_xcalloc(1, PIECE);
    assert_int_equal(
        open_conn((struct mango_http_req){.method = z("POST"), .url = z("http://peer/upgrade"), .unix_socket = z(sock)},
                  &a, &r.c),
        MANGO_OK);
    struct mango_call k = mg_plugin_call(mg_now_ns() + (uint64_t)PATIENCE_S * SECOND_NS, NULL, &a.err);
    assert_int_equal(pthread_create(&t, NULL, read_on, &r), 0);
    uint64_t sent = 0;
    for (; sent < TOTAL; sent += PIECE)
        assert_int_equal(host->conn_write(host, &k, r.c, piece, PIECE), MANGO_OK);
    struct reader second = {.c = r.c, .deadline_ns = mg_now_ns() + SECOND_NS};
    (void)read_on(&second);
    assert_true(second.status == MANGO_EINVALID || second.total > 0); /* the first may be between two reads */
    assert_int_equal(host->conn_shutdown(host, &k, r.c), MANGO_OK);
    (void)pthread_join(t, NULL);
    assert_true(r.status == MANGO_OK || second.total > 0);
    assert_int_equal(r.total + second.total, sent + strlen("early ") + strlen("farewell"));
    host->conn_close(host, r.c);
}

static void what_a_plugin_left_open_is_closed_behind_it(void **state)
{
    (void)state;
    ANSWER(a);
    mango_conn c = 0;
    assert_int_equal(
        open_conn((struct mango_http_req){.method = z("POST"), .url = z("http://peer/hijack"), .unix_socket = z(sock)},
                  &a, &c),
        MANGO_OK);
    assert_true(c != 0); /* the sanitizer sees it when close_all leaks it */
}

/* ---- parsers ---- */

static void heads_are_parsed_at_any_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mg_rc rc;
        int status;
        int64_t length;
        bool chunked;
    } cases[] = {
        {"HTTP/1.1 101 UPGRADED\r\nA: b\r\n\r\nrest", MG_OK, 101, -1, false},
        {"HTTP/1.1 200 OK\nContent-Length: 5\n\n", MG_OK, 200, 5, false},
        {"HTTP/1.0 200\r\nTransfer-Encoding: Chunked\r\n\r\n", MG_OK, 200, -1, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\n folded\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 20 OK\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/2 200\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\nA: b\r\n", MG_EUNAVAIL, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_http_head h;
        mg_rc rc = mg_http_head_parse(mg_sv_of(cases[i].text), &h, NULL, NULL);
        if (rc != cases[i].rc)
            fail_msg("case %zu: %d", i, rc);
        if (rc == MG_OK)
            assert_true(h.status == cases[i].status && h.length == cases[i].length && h.chunked == cases[i].chunked);
    }
}

static int unchunk(const char *text, size_t step, struct mg_buf *out)
{
    struct mg_chunks c = {0};
    size_t len = strlen(text);
    for (size_t at = 0; at < len; at += step) {
        struct mg_sv in = mg_sv_n(text + at, len - at < step ? len - at : step), piece;
        while (in.len > 0) {
            int rc = mg_chunks_next(&c, &in, &piece);
            (void)mg_buf_sv(out, piece);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

static void chunks_are_parsed_at_any_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
        int rc;
    } cases[] = {
        {"3\r\nabc\r\n0\r\n\r\n", "abc", 1},
        {"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\nU: 2\r\n\r\n", "abc0123456789", 1},
        {"3\r\nab", "ab", 0},
        {"\r\n", "", -1},
        {"x\r\n", "", -1},
        {"3\r\nabcX", "abc", -1},
        {"ffffffffffffffffff\r\n", "", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t step = 1; step < 20; step++) {
            mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1000);
            int rc = unchunk(cases[i].text, step, &out);
            if (rc != cases[i].rc)
                fail_msg("case %zu in steps of %zu: %d", i, step, rc);
            assert_sv_equal(mg_buf_view(&out), cases[i].want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_that_needs_http_loads_and_uses_it),
        cmocka_unit_test(unix_sockets_carry_requests_and_are_reused),
        cmocka_unit_test(a_missing_socket_is_told_from_a_request_that_went_out),
        cmocka_unit_test(what_must_happen_once_is_sent_once),
        cmocka_unit_test(bad_requests_never_leave),
        cmocka_unit_test(a_body_is_streamed_out_with_and_without_a_length),
        cmocka_unit_test(a_source_that_fails_or_lies_ends_the_request),
        cmocka_unit_test(a_peer_that_reads_nothing_holds_the_source_back_and_a_cancel_ends_it),
        cmocka_unit_test(an_early_refusal_comes_through_while_the_body_is_sent),
        cmocka_unit_test(a_slow_reader_holds_a_flooding_peer_back),
        cmocka_unit_test(a_body_past_its_limit_is_refused),
        cmocka_unit_test(a_reader_that_has_enough_ends_the_exchange_well),
        cmocka_unit_test(deadlines_and_silence_end_a_request),
        cmocka_unit_test(a_cut_answer_is_no_answer),
        cmocka_unit_test(retry_after_is_told),
        cmocka_unit_test(tls_material_in_memory_is_used),
        cmocka_unit_test(proxies_carry_requests_and_connections),
        cmocka_unit_test(the_daemons_proxy_applies_unless_a_request_names_another),
        cmocka_unit_test(an_answer_that_is_no_stream_is_given_whole),
        cmocka_unit_test(raw_tls_is_a_stream_without_http),
        cmocka_unit_test(reads_end_by_cancel_deadline_and_close),
        cmocka_unit_test(a_stream_that_nobody_reads_holds_its_peer_back),
        cmocka_unit_test(both_directions_go_at_once_and_a_second_reader_is_refused),
        cmocka_unit_test(what_a_plugin_left_open_is_closed_behind_it),
        cmocka_unit_test(counters_are_checked_and_bounded),
        cmocka_unit_test(heads_are_parsed_at_any_cut),
        cmocka_unit_test(chunks_are_parsed_at_any_cut),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
