/* The deterministic offline model: the same request always gets the same answer, without any network. Pure.
 *
 * It reads the last user text line by line. Each line that names an action becomes one tool call; the calls are made
 * one after the other, and the last answer quotes what they gave. Anything else is answered with an echo.
 *
 *   run: COMMAND | run `COMMAND` | $ COMMAND        bash
 *   write FILE: TEXT | read FILE | edit FILE: OLD -> NEW | glob PATTERN | grep PATTERN [in PATH]
 *   use TOOL {"json":"input"}                        any tool of the request, custom tools included
 *   a sentence about listing, counting, running or files   bash, with a command that fits */
#ifndef MG_MODEL_OFFLINE_H
#define MG_MODEL_OFFLINE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_OFFLINE_STEPS_MAX = 32,   /* tool calls that one user text can ask for */
    MG_OFFLINE_QUOTE_MAX = 2000, /* bytes of one tool result in the last answer */
    MG_OFFLINE_DELTA_MAX = 48,   /* bytes of one text delta, so that a reader sees it grow */
};

/* Appends the answer to a request body as a Messages event stream. A body that no endpoint would take is answered
 * with an error event, as a real one would. */
mg_rc mg_offline_answer(struct mg_sv body, struct mg_buf *out);

#endif
