/* Many streams on one session (or on a reference server), and one event to all of them. Rows 7, 8, 9, 10 and 26.
 *
 *   fan --port P --pid PID --path STREAM --trigger "METHOD PATH BODY" --streams N --rounds R [--slow S] [--key K]
 *       opens N streams, one after another; then sends the trigger R times and waits each time until the last reader has the
 *       event. S of the N stop reading first; --stuff "METHOD PATH BODY" is sent --stuffing times before, to fill their sockets, and brings
 *       --stuff-events events each time.
 *       {"connects_per_s", "last_p50", "last_max", "each_p99", "rss_kb", "rss_before_kb"}: ms from the trigger to the last
 *       reader and of the single readers; the server's memory with and without the streams
 *   fan ... --rounds 0 --hold 1
 *       prints "open" and keeps reading until its standard input ends
 *
 * Only an event's end ("\n\n") is looked for; keep-alives are told apart by their name. Prints one line of JSON. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/client.h"

enum { SECOND = 1000000000, ROUND_S = 20, SETTLE_MS = 20, WARM_ROUNDS = 3 };

struct stream {
    struct conn *conn;
    unsigned long seen; /* events */
};

struct trigger {
    char *method, *path, *body;
};

static struct {
    struct client client;
    struct conn *control;
    struct stream *streams;
    long n, opened, slow;
    long arrived;       /* readers that have this round's event */
    unsigned long want; /* events that each reader has when the round is over */
    bool answered;
    uint64_t start_ns;
    struct sample last, each;
} all;

/* ---- streams ---- */

static void count_events(struct stream *s, const char *p, size_t n)
{
    for (const char *end = p + n; (p = memmem(p, (size_t)(end - p), "\n\n", 2)); p += 2)
        s->seen++;
}

static void on_bytes(struct conn *c, const char *p, size_t n)
{
    struct stream *s = c->user;
    unsigned long before = s->seen;
    if (memmem(p, n, "event: ping", 11))
        return; /* a keep-alive comes alone */
    count_events(s, p, n);
    if (before >= all.want || s->seen < all.want)
        return;
    sample_add(&all.each, now_ns() - all.start_ns);
    if (++all.arrived == all.n - all.slow && all.answered)
        c->client->stop = true;
}

static void on_open(struct conn *c, int status, const char *body, size_t len)
{
    if (status != 200)
        die("stream: status %d: %.*s", status, (int)len, body ? body : "");
    all.opened++;
    c->client->stop = true;
}

static void open_stream(struct stream *s, const char *path)
{
    long before = all.opened;
    s->conn = conn_open(&all.client, s);
    s->conn->on_answer = on_open;
    s->conn->on_bytes = on_bytes;
    conn_request(s->conn, "GET", path, NULL);
    if (!client_run(&all.client, now_ns() + ROUND_S * (uint64_t)SECOND) || all.opened == before)
        die("a stream did not open");
}

static void open_all(const char *path)
{
    all.streams = calloc((size_t)all.n, sizeof(*all.streams));
    if (!all.streams)
        die("no memory");
    for (long i = 0; i < all.n; i++)
        open_stream(&all.streams[i], path);
}

/* ---- triggers ---- */

static struct trigger parse_trigger(const char *text)
{
    struct trigger t = {.method = strdup(text)};
    t.path = strchr(t.method, ' ');
    if (!t.path)
        die("a trigger is METHOD PATH [BODY]");
    *t.path++ = '\0';
    t.body = strchr(t.path, ' ');
    if (t.body)
        *t.body++ = '\0';
    return t;
}

static void on_control(struct conn *c, int status, const char *body, size_t len)
{
    if (status != 200)
        die("trigger: status %d: %.*s", status, (int)len, body);
    all.answered = true;
    if (all.arrived == all.n - all.slow)
        c->client->stop = true;
}

static void fire(const struct trigger *t, unsigned long events)
{
    all.want += events;
    all.arrived = 0;
    all.answered = false;
    all.start_ns = now_ns();
    conn_request(all.control, t->method, t->path, t->body);
    if (!client_run(&all.client, now_ns() + ROUND_S * (uint64_t)SECOND))
        die("%ld of %ld readers have the event after %d s", all.arrived, all.n - all.slow, ROUND_S);
}

static void one_round(const struct trigger *t)
{
    fire(t, 1);
    sample_add(&all.last, now_ns() - all.start_ns);
    (void)client_run(&all.client, now_ns() + SETTLE_MS * UINT64_C(1000000)); /* the server puts its things away */
}

/* The last S streams take nothing more; what they would have read fills their sockets. */
static void make_slow(const char *stuff, long times, long events)
{
    int small = 2048;
    for (long i = all.n - all.slow; i < all.n; i++) {
        conn_pause(all.streams[i].conn, true);
        (void)setsockopt(all.streams[i].conn->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    }
    if (!*stuff)
        return;
    struct trigger t = parse_trigger(stuff);
    for (long i = 0; i < times; i++)
        fire(&t, (unsigned long)events);
    all.each.n = 0;
    free(t.method);
}

/* ---- the whole ---- */

static long rss_kb(long pid)
{
    char path[64], line[256];
    long kb = 0;
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    if (f)
        (void)fclose(f);
    return kb;
}

static void raise_descriptors(long n)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || (long)r.rlim_max < n + 64)
        die("this machine allows no %ld descriptors", n + 64);
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
}

static void hold(void)
{
    (void)puts("open");
    (void)fflush(stdout);
    struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&end, 1, 0) == 0)
        (void)client_run(&all.client, now_ns() + SECOND / 5);
}

int main(int argc, char **argv)
{
    const char *path = option(argc, argv, "path", NULL);
    struct trigger t = parse_trigger(option(argc, argv, "trigger", "GET /"));
    long rounds = option_int(argc, argv, "rounds", "0"), pid = option_int(argc, argv, "pid", "0");
    all.n = option_int(argc, argv, "streams", NULL);
    raise_descriptors(all.n);
    client_init(&all.client, (int)option_int(argc, argv, "port", NULL), option(argc, argv, "key", "none"));
    long before = rss_kb(pid);
    uint64_t start = now_ns();
    open_all(path);
    double seconds = (double)(now_ns() - start) / 1e9;
    if (option_int(argc, argv, "hold", "0")) {
        hold();
        return 0;
    }
    long after = rss_kb(pid);
    all.slow = option_int(argc, argv, "slow", "0");
    all.control = conn_open(&all.client, NULL);
    all.control->on_answer = on_control;
    if (all.slow)
        make_slow(option(argc, argv, "stuff", ""), option_int(argc, argv, "stuffing", "1"),
                  option_int(argc, argv, "stuff-events", "1"));
    for (long i = 0; rounds && i < WARM_ROUNDS; i++)
        one_round(&t);
    all.each.n = all.last.n = 0;
    for (long i = 0; i < rounds; i++)
        one_round(&t);
    printf("{\"connects_per_s\":%.0f,\"last_p50\":%.3f,\"last_max\":%.3f,\"each_p99\":%.3f,\"rss_kb\":%ld,\"rss_before_"
           "kb\":%ld}\n",
           (double)all.n / seconds, sample_ms(&all.last, 0.5), sample_ms(&all.last, 1), sample_ms(&all.each, 0.99),
           after, before);
    return 0;
}
