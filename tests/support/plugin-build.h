/* Builds plugins as their authors do, with a C compiler and the installed headers, into a folder of the test's own. */
#ifndef MG_TESTS_PLUGIN_BUILD_H
#define MG_TESTS_PLUGIN_BUILD_H

#include <stdbool.h>

enum { PLUGIN_PATH_MAX = 512 };

/* A new private folder under TMPDIR, removed with rm -rf by plugin_dir_remove. */
void plugin_dir_make(char out[PLUGIN_PATH_MAX]);
void plugin_dir_remove(const char *dir);
/* Absolute path of the source tree. */
const char *plugin_srcdir(void);
/* Runs `sh -c command` (printf format); true when it exits with 0. */
bool plugin_sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* cc -shared of sources (relative to the source tree, separated by blanks) into dir/name.so. flags: more compiler flags, or "". */
bool plugin_build(const char *dir, const char *name, const char *sources, const char *flags);
/* local.so and mango-local-runner. */
bool plugin_build_local(const char *dir);
/* liar.so, which is local with lies: tests/abi/liar.c. Needs the runner of plugin_build_local. */
bool plugin_build_liar(const char *dir);
/* limp.so, which is local as a service that cannot kill and gives its output as text: tests/abi/limp.c. */
bool plugin_build_limp(const char *dir);

#endif
