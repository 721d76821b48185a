#include "support/stub.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"

enum { RULES = 64, ANSWERS = 16, REQUESTS = 4096, CONNS = 256, PIECES = 64, WAIT_S = 20, ROOM = 64 * 1024 * 1024 };

struct reply {
    char *text;
    char *pieces[PIECES];
    int n_pieces;
    bool stream;
};

struct rule {
    char *match;
    struct reply *answers[ANSWERS];
    int n, next;
};

struct request {
    char *line, *head, *body;
};

struct stub {
    int fd;
    char url[64];
    pthread_t acceptor, threads[CONNS];
    int conns[CONNS], n_conns;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rule rules[RULES];
    int n_rules;
    struct request requests[REQUESTS];
    int n_requests;
    int gone, passed; /* of stub_go */
    bool stopping;
};

struct conn {
    struct stub *p;
    int fd;
};

static void die(const char *what)
{
    perror(what);
    abort();
}

static bool fits(const char *match, const char *line)
{
    return strncmp(line, match, strlen(match)) == 0;
}

static struct reply *pick(struct stub *p, const char *line)
{
    struct rule *best = NULL;
    for (int i = 0; i < p->n_rules; i++)
        if (fits(p->rules[i].match, line) && (!best || strlen(p->rules[i].match) > strlen(best->match)))
            best = &p->rules[i];
    if (!best)
        return NULL;
    struct reply *r = best->answers[best->next];
    if (best->next + 1 < best->n)
        best->next++;
    return r;
}

static bool say(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t w = send(fd, p, n, MSG_NOSIGNAL);
        if (w <= 0)
            return false;
        p += w;
        n -= (size_t)w;
    }
    return true;
}

/* Until the peer's end, or ours. */
static void hang(struct conn *c)
{
    char byte;
    (void)!recv(c->fd, &byte, 1, MSG_PEEK);
    while (recv(c->fd, &byte, 1, 0) > 0)
        continue;
}

static bool stream(struct conn *c, const struct reply *r)
{
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    bool alive = say(c->fd, head, sizeof(head) - 1);
    for (int i = 0; i < r->n_pieces && alive; i++) {
        if (strcmp(r->pieces[i], STUB_HANG) == 0) {
            hang(c);
            return false;
        }
        if (r->pieces[i][0]) {
            alive = say(c->fd, r->pieces[i], strlen(r->pieces[i]));
            continue;
        }
        pthread_mutex_lock(&c->p->lock);
        while (c->p->passed == c->p->gone && !c->p->stopping)
            pthread_cond_wait(&c->p->changed, &c->p->lock);
        c->p->passed += c->p->passed < c->p->gone;
        pthread_mutex_unlock(&c->p->lock);
    }
    return false;
}

/* Returns false when the connection ends. */
static bool answer(struct conn *c, const struct reply *r)
{
    static const char none[] = "HTTP/1.1 500 No Rule\r\ncontent-length: 0\r\n\r\n";
    if (!r)
        return say(c->fd, none, sizeof(none) - 1);
    if (r->stream)
        return stream(c, r);
    if (strcmp(r->text, STUB_CUT) == 0)
        return false;
    if (strcmp(r->text, STUB_HANG) == 0) {
        hang(c);
        return false;
    }
    return say(c->fd, "HTTP/1.1 ", 9) && say(c->fd, r->text, strlen(r->text));
}

/* One whole request in b; returns its length, 0: not yet. */
static size_t whole(const struct mg_buf *b, size_t *ret_head)
{
    const char *end = b->len ? memmem(b->ptr, b->len, "\r\n\r\n", 4) : NULL;
    if (!end)
        return 0;
    *ret_head = (size_t)(end - b->ptr) + 4;
    const char *length = strcasestr(b->ptr, "\r\ncontent-length:");
    size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
    return b->len >= *ret_head + body ? *ret_head + body : 0;
}

static struct reply *record(struct stub *p, const struct mg_buf *b, size_t head, size_t all)
{
    struct request *q = &p->requests[p->n_requests];
    pthread_mutex_lock(&p->lock);
    if (p->n_requests == REQUESTS)
        abort();
    q->head = mg_xstrndup(b->ptr, head);
    q->body = mg_xstrndup(b->ptr + head, all - head);
    q->line = mg_xstrndup(b->ptr, strcspn(b->ptr, "\r"));
    char *version = strstr(q->line, " HTTP/");
    if (version)
        *version = '\0';
    p->n_requests++;
    struct reply *r = pick(p, q->line);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return r;
}

