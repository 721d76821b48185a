/* Load on a server over kept connections, counted for a bounded time. Rows 1, 2 and 4 to 6 of `make bench`.
 *
 *   load create --port P --key K --agent A --environment E --clients N --seconds S
 *       each client creates sessions, one after another: {"per_s"}
 *   load turns  --port P --key K --agent A --environment E --clients N --seconds S [--sessions 16] [--body JSON]
 *               [--stream-port P2]  (streams are opened there: another server of the same database)
 *       each client has a session of its own and its SSE stream; sends a message and waits for the idle event before it
 *       sends the next (JSON replaces the POST's body). After 20 turns it goes on with the next of 16 sessions, all opened before, so that transcripts stay short. {"per_s", "turns", "first_p50", "first_p99", "turn_p50"}: ms from the start of the POST to the first
 *       frame, and to the idle event
 *   load call   --port P --path PATH --body JSON --clients N --seconds S
 *       the same request again and again: {"per_s", "p50"}; what the model endpoint costs without mangod
 *
 * Prints one line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/client.h"

enum { CLIENTS_MAX = 1024, SECOND = 1000000000, SESSIONS = 16, TURNS_EACH = 20 };

static const char message[] =
    "{\"events\":[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"Please look at the three files "
    "that "
    "changed since yesterday and tell me which of them nobody calls any more. Be brief.\"}]}]}";

struct work {
    struct conn *conn, *streams[SESSIONS];
    char path[160], paths[SESSIONS][160];
    int session, turns; /* the present one, and turns in it */
    const char *method, *body;
    uint64_t start_ns;
    bool answered, first, idle;
};

static struct {
    struct client client;
    struct work work[CLIENTS_MAX];
    long clients, sessions, opened, stream_port;
    uint64_t end_ns;
    unsigned long done;
    struct sample first, whole;
} all;

static void next(struct work *w)
{
    w->answered = w->first = w->idle = false;
    if (w->streams[0]) {
        if (w->turns++ == TURNS_EACH) {
            w->session = (w->session + 1) % (int)all.sessions;
            w->turns = 1;
        }
        memcpy(w->path, w->paths[w->session], sizeof(w->path));
    }
    w->start_ns = now_ns();
    conn_request(w->conn, w->method, w->path, w->body);
}

static void count(struct work *w)
{
    uint64_t now = now_ns();
    if (now > all.end_ns) {
        all.client.stop = true;
        return;
    }
    sample_add(&all.whole, now - w->start_ns);
    all.done++;
    next(w);
}

static void expect_200(int status, const char *body, size_t len)
{
    if (status != 200)
        die("status %d: %.*s", status, (int)len, body ? body : "");
}

/* ---- create, call ---- */

static void on_answer(struct conn *c, int status, const char *body, size_t len)
{
    expect_200(status, body, len);
    count(c->user);
}

/* An answer that is a stream ends with its last chunk: a line "0" and an empty one. */
static void on_call_line(struct conn *c, const char *line, size_t len)
{
    struct work *w = c->user;
    if (len == 1 && line[0] == '0')
        w->idle = true;
    else if (len == 0 && w->idle)
        count(w);
}

static void on_call_answer(struct conn *c, int status, const char *body, size_t len)
{
    expect_200(status, body, len);
    if (body)
        count(c->user);
}

/* ---- turns ---- */

static void on_posted(struct conn *c, int status, const char *body, size_t len)
{
    struct work *w = c->user;
    expect_200(status, body, len);
    w->answered = true;
    if (w->idle)
        count(w);
}

static void on_line(struct conn *c, const char *line, size_t len)
{
    static const char event[] = "event: ", idle[] = "event: session.status_idle", ping[] = "event: ping";
    struct work *w = c->user;
    if (len < sizeof(event) || memcmp(line, event, sizeof(event) - 1) != 0 ||
        (len == sizeof(ping) - 1 && memcmp(line, ping, len) == 0) || w->start_ns == 0 || c != w->streams[w->session])
        return;
    if (!w->first) {
        w->first = true;
        sample_add(&all.first, now_ns() - w->start_ns);
    }
    if (len != sizeof(idle) - 1 || memcmp(line, idle, len) != 0)
        return;
    w->idle = true;
    if (w->answered)
        count(w);
}

