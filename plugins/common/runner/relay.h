/* The way out of a sandbox that has no network: a folder with the socket of the server's filtering proxy is mounted
 * into it, and a port of its own loopback leads there. */
#ifndef MANGO_COMMON_RELAY_H
#define MANGO_COMMON_RELAY_H

#include <sys/types.h>

#define EGRESS_DIR "/.mango-egress"
enum { EGRESS_PORT = 3128 };

/* The variables of commands with such a network, NULL at the end: common/relay-env.c. */
extern const char *const egress_env[];

/* Starts the relay where the folder is there. Its process id; 0: no folder; -1: it cannot be started, and nothing is
 * reached: the safe side. */
pid_t relay_start(void);

#endif
