/* The same work on many things at once: what a store has changed goes over the network in parallel. */
#ifndef MG_WORKER_FAN_H
#define MG_WORKER_FAN_H

/* Calls fn(ctx, i) for each i below n, on at most width threads, the caller's among them; returns when all are done. Where no thread can be
 * made, those there are do it. */
void mg_fan(unsigned n, unsigned width, void (*fn)(void *ctx, unsigned i), void *ctx);

#endif
