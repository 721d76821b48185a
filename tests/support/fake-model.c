/* The test endpoint as a program, for benchmarks and end-to-end tests.
 *
 *   fake-model [--port N] [--key KEY] [--idle-ms N] [--window TOKENS] [--no-record]
 *
 * Prints "port N" once it listens; ends with SIGTERM or SIGINT. What it answers: support/endpoint-script.h; its
 * control paths: support/endpoint.h. In short, a user text of
 *
 *   #fake
 *   text I will look.
 *   tool bash {"command":"ls"}
 *   ---
 *   @2 status 529
 *   text There it is.
 *
 * gets a tool call, then, after the result, two overloads and an answer. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/endpoint.h"

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},    {"key", required_argument, NULL, 'k'},
        {"idle-ms", required_argument, NULL, 'i'}, {"window", required_argument, NULL, 'w'},
        {"no-record", no_argument, NULL, 'n'},     {0},
    };
    struct endpoint_opts o = {.keep_bodies = true};
    sigset_t stop;
    int sig;
    for (int c; (c = getopt_long(argc, argv, "p:k:i:w:n", options, NULL)) != -1;) {
        if (c == 'p')
            o.port = (int)strtol(optarg, NULL, 10);
        else if (c == 'k')
            o.key = optarg;
        else if (c == 'i')
            o.idle_ms = (int)strtol(optarg, NULL, 10);
        else if (c == 'w')
            o.window = strtol(optarg, NULL, 10);
        else if (c == 'n')
            o.keep_bodies = false;
        else
            return 64;
    }
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    struct endpoint *e = endpoint_start(&o);
    (void)printf("port %d\n", endpoint_port(e));
    (void)fflush(stdout);
    sigwait(&stop, &sig);
    endpoint_stop(e);
    return 0;
}
