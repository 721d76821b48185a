/* Concurrency: one thread owns the sockets; lock guards the scripts, the records and the counters, which tests read. */
#include "support/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "json/json.h"
#include "json/write.h"
#include "support/endpoint-check.h"
#include "support/endpoint-script.h"
#include "support/endpoint-window.h"

enum {
    REQUEST_MAX = 64 * 1024 * 1024,
    RECORDS_MAX = 512,
    SCRIPTS_MAX = 4096,
    PARTS_MAX = 16,
    EVENTS_MAX = 256,
    READ_BYTES = 64 * 1024,
};

struct conn {
    struct mg_list link;
    int fd;
    struct mg_buf in;
    struct endpoint_answer answer;
    bool busy;     /* an answer is being sent */
    bool stale;    /* dies when the next request begins */
    bool dead;     /* to be freed at the end of the round */
    bool want_out; /* as epoll has it */
    int step;
    size_t sent;      /* of the step */
    uint64_t wake_ns; /* of a pause; 0: none */
    uint64_t idle_ns; /* since when it has no request */
};

/* What is answered to a user text that holds `when` and no script of its own. */
struct part {
    char *when, *script;
};

struct endpoint {
    struct endpoint_opts opts;
    char *key;
    int port, listen_fd, epoll_fd, wake_fd;
    pthread_t thread;
    atomic_bool stopping;
    struct mg_list conns;
    struct mg_map *attempts; /* script and place to a count, kept in the pointer */
    unsigned serial;
    struct endpoint_window *window; /* NULL: none */

    pthread_mutex_t lock;
    char *scripts[SCRIPTS_MAX];
    int first_script, n_scripts;
    struct part parts[PARTS_MAX];
    int n_parts;
    char *records[RECORDS_MAX]; /* JSON objects */
    char *bodies[RECORDS_MAX];
    int n_records, n_requests, n_conns, n_refused;
};

/* A request whose head and body are there. */
struct request {
    struct mg_sv method, path, head, body;
};

static struct mg_sv header_of(const struct request *r, const char *name)
{
    struct mg_sv rest = r->head;
    (void)mg_sv_split(&rest, '\n');
    while (rest.len > 0) {
        struct mg_sv line = mg_sv_trim(mg_sv_split(&rest, '\n'));
        size_t colon = mg_sv_find(line, ':');
        if (mg_sv_eq_nocase(mg_sv_n(line.ptr, colon), mg_sv_of(name)))
            return mg_sv_trim(mg_sv_from(line, colon + 1));
    }
    return MG_SV("");
}

/* False when more bytes are needed. */
static bool parse_request(struct conn *c, struct request *r, size_t *ret_used)
{
    struct mg_sv all = mg_buf_view(&c->in);
    const char *end = all.len > 0 ? memmem(all.ptr, all.len, "\r\n\r\n", 4) : NULL;
    if (!end)
        return false;
    size_t head = (size_t)(end - all.ptr) + 4;
    int64_t length = 0;
    r->head = mg_sv_n(all.ptr, head);
    (void)mg_sv_to_i64(header_of(r, "content-length"), &length);
    if (all.len - head < (size_t)length)
        return false;
    struct mg_sv line = r->head;
    line = mg_sv_split(&line, '\r');
    r->method = mg_sv_split(&line, ' ');
    r->path = mg_sv_split(&line, ' ');
    r->body = mg_sv_n(all.ptr + head, (size_t)length);
    *ret_used = head + (size_t)length;
    return true;
}