static void on_open(struct conn *c, int status, const char *body, size_t len)
{
    expect_200(status, body, len);
    if (++all.opened == all.clients * all.sessions)
        c->client->stop = true;
}

static void open_session(struct work *w, int i, const char *create)
{
    char *answer = client_call(&all.client, "POST", "/v1/sessions", create);
    char *id = json_id(answer), path[160];
    (void)snprintf(w->paths[i], sizeof(w->paths[i]), "/v1/sessions/%s/events", id);
    (void)snprintf(path, sizeof(path), "/v1/sessions/%s/events/stream", id);
    w->streams[i] = conn_open_at(&all.client, (int)all.stream_port, w);
    w->streams[i]->on_answer = on_open;
    w->streams[i]->on_line = on_line;
    conn_request(w->streams[i], "GET", path, NULL);
    free(answer);
    free(id);
}

/* The sessions and their streams of all clients. */
static void open_sessions(const char *create)
{
    for (long i = 0; i < all.clients * all.sessions; i++)
        open_session(&all.work[i / all.sessions], (int)(i % all.sessions), create);
    if (all.opened < all.clients * all.sessions && !client_run(&all.client, now_ns() + 10 * (uint64_t)SECOND))
        die("the streams did not open");
}

/* ---- the run ---- */

enum kind { CREATE, CALL, TURNS };

static void run(long seconds, const char *method, const char *path, const char *body, enum kind kind)
{
    static void (*const answers[])(struct conn *, int, const char *, size_t) = {on_answer, on_call_answer, on_posted};
    uint64_t start = now_ns();
    all.end_ns = start + (uint64_t)seconds * SECOND;
    for (long i = 0; i < all.clients; i++) {
        struct work *w = &all.work[i];
        w->conn = conn_open(&all.client, w);
        w->conn->on_answer = answers[kind];
        w->conn->on_line = on_call_line;
        w->method = method;
        w->body = body;
        if (path)
            (void)snprintf(w->path, sizeof(w->path), "%s", path);
        next(w);
    }
    (void)client_run(&all.client, all.end_ns);
    if (all.done == 0)
        die("nothing was done in %ld s", seconds);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long seconds = option_int(argc, argv, "seconds", "2");
    char create[512];
    all.clients = option_int(argc, argv, "clients", "1");
    if (all.clients < 1 || all.clients > CLIENTS_MAX)
        die("--clients: 1 to %d", CLIENTS_MAX);
    all.sessions = option_int(argc, argv, "sessions", "16");
    if (all.sessions < 1 || all.sessions > SESSIONS)
        die("--sessions: 1 to %d", SESSIONS);
    client_init(&all.client, (int)option_int(argc, argv, "port", NULL), option(argc, argv, "key", "none"));
    if (strcmp(mode, "call") == 0) {
        run(seconds, "POST", option(argc, argv, "path", NULL), option(argc, argv, "body", NULL), CALL);
        printf("{\"per_s\":%.1f,\"p50\":%.3f}\n", (double)all.done / (double)seconds, sample_ms(&all.whole, 0.5));
        return 0;
    }
    (void)snprintf(create, sizeof(create), "{\"agent\":\"%s\",\"environment_id\":\"%s\"}",
                   option(argc, argv, "agent", NULL), option(argc, argv, "environment", NULL));
    if (strcmp(mode, "create") == 0) {
        run(seconds, "POST", "/v1/sessions", create, CREATE);
        printf("{\"per_s\":%.1f,\"p50\":%.3f}\n", (double)all.done / (double)seconds, sample_ms(&all.whole, 0.5));
    } else if (strcmp(mode, "turns") == 0) {
        all.stream_port = option_int(argc, argv, "stream-port", option(argc, argv, "port", NULL));
        open_sessions(create);
        run(seconds, "POST", NULL, option(argc, argv, "body", message), TURNS);
        printf("{\"per_s\":%.1f,\"turns\":%lu,\"first_p50\":%.3f,\"first_p99\":%.3f,\"turn_p50\":%.3f}\n",
               (double)all.done / (double)seconds, all.done, sample_ms(&all.first, 0.5), sample_ms(&all.first, 0.99),
               sample_ms(&all.whole, 0.5));
    } else {
        die("usage: load create|turns|call --port P ...");
    }
    return 0;
}
