/* What a service cannot do, done once for all backends. Traits say who needs it: MANGO_TRAIT_NO_KILL (a command that is
 * cancelled or over its limit goes on running) and MANGO_TRAIT_TEXT_OUTPUT (bytes come back mangled). Everything else goes to
 * the plugin as it is.
 *
 * A small launcher in the sandbox notes the command's process and marks its environment, then becomes the command, so that
 * how it ended is told by the service itself. To kill, a second command signals the group, and whatever carries the mark,
 * until nothing does. Output goes into files under the root, which are read back byte by byte and bounded here. */
#ifndef MG_SANDBOX_HELPER_H
#define MG_SANDBOX_HELPER_H

#include "plugin/plugin.h"

enum {
    MG_HELPER_CALL_MS = 20000,               /* for the second command, and for reading the output */
    MG_HELPER_OUTPUT_MAX = 16 * 1024 * 1024, /* bytes of each stream that are read back when the caller sets no bound */
};

#define MG_HELPER_DIR ".mango-run" /* under the root: output and process numbers of commands that run */

/* The plugin's exec, with what it lacks. root: absolute, as commands see it. */
mango_status mg_helper_exec(struct mg_plugin *p, const struct mango_call *call, struct mango_sv id, const char *root,
                            const struct mango_exec_req *req, struct mango_exec_result *ret);

#endif