static void record(struct endpoint *e, const struct request *r)
{
    e->n_requests++;
    if (!e->opts.keep_bodies || e->n_records == RECORDS_MAX)
        return;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(2 * REQUEST_MAX);
    struct mg_jw w = mg_jw_to(&b);
    struct mg_sv rest = r->head;
    (void)mg_sv_split(&rest, '\n');
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "method", r->method);
    mg_jw_kstr(&w, "path", r->path);
    mg_jw_key(&w, "headers");
    mg_jw_obj(&w);
    while (rest.len > 0) {
        struct mg_sv line = mg_sv_trim(mg_sv_split(&rest, '\n'));
        size_t colon = mg_sv_find(line, ':');
        if (colon == line.len)
            continue;
        mg_jw_key_sv(&w, mg_sv_n(line.ptr, colon));
        mg_jw_str(&w, mg_sv_trim(mg_sv_from(line, colon + 1)));
    }
    mg_jw_obj_end(&w);
    if (mg_json_check(r->body, 600, NULL) == MG_OK)
        mg_jw_kraw(&w, "body", r->body);
    else
        mg_jw_kstr(&w, "body", r->body);
    mg_jw_obj_end(&w);
    e->bodies[e->n_records] = mg_xstrndup(r->body.ptr, r->body.len);
    e->records[e->n_records++] = mg_buf_steal(&b, NULL);
}

static void forget(struct endpoint *e)
{
    for (int i = 0; i < e->n_records; i++) {
        free(e->records[i]);
        free(e->bodies[i]);
    }
    while (e->n_scripts > 0) {
        free(e->scripts[e->first_script]);
        e->first_script = (e->first_script + 1) % SCRIPTS_MAX;
        e->n_scripts--;
    }
    e->n_records = 0;
}

static void push_script(struct endpoint *e, struct mg_sv script)
{
    if (e->n_scripts < SCRIPTS_MAX)
        e->scripts[(e->first_script + e->n_scripts++) % SCRIPTS_MAX] = mg_xstrndup(script.ptr, script.len);
}

static char *pop_script(struct endpoint *e)
{
    if (e->n_scripts == 0)
        return NULL;
    char *script = e->scripts[e->first_script];
    e->first_script = (e->first_script + 1) % SCRIPTS_MAX;
    e->n_scripts--;
    return script;
}

static void drop_parts(struct endpoint *e)
{
    while (e->n_parts > 0) {
        struct part *p = &e->parts[--e->n_parts];
        free(p->when);
        free(p->script);
    }
}

/* "when" is the whole of them: what was there before is forgotten. */
static void take_parts(struct endpoint *e, struct mg_arena *a, const struct mg_json *when)
{
    drop_parts(e);
    for (const struct mg_json *v = when->child; v && e->n_parts < PARTS_MAX; v = v->next) {
        struct mg_sv script = mg_json_str(a, v);
        e->parts[e->n_parts++] = (struct part){
            .when = mg_xstrndup(v->key.ptr, v->key.len),
            .script = mg_xstrndup(script.ptr, script.len),
        };
    }
}

/* The text itself, or the script for one that has none. */
static struct mg_sv played(const struct endpoint *e, struct mg_arena *a, struct mg_sv text)
{
    for (int i = 0; i < e->n_parts && text.len > 0 && !memmem(text.ptr, text.len, "#fake", 5); i++)
        if (memmem(text.ptr, text.len, e->parts[i].when, strlen(e->parts[i].when)))
            return mg_arena_printf(a, "#fake\n%s", e->parts[i].script);
    return text;
}

static bool take_scripts(struct endpoint *e, struct mg_sv body)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *root = NULL;
    if (mg_json_parse(a, body, &mg_json_raw_limits, &root, NULL) < 0)
        return false;
    const struct mg_json *list = mg_json_get(root, "responses"), *when = mg_json_get(root, "when");
    if (mg_json_is(when, MG_JSON_OBJECT))
        take_parts(e, a, when);
    for (const struct mg_json *v = mg_json_is(list, MG_JSON_ARRAY) ? list->child : NULL; v; v = v->next) {
        if (v->type == MG_JSON_STRING)
            push_script(e, mg_json_str(a, v));
    }
    return list || when;
}

static void list_requests(struct endpoint *e, struct endpoint_answer *answer)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(SIZE_MAX / 4);
    mg_buf_char(&b, '[');
    for (int i = 0; i < e->n_records; i++)
        mg_buf_printf(&b, "%s%s", i ? "," : "", e->records[i]);
    mg_buf_char(&b, ']');
    endpoint_json(answer, 200, mg_buf_view(&b));
}

