/* The backend `local` under another name, for plugins of this folder that change some of it. Linked with what local
 * is made of, but its descriptor. */
#ifndef MG_TESTS_LOCAL_COPY_H
#define MG_TESTS_LOCAL_COPY_H

#define mango_plugin_entry local_entry
#include "plugins/local/plugin.c"
#undef mango_plugin_entry

static struct mango_plugin mine;
static struct mango_sandbox_ops mine_ops;

/* Makes mine what local is, with mine_ops for its operations. */
static void copy_local(const char *name)
{
    mine = plugin;
    mine.name = name;
    mine.sandbox = &mine_ops;
    mine_ops = ops;
}

#endif
