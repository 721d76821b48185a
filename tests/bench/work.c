/* Workers at a work queue, over kept connections. Rows 25 and 26 of `make bench`.
 *
 *   work cycle --port P --key K --environment E --clients N --seconds S
 *       each client polls, acknowledges, sends its first heartbeat and stops the item, and begins again; the environment key for the first two, the
 *       item's token for the rest: {"per_s", "empty"}, whole cycles and polls that found nothing
 *   work idle  --port P --key K --environment E --clients N --seconds S
 *       each client polls an empty queue as the official workers do: a second of waiting, one to three seconds of rest: {"polls_per_s"}
 *
 * Prints one line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/client.h"

enum { CLIENTS_MAX = 4096, SECOND = 1000000000, MS = 1000000, TOKEN_MAX = 128, PATH_MAX_BYTES = 200 };

enum step { POLL, ACK, HEARTBEAT, STOP };

struct worker {
    struct conn *conn;
    enum step step;
    char id[48], token[TOKEN_MAX];
    uint64_t rest_until;
};

static struct {
    struct client client;
    struct worker worker[CLIENTS_MAX];
    const char *environment;
    long clients;
    bool idle;
    unsigned long done, empty, polls;
} all;

static void go(struct worker *w)
{
    static const char *const actions[] = {"poll", "ack", "heartbeat?expected_last_heartbeat=NO_HEARTBEAT", "stop"};
    char path[PATH_MAX_BYTES];
    w->conn->bearer = w->step == HEARTBEAT || w->step == STOP ? w->token : NULL;
    if (w->step == POLL)
        snprintf(path, sizeof(path), "/v1/environments/%s/work/poll%s", all.environment,
                 all.idle ? "?block_ms=999" : "");
    else
        snprintf(path, sizeof(path), "/v1/environments/%s/work/%s/%s", all.environment, w->id, actions[w->step]);
    all.polls += w->step == POLL;
    conn_request(w->conn, w->step == POLL ? "GET" : "POST", path,
                 w->step == STOP   ? "{\"force\":true}"
                 : w->step == POLL ? NULL
                                   : "");
}

static int value_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The token of a secret: base64url of {"sessions_token":"..."}. */
static void take_token(struct worker *w, const char *secret)
{
    char text[256];
    size_t n = 0;
    unsigned bits = 0, have = 0;
    for (; value_of(*secret) >= 0 && n < sizeof(text) - 1; secret++) {
        bits = bits << 6 | (unsigned)value_of(*secret);
        have += 6;
        if (have >= 8)
            text[n++] = (char)(bits >> (have -= 8));
    }
    text[n] = '\0';
    const char *from = strstr(text, "\":\""), *to = from ? strchr(from + 3, '"') : NULL;
    if (!to || to - from - 3 >= TOKEN_MAX)
        die("the secret has no token");
    memcpy(w->token, from + 3, (size_t)(to - from - 3));
    w->token[to - from - 3] = '\0';
}

static void rest(struct worker *w)
{
    w->rest_until = now_ns() + (uint64_t)(1000 + rand() % 2000) * MS;
}

static void polled(struct worker *w, const char *body)
{
    if (strncmp(body, "null", 4) == 0) {
        all.empty++;
        if (all.idle)
            rest(w);
        else
            go(w);
        return;
    }
    char *id = json_id(body);
    const char *secret = strstr(body, "\"secret\":\"");
    if (!secret || strlen(id) >= sizeof(w->id))
        die("a poll answered: %.200s", body);
    memcpy(w->id, id, strlen(id) + 1);
    free(id);
    take_token(w, secret + 10);
    w->step = ACK;
    go(w);
}

static void on_answer(struct conn *c, int status, const char *body, size_t len)
{
    struct worker *w = c->user;
    (void)len;
    if (status != 200)
        die("status %d: %.300s", status, body);
    if (w->step == POLL) {
        polled(w, body);
        return;
    }
    all.done += w->step == STOP;
    w->step = w->step == STOP ? POLL : w->step + 1;
    go(w);
}

static uint64_t next_rest(uint64_t end)
{
    uint64_t next = end;
    for (long i = 0; i < all.clients; i++)
        if (all.worker[i].rest_until && all.worker[i].rest_until < next)
            next = all.worker[i].rest_until;
    return next;
}

static void wake_rested(void)
{
    uint64_t now = now_ns();
    for (long i = 0; i < all.clients; i++)
        if (all.worker[i].rest_until && all.worker[i].rest_until <= now) {
            all.worker[i].rest_until = 0;
            go(&all.worker[i]);
        }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long seconds = option_int(argc, argv, "seconds", NULL);
    all.clients = option_int(argc, argv, "clients", NULL);
    all.environment = option(argc, argv, "environment", NULL);
    all.idle = strcmp(mode, "idle") == 0;
    if (all.clients < 1 || all.clients > CLIENTS_MAX)
        die("--clients must be 1 to %d", CLIENTS_MAX);
    client_init(&all.client, (int)option_int(argc, argv, "port", NULL), option(argc, argv, "key", NULL));
    for (long i = 0; i < all.clients; i++) {
        all.worker[i].conn = conn_open(&all.client, &all.worker[i]);
        all.worker[i].conn->on_answer = on_answer;
        if (all.idle)
            rest(&all.worker[i]); /* not all at once */
        else
            go(&all.worker[i]);
    }
    uint64_t start = now_ns(), end = start + (uint64_t)seconds * SECOND;
    while (now_ns() < end) {
        client_run(&all.client, all.idle ? next_rest(end) : end);
        wake_rested();
    }
    double took = (double)(now_ns() - start) / SECOND;
    if (all.idle)
        printf("{\"polls_per_s\":%.1f}\n", (double)all.polls / took);
    else
        printf("{\"per_s\":%.1f,\"empty\":%lu}\n", (double)all.done / took, all.empty);
    return 0;
}
