/* What the agent left in /mnt/session/outputs becomes files of the session, before the turn that ends it says idle (semantics EX14, TU12).
 *
 * The model's last answer waits in memory meanwhile: a crash asks the model again and publishes again, what is there already being kept. Files are named
 * by their path; one whose bytes are the same stays the file it was. */
#ifndef MG_RUN_OUTPUTS_H
#define MG_RUN_OUTPUTS_H

#include "run/engine-internal.h"

#define MG_OUTPUTS_PATH ".session/outputs" /* of the workspace; /mnt/session leads to .session */

enum {
    MG_OUTPUTS_MAX = 500,        /* files: semantics EX14 */
    MG_OUTPUT_PATH_CHARS = 1024, /* characters of a path: the same */
    MG_OUTPUTS_MS = 600000, /* of one publication: the turn waits for it, and the reference's step ends at 30 min */
    MG_OUTPUTS_THREADS = 8, /* sessions that publish at once; each holds a connection */
};
#define MG_OUTPUTS_BYTES (500LL * 1024 * 1024) /* of all files of a session: as of those that are mounted */

/* Makes the folder where it is missing; without it a command's first write there would fail. On the thread that acquired the sandbox. */
void mg_outputs_prepare(struct mg_sandbox *box);
/* True: the turn's answer waits for the publication, and mg_run_response is called again. */
bool mg_outputs_first(struct mg_run *r) MG_MUSTCHECK;
/* In the step that ends the turn: adds the session.error that names what was not published. */
void mg_outputs_say(struct mg_run *r, struct mg_step *s);
void mg_outputs_committed(struct mg_run *r); /* after the commit of each answer */

#endif
