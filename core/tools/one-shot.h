/* bash for sandboxes that cannot hold a process: each command is one shell, whose folder and variables (bash: functions too) are kept in a
 * file in the sandbox's temporary folder. Background jobs are not jobs of the next command. */
#ifndef MG_TOOLS_ONE_SHOT_H
#define MG_TOOLS_ONE_SHOT_H

#include "tools/internal.h"
#include "tools/output.h"

mg_rc mg_one_shot_run(struct mg_tools *t, struct mg_sv command, uint64_t deadline_ns, struct mg_cancel *cancel,
                      struct mg_output *out, struct mg_exec_status *ret, struct mg_err *err) MG_MUSTCHECK;
/* Removes the state file, if there is one; the next command starts afresh. */
void mg_one_shot_forget(struct mg_tools *t);

#endif
