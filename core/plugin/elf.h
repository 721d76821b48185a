/* The exported names of a shared object, read from the file without loading it. */
#ifndef MG_PLUGIN_ELF_H
#define MG_PLUGIN_ELF_H

#include <stddef.h>

#include "base/err.h"

/* Calls fn for each defined global symbol that the object exports. Errors are MG_EINVAL with what was found ("it is not
 * an ELF file"), without the path. fd stays the caller's. */
mg_rc mg_elf_exports(int fd, void (*fn)(void *ctx, const char *name), void *ctx, struct mg_err *err) MG_MUSTCHECK;

#endif
