/* Whether the backends answer: one circuit breaker for each that is loaded.
 *
 *   up       calls go through. Checked every few seconds; a check that fails, or calls that fail one after another, make it
 *   down     calls are refused at once with MG_EUNAVAIL (code backend_down), until the back-off is over; then it is
 *   trying   one health check is under way (half open): it decides between the two.
 *
 * Concurrency: any thread. A backend's lock guards its state and is never held across a call into the plugin. */
#ifndef MG_SANDBOX_HEALTH_H
#define MG_SANDBOX_HEALTH_H

#include "sandbox/manager.h"

enum {
    MG_HEALTH_PERIOD_MS = 5000,  /* between two checks of a backend that is up */
    MG_HEALTH_FRESH_MS = 2000,   /* an answer so young proves that it is up: a wave of calls begins without a check */
    MG_HEALTH_FAILURES_MAX = 3,  /* calls without an answer, one after another, that open the circuit */
    MG_HEALTH_BACKOFF_MS = 1000, /* first pause of a backend that is down, doubled with each check that fails */
    MG_HEALTH_BACKOFF_MAX_MS = 15000,
    MG_HEALTH_WHY_MAX = 256, /* bytes of the reason that is kept */
};

enum mg_health_state { MG_HEALTH_UP, MG_HEALTH_DOWN, MG_HEALTH_TRYING };

struct mg_backend; /* one loaded backend */

/* The backend of a plugin, made at the first call; lives as long as the manager. */
struct mg_backend *mg_backend_of(struct mg_sandboxes *m, struct mg_plugin *p);
/* MG_OK when calls may go through; a backend that was not heard of for a while is checked first. MG_EUNAVAIL otherwise,
 * with code backend_down and a text for the session's events. */
mg_rc mg_backend_gate(struct mg_backend *b, struct mg_err *err) MG_MUSTCHECK;
bool mg_backend_fresh(const struct mg_backend *b); /* up, and heard of just now: mg_backend_gate would not check */
/* A call came back. answered: the service said something, be it an error of its own. */
void mg_backend_note(struct mg_backend *b, bool answered, const char *why);

/* Checks those that are due: every few seconds, on a thread that may block. One at a time. */
void mg_health_tick(struct mg_sandboxes *m);
/* "name=state" of each loaded backend, as rows of nodes keep it. */
struct mg_sv *mg_health_rows(struct mg_sandboxes *m, struct mg_arena *a, int *ret_n);
/* {"local":"up"}: for /readyz. */
void mg_health_json(struct mg_sandboxes *m, struct mg_buf *out);
void mg_health_metrics(struct mg_sandboxes *m, struct mg_buf *out);

#endif
