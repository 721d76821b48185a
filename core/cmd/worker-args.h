/* The command line of mango-worker: flags with the names of the public worker CLI, each with its environment variable. */
#ifndef MG_CMD_WORKER_ARGS_H
#define MG_CMD_WORKER_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses; docs/workers.md names them. */
enum {
    MG_WORKER_EXIT_OK = 0,
    MG_WORKER_EXIT_FAILED = 1,
    MG_WORKER_EXIT_USAGE = 2,
    MG_WORKER_EXIT_LEASE = 3,   /* run: the item was over, or went to another worker */
    MG_WORKER_EXIT_CONFIG = 78, /* a credential or an id is missing or refused */
};

struct mg_worker_flag {
    const char *name; /* without dashes; NULL ends a list */
    const char *env;  /* environment variable; NULL: none */
    const char *arg;  /* what its value is called; NULL: a switch */
    const char *help;
    bool many;   /* may be given more than once */
    bool secret; /* wiped from the process's arguments and environment once read */
};

enum { MG_WORKER_FLAGS_MAX = 32, MG_WORKER_MANY_MAX = 32 };

struct mg_worker_args {
    const struct mg_worker_flag *flags;
    const char *value[MG_WORKER_FLAGS_MAX];   /* in the order of flags; NULL: not given */
    const char *many[MG_WORKER_MANY_MAX + 1]; /* values of the one flag that may be repeated, NULL-terminated */
    int n_many;
    char *kept[2 * MG_WORKER_FLAGS_MAX]; /* secrets, of the arguments and of the environment */
    int n_kept;
};

void mg_worker_args_done(struct mg_worker_args *a); /* wipes the secrets */
static inline void mg_worker_args_cleanup(struct mg_worker_args *a)
{
    mg_worker_args_done(a);
}

/* Reads argv behind the command's name, then the environment. False after a message. */
bool mg_worker_args_read(struct mg_worker_args *a, const struct mg_worker_flag *flags, int argc, char **argv);
const char *mg_worker_get(const struct mg_worker_args *a, const char *name); /* NULL: not given */
/* "60s", "1m30s", "500ms", "0": milliseconds, 0 to max. False after a message. */
bool mg_worker_duration(const struct mg_worker_args *a, const char *name, uint32_t max_ms, uint32_t fallback,
                        uint32_t *ret);
void mg_worker_flags_help(FILE *out, const struct mg_worker_flag *flags);

/* A command of mango-worker: argv behind its name; returns the exit status. */
int mg_worker_poll_main(int argc, char **argv);
int mg_worker_run_main(int argc, char **argv);
int mg_worker_supervise_main(int argc, char **argv); /* worker-supervise.c */

#endif
