/* What the test endpoint answers. A script is lines of commands; lines of three dashes part the answers of one turn:
 * the first answers the request that holds the text, the next the request with the tool results, and so on. In a user
 * text, the script begins behind a line "#fake", in that of a grader behind "#grade", and ends at a line "#end" or with
 * the text. Without a script the answer is an echo.
 *
 *   text WORDS           a text block; \n in WORDS is a line break
 *   big N                a text block of N bytes
 *   think WORDS          a thinking block; its signature is checked when it comes back
 *   redacted WORDS       a redacted_thinking block
 *   tool NAME JSON       a tool_use block; JSON goes out as it is, whole or not
 *   cut-tool NAME JSON   the same without its content_block_stop
 *   block JSON           a content block of any kind, as it is
 *   raw JSON             a stream event, as it is
 *   line TEXT            a line of the stream, as it is
 *   repeat N TEXT        the same line N times
 *   end                  ends a stream that is no model's, as HTTP has it
 *   drop                 closes the connection of one
 *   stop REASON [JSON]   ends the answer with this stop_reason and these stop_details; end_turn or tool_use without it
 *   usage IN OUT [READ CREATED]
 *   chunk N              bytes of one delta from here on (32)
 *   delay MS             a pause
 *   ping N MS            N pings with a pause before each
 *   silence              nothing more, the connection stays
 *   cut                  the stream ends here, as HTTP has it
 *   close                the connection is closed here, in the middle
 *   reset                the connection is reset here
 *   error TYPE WORDS     an error event; ends the answer
 *   status CODE WORDS    no stream: this status, with the API's error object
 *   too-long             status 400, "prompt is too long"
 *   header NAME: VALUE   a header of the answer; must come before all that sends
 *   body TYPE TEXT       no stream: this content type and text, status 200 or that of `code N` before
 *   code N               the status for body
 *   empty                a stream of no bytes
 *   recall NAME          a text block with what the request itself says of NAME, in the form "FACT NAME=VALUE"
 *   whole                what the script says as one JSON object, not as a stream
 *   no-type              without a content type
 *   stale                afterwards the connection is reset as soon as the next request begins on it
 *   @N COMMAND           only for the first N requests with the same script and place
 *   +N COMMAND           only after the first N */
#ifndef TESTS_SUPPORT_ENDPOINT_SCRIPT_H
#define TESTS_SUPPORT_ENDPOINT_SCRIPT_H

#include "base/arena.h"
#include "base/buf.h"

enum endpoint_step_kind { STEP_SEND, STEP_WAIT, STEP_HANG, STEP_CLOSE, STEP_RESET, STEP_STALE };

struct endpoint_step {
    enum endpoint_step_kind kind;
    int ms;
    size_t from, len; /* SEND: bytes of the answer */
};

struct endpoint_answer {
    struct mg_buf bytes;
    struct endpoint_step *steps;
    int n_steps;
    bool close_after; /* without keep-alive */
};

void endpoint_answer_done(struct endpoint_answer *a);
/* attempt: from 1, of this script and place. serial makes ids unique. stream: the request wants one. */
void endpoint_compile(struct endpoint_answer *a, struct mg_sv stage, int attempt, unsigned serial, bool stream);
/* A plain JSON answer. */
void endpoint_json(struct endpoint_answer *a, int status, struct mg_sv json);
/* The API's error object with the type that belongs to the status. */
void endpoint_error(struct endpoint_answer *a, int status, const char *message);
/* The part of a user text that answers this round: *ret_script is false when the text holds none. */
struct mg_sv endpoint_stage(struct mg_sv text, int round, bool *ret_script);
/* The signature of a thinking block. */
void endpoint_signature(struct mg_sv thinking, char out[32]);

#endif