/* True when the request was one to the endpoint itself. With the lock held. */
static bool control(struct endpoint *e, const struct request *r, struct endpoint_answer *answer)
{
    char text[512];
    if (mg_sv_eqz(r->path, "/script") && mg_sv_eqz(r->method, "POST")) {
        if (take_scripts(e, r->body))
            endpoint_json(answer, 200, MG_SV("{}"));
        else
            endpoint_error(answer, 400, "responses: an array of strings is needed, or when: an object of strings");
    } else if (mg_sv_eqz(r->path, "/requests") && mg_sv_eqz(r->method, "DELETE")) {
        forget(e);
        endpoint_json(answer, 200, MG_SV("{}"));
    } else if (mg_sv_eqz(r->path, "/requests") && mg_sv_eqz(r->method, "GET")) {
        list_requests(e, answer);
    } else if (mg_sv_eqz(r->path, "/stats")) {
        struct endpoint_counts c = e->window ? endpoint_window_counts(e->window) : (struct endpoint_counts){0};
        (void)snprintf(
            text, sizeof(text),
            "{\"requests\":%d,\"connections\":%d,\"refused\":%d,\"too_long\":%ld,\"largest\":%ld,\"input\":%ld,"
            "\"cache_read\":%ld,\"cache_made\":%ld}",
            e->n_requests, e->n_conns, e->n_refused, c.too_long, c.largest, c.input, c.cache_read, c.cache_made);
        endpoint_json(answer, 200, mg_sv_of(text));
    } else {
        return false;
    }
    return true;
}

/* The text of the last user message that has one, and how many messages with results came since. A message between agents ends with a text that is
 * no part of it. */
static struct mg_sv last_text(struct mg_arena *a, const struct mg_json *root, int *ret_round)
{
    struct mg_sv text = MG_SV("");
    const struct mg_json *messages = mg_json_get(root, "messages");
    int round = 0;
    for (const struct mg_json *m = mg_json_is(messages, MG_JSON_ARRAY) ? messages->child : NULL; m; m = m->next) {
        const struct mg_json *content = mg_json_get(m, "content");
        struct mg_sv found = mg_json_is(content, MG_JSON_STRING) ? mg_json_str(a, content) : MG_SV("");
        if (!mg_sv_eqz(mg_json_get_str(a, m, "role"), "user"))
            continue;
        for (const struct mg_json *b = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL; b; b = b->next) {
            struct mg_sv here = mg_json_get_str(a, b, "text");
            if (mg_sv_eqz(mg_json_get_str(a, b, "type"), "text") && !mg_sv_eqz(here, "</agent_message>"))
                found = here;
        }
        round = found.len > 0 ? 0 : round + 1;
        text = found.len > 0 ? found : text;
    }
    *ret_round = round;
    return text;
}

static int next_attempt(struct endpoint *e, struct mg_sv script, int round)
{
    mg_auto(buf) struct mg_buf key = MG_BUF_INIT(2 * REQUEST_MAX);
    mg_buf_printf(&key, "%d:%.*s", round, MG_SV_ARG(script));
    uintptr_t n = (uintptr_t)mg_map_get(e->attempts, mg_buf_view(&key)) + 1;
    mg_map_put(e->attempts, mg_buf_view(&key), (void *)n); /* NOLINT: a count in a pointer */
    return (int)n;
}

/* "recall NAME" is what the request says of it; a question for a summary gets all facts. */
static struct mg_sv remembered(struct mg_arena *a, struct mg_sv body, struct mg_sv text, struct mg_sv stage)
{
    if (mg_sv_starts(text, "The conversation so far is about to be left out"))
        return mg_arena_printf(a, "text Notes: %.*s", MG_SV_ARG(endpoint_facts(a, body)));
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(REQUEST_MAX);
    while (stage.len > 0) {
        struct mg_sv line = mg_sv_split(&stage, '\n');
        if (mg_sv_starts(line, "recall "))
            mg_buf_printf(&b, "text %.*s\n", MG_SV_ARG(endpoint_recall(a, body, mg_sv_trim(mg_sv_from(line, 7)))));
        else
            mg_buf_printf(&b, "%.*s\n", MG_SV_ARG(line));
    }
    return mg_arena_sv(a, mg_buf_view(&b));
}

