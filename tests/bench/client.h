/* A non-blocking HTTP/1.1 client for the benchmarks: many connections, one epoll loop, one thread, nothing allocated for a
 * request, so that the client takes little of the two cores that it shares with what it measures. Loopback only. */
#ifndef TESTS_BENCH_CLIENT_H
#define TESTS_BENCH_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;

struct conn {
    struct client *client;
    int fd;
    char *out; /* what is not sent yet of the request */
    size_t out_len, out_at, out_cap;
    char *in;
    size_t in_len, in_cap;
    size_t body_at, body_len; /* of the answer; body_at 0: the head is not complete */
    int status;
    bool streaming;     /* the answer is an event stream: on_line gets it */
    bool paused;        /* is not read */
    const char *bearer; /* sent instead of the client's key when it is set */
    void (*on_answer)(struct conn *c, int status, const char *body, size_t len);
    void (*on_line)(struct conn *c, const char *line, size_t len); /* without its line end */
    void (*on_bytes)(struct conn *c, const char *p, size_t len);   /* of a stream, instead of on_line: as they come */
    void *user;
};

struct client {
    int epoll;
    int port;
    const char *key;
    bool stop; /* set by a callback: client_run returns */
};

uint64_t now_ns(void);
/* Prints the message and ends the program with status 1. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

void client_init(struct client *c, int port, const char *key);
/* Runs callbacks until one sets stop or the time is over. False: the time is over. */
bool client_run(struct client *c, uint64_t until_ns);
struct conn *conn_open(struct client *c, void *user);
struct conn *conn_open_at(struct client *c, int port, void *user); /* another port than the client's */
void conn_close(struct conn *c);
/* body NULL: a request without one. */
void conn_request(struct conn *c, const char *method, const char *path, const char *body);
/* Stops or resumes reading. */
void conn_pause(struct conn *c, bool on);
/* One request and its answer's body, NUL-terminated, to be freed. Dies unless the status is 200. */
char *client_call(struct client *c, const char *method, const char *path, const char *body);
/* The first "id" of a JSON object, to be freed. */
char *json_id(const char *body);

/* Latencies of one kind. */
struct sample {
    uint64_t *ns;
    size_t n, cap;
    bool sorted;
};

void sample_add(struct sample *s, uint64_t ns);
double sample_ms(struct sample *s, double quantile); /* 0 when there is none */

/* The value of --NAME VALUE; fallback without it; dies when both are missing. */
const char *option(int argc, char **argv, const char *name, const char *fallback);
long option_int(int argc, char **argv, const char *name, const char *fallback);

#endif
