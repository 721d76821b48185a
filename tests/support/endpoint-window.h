/* The part of the test endpoint that has a context window, a prompt cache and a memory: it counts a request, refuses one over its window, keeps what
 * stands before cache breakpoints, and can say what a request tells it. One thread. */
#ifndef TESTS_SUPPORT_ENDPOINT_WINDOW_H
#define TESTS_SUPPORT_ENDPOINT_WINDOW_H

#include "json/json.h"

struct endpoint_window;

struct endpoint_counts {
    long requests, too_long, largest; /* largest: tokens of a request, answer's room included */
    long input, cache_read, cache_made;
};

struct endpoint_window *endpoint_window_new(long tokens);
void endpoint_window_free(struct endpoint_window *w); /* NULL is fine */
/* NULL, or why the request is refused. *ret_usage: a line of a script ("usage ..."), arena memory. */
const char *endpoint_window_take(struct endpoint_window *w, struct mg_arena *a, const struct mg_json *root,
                                 struct mg_sv *ret_usage);
struct endpoint_counts endpoint_window_counts(const struct endpoint_window *w);
/* "FACT name=value" as it stands in the request's texts; "name=unknown" where it does not. */
struct mg_sv endpoint_recall(struct mg_arena *a, struct mg_sv body, struct mg_sv name);
/* All facts of the request, each once: what a summary is made of. */
struct mg_sv endpoint_facts(struct mg_arena *a, struct mg_sv body);

#endif