/* The answer that the text of the request asks for. */
static void answer_text(struct endpoint *e, struct mg_arena *a, const struct mg_json *root, struct mg_sv usage,
                        struct endpoint_answer *answer)
{
    const struct mg_json *stream = mg_json_get(root, "stream");
    bool streamed = mg_json_is(stream, MG_JSON_BOOL) && stream->boolean, scripted;
    int round, attempt = 1;
    struct mg_sv text = played(e, a, last_text(a, root, &round));
    struct mg_sv stage = endpoint_stage(text, round, &scripted);
    if (scripted && (memchr(stage.ptr, '@', stage.len) || memchr(stage.ptr, '+', stage.len)))
        attempt = next_attempt(e, mg_sv_starts(text, "<task>") ? stage : text, round); /* the record grows */
    if (scripted && mg_sv_trim(stage).len == 0)
        stage = MG_SV("text done");
    if (!scripted) {
        size_t n = mg_sv_find(text, '\n');
        stage = mg_arena_printf(a, "text echo: %.*s", (int)(n < 200 ? n : 200), text.ptr);
    }
    stage = remembered(a, root->raw, text, stage);
    stage = mg_arena_printf(a, "%.*s%.*s", MG_SV_ARG(usage), MG_SV_ARG(stage));
    endpoint_compile(answer, stage, attempt, ++e->serial, streamed);
}

static bool key_fits(const struct endpoint *e, const struct request *r)
{
    struct mg_sv bearer = header_of(r, "authorization");
    if (!e->key || mg_sv_eqz(header_of(r, "x-api-key"), e->key))
        return true;
    return mg_sv_starts(bearer, "Bearer ") && mg_sv_eqz(mg_sv_from(bearer, 7), e->key);
}

static void refuse(struct endpoint *e, struct endpoint_answer *answer, int status, const char *problem)
{
    e->n_refused++;
    endpoint_error(answer, status, problem);
}

static void answer_messages(struct endpoint *e, const struct request *r, struct endpoint_answer *answer)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *root = NULL;
    struct mg_err err = {0};
    struct mg_sv beta = header_of(r, "anthropic-beta");
    bool fast = beta.len > 0 && memmem(beta.ptr, beta.len, "fast-mode-", 10);
    if (header_of(r, "anthropic-version").len == 0) {
        refuse(e, answer, 400, "anthropic-version: header is required");
    } else if (!key_fits(e, r)) {
        refuse(e, answer, 401, "invalid x-api-key");
    } else if (mg_json_parse(a, r->body, &mg_json_raw_limits, &root, &err) < 0) {
        refuse(e, answer, 400, err.text);
    } else {
        const char *problem = endpoint_check(a, root, fast);
        struct mg_sv usage = MG_SV("");
        const char *over = e->window && !problem ? endpoint_window_take(e->window, a, root, &usage) : NULL;
        if (problem)
            refuse(e, answer, 400, problem);
        else if (over)
            endpoint_error(answer, 400, over);
        else
            answer_text(e, a, root, usage, answer);
    }
}

static void answer_request(struct endpoint *e, const struct request *r, struct endpoint_answer *answer)
{
    pthread_mutex_lock(&e->lock);
    if (!control(e, r, answer)) {
        record(e, r);
        mg_autofree char *script = pop_script(e);
        if (script)
            endpoint_compile(answer, mg_sv_of(script), 1, ++e->serial, true);
        else if (mg_sv_eqz(r->path, "/v1/messages") && mg_sv_eqz(r->method, "POST"))
            answer_messages(e, r, answer);
        else
            endpoint_error(answer, 404, "no such path, and no script for it");
    }
    pthread_mutex_unlock(&e->lock);
}

static void reset(struct conn *c)
{
    const struct linger hard = {.l_onoff = 1};
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    c->dead = true;
}

