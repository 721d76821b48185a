/* How long a session takes to go on after a client's answer. Row 29 of `make bench`.
 *
 *   resume --port P --key K --agent A --environment E --answers N
 *
 * The agent has a custom tool `look`. Each turn: a message whose script calls it, the idle event that asks for the answer, the answer; the time from
 * the start of that POST to the idle event that ends the turn. A session is left after 20 turns. Prints {"p50", "p99"}: ms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/client.h"

enum { SECOND = 1000000000, TURNS_EACH = 20 };

static const char message[] = "{\"events\":[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":"
                              "\"#fake\\ntool look {}\\n---\\ntext done\"}]}]}";

static struct {
    struct client client;
    struct conn *post, *stream;
    char path[160], call[64], answer[512];
    bool asked, opened, posted; /* the call's event was the last one; the stream is open; the POST was answered */
    uint64_t start_ns;          /* of the answer; 0: the message was sent */
    int idles;                  /* since the message: 1 asks, 2 ends */
    struct sample took;
} all;

static void wait_for(const bool *what, const char *name)
{
    uint64_t end = now_ns() + 10 * (uint64_t)SECOND;
    while (!*what)
        if (!client_run(&all.client, end))
            die("%s did not come", name);
        else
            all.client.stop = false;
}

static void on_answer(struct conn *c, int status, const char *body, size_t len)
{
    if (status != 200)
        die("status %d: %.*s", status, (int)len, body ? body : "");
    if (c == all.stream)
        all.opened = true;
    else
        all.posted = true;
    all.client.stop = true;
}

static bool starts(const char *line, size_t len, const char *with)
{
    return len >= strlen(with) && memcmp(line, with, strlen(with)) == 0;
}

static void on_line(struct conn *c, const char *line, size_t len)
{
    static const char data[] = "data: {\"id\":\"";
    if (starts(line, len, "event: ")) {
        all.asked = starts(line, len, "event: agent.custom_tool_use");
        if (!starts(line, len, "event: session.status_idle"))
            return;
        if (++all.idles == 2)
            sample_add(&all.took, now_ns() - all.start_ns);
        c->client->stop = true;
    } else if (all.asked && starts(line, len, data)) {
        const char *id = line + sizeof(data) - 1, *end = memchr(id, '"', len - sizeof(data) + 1);
        (void)snprintf(all.call, sizeof(all.call), "%.*s", end ? (int)(end - id) : 0, id);
        all.asked = false;
    }
}

static void wait_idles(int n)
{
    uint64_t end = now_ns() + 10 * (uint64_t)SECOND;
    while (all.idles < n || !all.posted)
        if (!client_run(&all.client, end))
            die("the turn does not end: %d idle events", all.idles);
        else
            all.client.stop = false;
}

static void open_session(const char *create)
{
    char *answer = client_call(&all.client, "POST", "/v1/sessions", create), *id = json_id(answer), path[200];
    (void)snprintf(all.path, sizeof(all.path), "/v1/sessions/%s/events", id);
    (void)snprintf(path, sizeof(path), "%s/stream", all.path);
    if (all.stream)
        conn_close(all.stream);
    all.stream = conn_open(&all.client, NULL);
    all.stream->on_answer = on_answer;
    all.stream->on_line = on_line;
    all.opened = false;
    conn_request(all.stream, "GET", path, NULL);
    wait_for(&all.opened, "the stream");
    free(answer);
    free(id);
}

static void turn(void)
{
    all.idles = 0;
    all.posted = false;
    conn_request(all.post, "POST", all.path, message);
    wait_idles(1);
    (void)snprintf(
        all.answer, sizeof(all.answer),
        "{\"events\":[{\"type\":\"user.custom_tool_result\",\"custom_tool_use_id\":\"%s\",\"content\":[{\"type\":"
        "\"text\",\"text\":\"seen\"}]}]}",
        all.call);
    all.posted = false;
    all.start_ns = now_ns();
    conn_request(all.post, "POST", all.path, all.answer);
    wait_idles(2);
}

int main(int argc, char **argv)
{
    long answers = option_int(argc, argv, "answers", "300");
    char create[512];
    client_init(&all.client, (int)option_int(argc, argv, "port", NULL), option(argc, argv, "key", NULL));
    (void)snprintf(create, sizeof(create), "{\"agent\":\"%s\",\"environment_id\":\"%s\"}",
                   option(argc, argv, "agent", NULL), option(argc, argv, "environment", NULL));
    all.post = conn_open(&all.client, NULL);
    all.post->on_answer = on_answer;
    for (long i = 0; i < answers; i++) {
        if (i % TURNS_EACH == 0)
            open_session(create);
        turn();
    }
    printf("{\"p50\":%.3f,\"p99\":%.3f}\n", sample_ms(&all.took, 0.5), sample_ms(&all.took, 0.99));
    return 0;
}
