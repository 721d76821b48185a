/* Looking at plugin files without loading them into this process: each is opened in a child. */
#ifndef MG_PLUGIN_PROBE_H
#define MG_PLUGIN_PROBE_H

#include "base/arena.h"
#include "plugin/plugin.h"

/* What the child does: inspects path and writes one JSON object to standard output:
 * {"path","ok":true,"name","version","license","summary","abi","kinds":[],"capabilities":[]} or
 * {"path","ok":false,"error"}. Returns the process's exit status. */
int mg_plugin_probe_main(const char *path);

/* Starts argv (ending with NULL; usually this program's own file and a hidden subcommand) with path added, and gives
 * what it wrote, or an object of the second form when it died or took longer than 10 s. Arena memory. */
struct mg_sv mg_plugin_probe(struct mg_arena *a, const char *const *argv, const char *path);
/* The probes of all files in dir, sorted by name: a JSON array. */
struct mg_sv mg_plugin_probe_all(struct mg_arena *a, const char *const *argv, const char *dir);

#endif
