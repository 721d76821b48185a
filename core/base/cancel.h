/* Cancellation: one object that reaches every blocking call of a piece of work. Reference-counted, any thread. */
#ifndef MG_BASE_CANCEL_H
#define MG_BASE_CANCEL_H

#include <stdbool.h>

struct mg_cancel;

struct mg_cancel *mg_cancel_new(void); /* one reference */
struct mg_cancel *mg_cancel_ref(struct mg_cancel *c);
void mg_cancel_unref(struct mg_cancel *c);       /* NULL is fine */
void mg_cancel_fire(struct mg_cancel *c);        /* idempotent */
bool mg_cancel_fired(const struct mg_cancel *c); /* NULL: false */
int mg_cancel_fd(struct mg_cancel *c);           /* readable once fired; owned by the object; poll it, never read it */

#endif