static void watch(struct endpoint *e, struct conn *c, bool want_out)
{
    struct epoll_event ev = {.events = EPOLLIN | (want_out ? EPOLLOUT : 0u), .data.ptr = c};
    if (c->want_out != want_out)
        (void)epoll_ctl(e->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
    c->want_out = want_out;
}

/* False: the socket takes no more for now, or the connection is dead. */
static bool send_step(struct endpoint *e, struct conn *c, const struct endpoint_step *s)
{
    while (c->sent < s->len) {
        ssize_t n = send(c->fd, c->answer.bytes.ptr + s->from + c->sent, s->len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(e, c, true);
            return false;
        }
        if (n < 0) {
            c->dead = true;
            return false;
        }
        c->sent += (size_t)n;
    }
    c->sent = 0;
    watch(e, c, false);
    return true;
}

/* Goes through the steps of the answer as far as it can. */
static void advance(struct endpoint *e, struct conn *c)
{
    while (c->busy && !c->dead && c->wake_ns == 0) {
        if (c->step == c->answer.n_steps) {
            endpoint_answer_done(&c->answer);
            c->busy = false;
            c->idle_ns = mg_now_ns();
            return;
        }
        const struct endpoint_step *s = &c->answer.steps[c->step];
        if (s->kind == STEP_SEND && !send_step(e, c, s))
            return;
        if (s->kind == STEP_WAIT)
            c->wake_ns = mg_now_ns() + (uint64_t)s->ms * 1000000u;
        if (s->kind == STEP_HANG)
            c->wake_ns = UINT64_MAX;
        if (s->kind == STEP_CLOSE)
            c->dead = true;
        if (s->kind == STEP_RESET)
            reset(c);
        if (s->kind == STEP_STALE)
            c->stale = true;
        c->step++;
    }
}

static void serve(struct endpoint *e, struct conn *c)
{
    struct request r;
    size_t used;
    while (!c->busy && !c->dead && c->in.len > 0) {
        if (c->stale) {
            reset(c);
            return;
        }
        if (!parse_request(c, &r, &used))
            return;
        answer_request(e, &r, &c->answer);
        mg_buf_consume(&c->in, used);
        c->busy = true;
        c->step = 0;
        advance(e, c);
    }
}

static void on_readable(struct endpoint *e, struct conn *c)
{
    for (;;) {
        if (mg_buf_reserve(&c->in, READ_BYTES) < 0) {
            c->dead = true;
            return;
        }
        ssize_t n = recv(c->fd, c->in.ptr + c->in.len, READ_BYTES, 0);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            c->dead = true;
            return;
        }
        c->in.len += (size_t)n;
        if (n < READ_BYTES)
            break;
    }
    serve(e, c);
}

static void on_accept(struct endpoint *e)
{
    for (;;) {
        int fd = accept4(e->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct conn *c = mg_xcalloc(1, sizeof(*c));
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        const int on = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        c->fd = fd;
        c->in = MG_BUF_INIT(REQUEST_MAX);
        c->idle_ns = mg_now_ns();
        mg_list_add_tail(&e->conns, &c->link);
        (void)epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
        pthread_mutex_lock(&e->lock);
        e->n_conns++;
        pthread_mutex_unlock(&e->lock);
    }
}

static void free_conn(struct conn *c)
{
    mg_list_del(&c->link);
    close(c->fd);
    mg_buf_done(&c->in);
    endpoint_answer_done(&c->answer);
    free(c);
}

/* Pauses that are over, idle connections, dead ones. Returns the time to wait for the next, in ms. */
static int tend(struct endpoint *e)
{
    uint64_t now = mg_now_ns(), next = UINT64_MAX;
    mg_list_each (it, &e->conns) {
        struct conn *c = mg_container_of(it, struct conn, link);
        if (c->wake_ns && c->wake_ns <= now) {
            c->wake_ns = 0;
            advance(e, c);
            serve(e, c);
        }
        uint64_t idle_end =
            e->opts.idle_ms && !c->busy ? c->idle_ns + (uint64_t)e->opts.idle_ms * 1000000u : UINT64_MAX;
        if (idle_end <= now)
            c->dead = true;
        if (c->dead) {
            free_conn(c);
            continue;
        }
        next = c->wake_ns && c->wake_ns < next ? c->wake_ns : next;
        next = idle_end < next ? idle_end : next;
    }
    if (next == UINT64_MAX)
        return -1;
    return next > now ? (int)((next - now) / 1000000u) + 1 : 0;
}

static void *run(void *arg)
{
    struct endpoint *e = arg;
    struct epoll_event events[EVENTS_MAX];
    while (!atomic_load(&e->stopping)) {
        int n = epoll_wait(e->epoll_fd, events, EVENTS_MAX, tend(e));
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c || (void *)c == (void *)e)
                on_accept(e);
            else if (!c->dead && events[i].events & EPOLLOUT)
                advance(e, c);
            if (c && (void *)c != (void *)e && !c->dead && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                on_readable(e, c);
        }
    }
    return NULL;
}