static void *serve(void *arg)
{
    struct conn *c = arg;
    struct mg_buf b = MG_BUF_INIT(ROOM);
    bool open = true;
    while (open) {
        size_t head, all = whole(&b, &head);
        if (all) {
            open = answer(c, record(c->p, &b, head, all));
            mg_buf_consume(&b, all);
            continue;
        }
        char piece[16384];
        ssize_t n = recv(c->fd, piece, sizeof(piece), 0);
        open = n > 0 && mg_buf_append(&b, piece, (size_t)n) == MG_OK;
    }
    (void)shutdown(c->fd, SHUT_RDWR);
    mg_buf_done(&b);
    free(c);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct stub *p = arg;
    for (;;) {
        int fd = accept(p->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        struct conn *c = mg_xcalloc(1, sizeof(*c));
        *c = (struct conn){.p = p, .fd = fd};
        pthread_mutex_lock(&p->lock);
        if (p->n_conns == CONNS)
            abort();
        p->conns[p->n_conns] = fd;
        if (pthread_create(&p->threads[p->n_conns], NULL, serve, c))
            die("pthread_create");
        p->n_conns++;
        pthread_mutex_unlock(&p->lock);
    }
}

struct stub *stub_start(void)
{
    struct stub *p = mg_xcalloc(1, sizeof(*p));
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    pthread_condattr_t attr;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(p->fd, (struct sockaddr *)&a, n) < 0 || listen(p->fd, 64) < 0 ||
        getsockname(p->fd, (struct sockaddr *)&a, &n) < 0)
        die("the peer's socket");
    (void)snprintf(p->url, sizeof(p->url), "http://127.0.0.1:%d", ntohs(a.sin_port));
    if (pthread_create(&p->acceptor, NULL, accept_all, p))
        die("pthread_create");
    return p;
}

static void free_rules(struct stub *p)
{
    for (int i = 0; i < p->n_rules; i++) {
        for (int k = 0; k < p->rules[i].n; k++) {
            struct reply *r = p->rules[i].answers[k];
            for (int j = 0; j < r->n_pieces; j++)
                free(r->pieces[j]);
            free(r->text);
            free(r);
        }
        free(p->rules[i].match);
    }
}

void stub_stop(struct stub *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    (void)shutdown(p->fd, SHUT_RDWR);
    pthread_join(p->acceptor, NULL);
    for (int i = 0; i < p->n_conns; i++) {
        (void)shutdown(p->conns[i], SHUT_RDWR);
        pthread_join(p->threads[i], NULL);
        close(p->conns[i]);
    }
    close(p->fd);
    free_rules(p);
    for (int i = 0; i < p->n_requests; i++) {
        free(p->requests[i].line);
        free(p->requests[i].head);
        free(p->requests[i].body);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const char *stub_url(const struct stub *p)
{
    return p->url;
}

static struct reply *add(struct stub *p, const char *match)
{
    int i = 0;
    while (i < p->n_rules && strcmp(p->rules[i].match, match) != 0)
        i++;
    if (i == RULES || (i < p->n_rules && p->rules[i].n == ANSWERS))
        abort();
    if (i == p->n_rules)
        p->rules[p->n_rules++].match = mg_xstrdup(match);
    return p->rules[i].answers[p->rules[i].n++] = mg_xcalloc(1, sizeof(struct reply));
}

void stub_answer(struct stub *p, const char *match, const char *text)
{
    pthread_mutex_lock(&p->lock);
    add(p, match)->text = mg_xstrdup(text);
    pthread_mutex_unlock(&p->lock);
}

void stub_json(struct stub *p, const char *match, int status, const char *headers, const char *body)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(ROOM);
    (void)mg_buf_printf(&b, "%d X\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n%s\r\n%s", status,
                        strlen(body), headers, body);
    stub_answer(p, match, b.ptr);
}

void stub_stream(struct stub *p, const char *match, const char *const *pieces)
{
    pthread_mutex_lock(&p->lock);
    struct reply *r = add(p, match);
    r->stream = true;
    for (; *pieces && r->n_pieces < PIECES; pieces++)
        r->pieces[r->n_pieces++] = mg_xstrdup(*pieces);
    pthread_mutex_unlock(&p->lock);
}

void stub_go(struct stub *p)
{
    pthread_mutex_lock(&p->lock);
    p->gone++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static const struct request *at(struct stub *p, int i)
{
    pthread_mutex_lock(&p->lock);
    const struct request *q = i < p->n_requests ? &p->requests[i] : NULL;
    pthread_mutex_unlock(&p->lock);
    return q;
}

const char *stub_request(struct stub *p, int i)
{
    const struct request *q = at(p, i);
    return q ? q->line : NULL;
}

const char *stub_head(struct stub *p, int i)
{
    const struct request *q = at(p, i);
    return q ? q->head : NULL;
}

const char *stub_body(struct stub *p, int i)
{
    const struct request *q = at(p, i);
    return q ? q->body : NULL;
}

/* The index of the n-th that fits, or -1. */
static int nth(const struct stub *p, const char *match, int n)
{
    for (int i = 0; i < p->n_requests; i++)
        if (fits(match, p->requests[i].line) && --n == 0)
            return i;
    return -1;
}

int stub_count(struct stub *p, const char *match)
{
    int n = 0;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n_requests; i++)
        n += fits(match, p->requests[i].line);
    pthread_mutex_unlock(&p->lock);
    return n;
}

int stub_wait(struct stub *p, const char *match, int n)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += WAIT_S;
    pthread_mutex_lock(&p->lock);
    int i;
    while ((i = nth(p, match, n)) < 0)
        if (pthread_cond_timedwait(&p->changed, &p->lock, &end)) {
            fprintf(stderr, "the peer waited in vain for request %d of %s\n", n, match);
            abort();
        }
    pthread_mutex_unlock(&p->lock);
    return i;
}
