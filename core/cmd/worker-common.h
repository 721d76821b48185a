/* What `poll` and `run` share: flags, options of the library, log, signals. */
#ifndef MG_CMD_WORKER_COMMON_H
#define MG_CMD_WORKER_COMMON_H

#include <pthread.h>

#include "cmd/worker-args.h"
#include "worker/worker.h"

/* Flags that every command of a worker takes, for the tables of commands. */
#define MG_WORKER_FLAGS_API                                                                                          \
    {"base-url", "ANTHROPIC_BASE_URL", "URL", "the API (default: the hosted service's)", false, false},              \
        {"ca-file", "MANGO_CA_FILE", "FILE", "authorities for TLS (default: the system's)", false, false},           \
        {"proxy", "MANGO_PROXY", "URL", "http://, https://, socks4:// or socks5:// for all requests", false, false}, \
        {"log-format", NULL, "FORMAT", "text (default) or json", false, false},                                      \
    {                                                                                                                \
        "log-level", NULL, "LEVEL", "error, warn, info (default) or debug", false, false                             \
    }

/* Flags of what serves sessions. */
#define MG_WORKER_FLAGS_SERVE                                                                                           \
    {"workdir", NULL, "DIR", "where tools read, write and run commands (default: the current folder)", false, false},   \
        {"allowed-root", NULL, "DIR", "a further folder for the file tools; may be given more than once", true, false}, \
        {"unrestricted-paths", NULL, NULL, "the file tools go everywhere; bash does so anyway", false, false},          \
        {"max-idle", NULL, "TIME", "leave a session this long after its turn ended (default 60s); 0: never",            \
         false,      false},                                                                                            \
    {                                                                                                                   \
        "memory-sync", NULL, "TIME", "between passes over memory stores (default 15s); 0: without the stores", false,   \
            false                                                                                                       \
    }

/* Fills o from the flags. False after a message. */
bool mg_worker_options(const struct mg_worker_args *a, struct mango_worker_options *o);
/* Level and format of the log. False after a message. */
bool mg_worker_log_setup(const struct mg_worker_args *a);

/* Stops the worker at SIGTERM and SIGINT; a second one ends the process at once. Before any other thread starts: all inherit the mask. */
struct mg_worker_signals {
    struct mango_worker *worker;
    void (*stop)(void *ctx); /* further; or NULL */
    void *ctx;
    pthread_t thread;
    int fd, end_fd;
    int caught; /* the signal, 0: none */
};
void mg_worker_signals_block(struct mg_worker_signals *s);
void mg_worker_signals_start(struct mg_worker_signals *s, struct mango_worker *w);
void mg_worker_signals_end(struct mg_worker_signals *s);

/* Prints "mango-worker: text" and returns the exit status that belongs to the code. */
int mg_worker_failed(int32_t rc, const char *text);

#endif
