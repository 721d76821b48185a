/* What a plugin must leave alone in the process: umask, working folder, locale, signal handlers, signal mask, standard
 * descriptors. Looked at around init, and around every case of the conformance run. */
#ifndef MG_PLUGIN_PROCESS_STATE_H
#define MG_PLUGIN_PROCESS_STATE_H

#include <signal.h>
#include <sys/stat.h>

#include "base/buf.h"

enum { MG_PROCESS_SIGNALS = 6, MG_PROCESS_LOCALE_MAX = 512 };

struct mg_process_state {
    mode_t umask;
    struct stat cwd;
    struct stat fds[3];
    bool fd_open[3];
    char locale[MG_PROCESS_LOCALE_MAX];
    struct sigaction handlers[MG_PROCESS_SIGNALS];
    sigset_t mask; /* of the calling thread */
};

void mg_process_state_save(struct mg_process_state *ret);
/* Appends one line for each thing that differs now ("umask is 0000, was 0022"); returns their number. */
unsigned mg_process_state_diff(const struct mg_process_state *before, struct mg_buf *out);
/* Puts back what can be put back and logs each violation with the plugin's name. Startup only: it is not atomic. */
void mg_process_state_restore(const struct mg_process_state *before, const char *plugin);

#endif