static void die(const char *what)
{
    perror(what);
    abort();
}

struct endpoint *endpoint_start(const struct endpoint_opts *o)
{
    struct endpoint *e = mg_xcalloc(1, sizeof(*e));
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)o->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = e};
    const int on = 1;
    sigset_t all, old;
    e->opts = *o;
    e->key = o->key ? mg_xstrdup(o->key) : NULL;
    mg_list_init(&e->conns);
    e->attempts = mg_map_new();
    e->window = o->window ? endpoint_window_new(o->window) : NULL;
    pthread_mutex_init(&e->lock, NULL);
    e->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    e->wake_fd = eventfd(0, EFD_CLOEXEC);
    (void)setsockopt(e->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(e->listen_fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(e->listen_fd, 4096) < 0)
        die("test endpoint: listen");
    if (getsockname(e->listen_fd, (struct sockaddr *)&at, &len) < 0)
        die("test endpoint: port");
    e->port = ntohs(at.sin_port);
    (void)epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->listen_fd, &ev);
    (void)epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->wake_fd, &ev); /* readable only at the end */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&e->thread, NULL, run, e) != 0)
        die("test endpoint: thread");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

void endpoint_stop(struct endpoint *e)
{
    const uint64_t one = 1;
    atomic_store(&e->stopping, true);
    if (write(e->wake_fd, &one, sizeof(one)) < 0)
        die("test endpoint: stop");
    pthread_join(e->thread, NULL);
    while (!mg_list_empty(&e->conns))
        free_conn(mg_container_of(e->conns.next, struct conn, link));
    forget(e);
    drop_parts(e);
    mg_map_free(e->attempts);
    endpoint_window_free(e->window);
    close(e->listen_fd);
    close(e->epoll_fd);
    close(e->wake_fd);
    pthread_mutex_destroy(&e->lock);
    free(e->key);
    free(e);
}

int endpoint_port(const struct endpoint *e)
{
    return e->port;
}

void endpoint_script(struct endpoint *e, const char *script)
{
    pthread_mutex_lock(&e->lock);
    push_script(e, mg_sv_of(script));
    pthread_mutex_unlock(&e->lock);
}

static int read_count(struct endpoint *e, const int *count)
{
    pthread_mutex_lock(&e->lock);
    int n = *count;
    pthread_mutex_unlock(&e->lock);
    return n;
}

int endpoint_requests(struct endpoint *e)
{
    return read_count(e, &e->n_requests);
}

int endpoint_connections(struct endpoint *e)
{
    return read_count(e, &e->n_conns);
}

int endpoint_refused(struct endpoint *e)
{
    return read_count(e, &e->n_refused);
}

char *endpoint_body(struct endpoint *e, int i)
{
    pthread_mutex_lock(&e->lock);
    char *body = i >= 0 && i < e->n_records ? mg_xstrdup(e->bodies[i]) : NULL;
    pthread_mutex_unlock(&e->lock);
    return body;
}
