/* Mango plugin ABI 1: the one header that a plugin includes.
 *
 * A plugin is NAME.so with one exported function, mango_plugin_entry, which returns a static const descriptor and does
 * nothing else.
 *
 *   static const struct mango_sandbox_ops ops = {.struct_size = sizeof(ops), .create = ..., ...};
 *   static const struct mango_plugin plugin = {
 *       MANGO_PLUGIN_PREFIX, .kind = MANGO_KIND_SANDBOX, .name = "example", .version = "1.0", .license = "MIT",
 *       .summary = "...", .caps = 0, .init = init, .fini = fini, .sandbox = &ops};
 *   MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void) { return &plugin; }
 *
 * Growth: members are appended and the minor goes up; nothing is reordered, retyped or given another meaning. The
 * server takes a plugin of its own major whose abi_minor (the lowest server minor that it needs) is not above the
 * server's.
 *
 * A plugin must not: exit, abort, fork without exec, setenv, setlocale, signal or sigaction, chdir, umask,
 * curl_global_init, write to descriptors 1 and 2, leave a thread of its own running after fini, or export a second
 * symbol. */
#ifndef MANGO_PLUGIN_H
#define MANGO_PLUGIN_H

#include "mango/host.h"
#include "mango/launcher.h"
#include "mango/sandbox.h"
#include "mango/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MANGO_PLUGIN_MAGIC UINT32_C(0x6F676E4D) /* "Mngo" in memory */
#define MANGO_KIND_SANDBOX (UINT32_C(1) << 0)
#define MANGO_KIND_LAUNCHER (UINT32_C(1) << 1)

/* config: a JSON object with the plugin's settings, "{}" when there are none. *ret_ctx is given to every operation.
 * Called once, or again after fini. On failure the text goes out by call's err_set, and fini is not called. */
typedef mango_status mango_plugin_init_fn(const struct mango_host *host, const struct mango_call *call,
                                          struct mango_sv config, void **ret_ctx);
/* No operation runs any more. Joins the plugin's threads. */
typedef void mango_plugin_fini_fn(void *ctx);

struct mango_plugin {
    /* The first 16 bytes are frozen for all majors. */
    uint32_t magic;                /* MANGO_PLUGIN_MAGIC */
    uint16_t abi_major, abi_minor; /* what it was compiled against */
    uint32_t struct_size;          /* sizeof as the plugin saw it */
    uint32_t kind;                 /* MANGO_KIND_* */
    const char *name, *version, *license, *summary;
    uint64_t caps;          /* MANGO_CAP_*, MANGO_TRAIT_* */
    uint64_t required_host; /* MANGO_HOST_* that it cannot do without */
    mango_plugin_init_fn *init;
    mango_plugin_fini_fn *fini;
    const struct mango_sandbox_ops *sandbox;   /* NULL without the sandbox bit */
    const struct mango_launcher_ops *launcher; /* NULL without the launcher bit */
};
MANGO_AT(struct mango_plugin, magic, 0);
MANGO_AT(struct mango_plugin, abi_major, 4);
MANGO_AT(struct mango_plugin, abi_minor, 6);
MANGO_AT(struct mango_plugin, struct_size, 8);
MANGO_AT(struct mango_plugin, kind, 12);
MANGO_AT(struct mango_plugin, name, 16);
MANGO_AT(struct mango_plugin, caps, 48);
MANGO_AT(struct mango_plugin, required_host, 56);
MANGO_AT(struct mango_plugin, init, 64);
MANGO_AT(struct mango_plugin, fini, 72);
MANGO_AT(struct mango_plugin, sandbox, 80);
MANGO_AT(struct mango_plugin, launcher, 88);
MANGO_ASSERT(sizeof(struct mango_plugin) == 96);

#define MANGO_PLUGIN_PREFIX                                                                  \
    .magic = MANGO_PLUGIN_MAGIC, .abi_major = MANGO_ABI_MAJOR, .abi_minor = MANGO_ABI_MINOR, \
    .struct_size = sizeof(struct mango_plugin)

#define MANGO_EXPORT __attribute__((visibility("default")))

typedef const struct mango_plugin *mango_plugin_entry_fn(void);
MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void);

#ifdef __cplusplus
}
#endif
#endif
