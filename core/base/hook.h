/* Test hooks: named points at which the test build can crash, stop or delay the process.
 *
 * mangod links hook-none.c, in which this does nothing. tests/mangod-test links hook-test.c, which reads
 * MANGO_TEST_HOOKS, a comma-separated list of `NAME=ACTION[:N]`: the N-th time (default 1) that NAME is passed, do
 * ACTION: kill (SIGKILL to itself), stop (SIGSTOP), sleepMS, gate (its thread waits at the FIFO MANGO_TEST_HOOK_GATE). Names are listed in docs/architecture.md. */
#ifndef MG_BASE_HOOK_H
#define MG_BASE_HOOK_H

void mg_hook(const char *name);

#endif
