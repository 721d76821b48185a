/* Folds the events of a Messages stream, or a whole JSON answer, into one mg_model_result. Pure; one thread at a time.
 *
 * A block goes back into the transcript as the endpoint wrote it: the text of its content_block_start is kept byte
 * for byte and only the members that deltas extend are spliced in. Strings are joined in their escaped form, never
 * decoded. */
#ifndef MG_MODEL_MESSAGE_H
#define MG_MODEL_MESSAGE_H

#include "model/model.h"

enum {
    MG_MODEL_BLOCKS_MAX = 1000, /* content blocks of one answer: far above what endpoints send */
    MG_MODEL_TEXT_DEPTH = 512,  /* nesting levels of a tool input */
};

struct mg_message;

/* As on_delta of mg_model_call_opts. */
typedef void mg_message_delta_fn(void *ctx, int block_index, enum mg_block_kind kind, bool start, struct mg_sv text);

enum mg_message_step {
    MG_MESSAGE_MORE,
    MG_MESSAGE_PING, /* the peer is alive, the model may not be: does not count against the idle time */
    MG_MESSAGE_END,  /* message_stop, or the failure is known: what follows is not looked at */
};

struct mg_message *mg_message_new(mg_message_delta_fn *fn, void *ctx); /* fn may be NULL */
/* One stream event; the kind is taken from the data's own type. */
enum mg_message_step mg_message_event(struct mg_message *m, struct mg_sv data);
/* A non-streaming answer: a message object or an error object. */
enum mg_message_step mg_message_whole(struct mg_message *m, struct mg_sv body);
/* Notes a failure; the first one stays. */
void mg_message_fail(struct mg_message *m, enum mg_model_fail fail, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool mg_message_ended(const struct mg_message *m);
int mg_message_events(const struct mg_message *m); /* events folded so far, pings included */
/* Closes the answer: without message_stop and a stop_reason it is a failure. Frees m. The blocks of a failed answer
 * are what came until then; they are for display, never to be run. */
struct mg_model_result *mg_message_finish(struct mg_message *m);

#endif
