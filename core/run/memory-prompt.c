#include "base/mem.h"
#include "domain/memory.h"
#include "domain/resource.h"
#include "json/json.h"
#include "run/memory.h"
#include "run/prompt.h"

enum {
    TEXT_MAX = 256 * 1024 /* bytes: eight stores with names, descriptions and instructions of the longest kind */
};

/* Where the store is: its mount, and where that is when commands do not know it; a worker puts it into its own folder. */
static struct mg_sv folder_of(struct mg_arena *a, const struct mg_json *store)
{
    struct mg_sv mount = mg_json_get_str(a, store, "mount_path");
    if (mount.len == 0)
        return mg_arena_printf(a, "memory/%.*s in the working folder", MG_SV_ARG(mg_json_get_str(a, store, "name")));
    return mg_arena_printf(a, "%.*s (where commands do not find it: .session/memory%.*s in the working folder)",
                           MG_SV_ARG(mount), MG_SV_ARG(mg_sv_from(mount, strlen(MG_MOUNT_MEMORY))));
}

static void describe(struct mg_arena *a, const struct mg_json *store, struct mg_buf *out)
{
    struct mg_sv description = mg_json_get_str(a, store, "description");
    struct mg_sv instructions = mg_json_get_str(a, store, "instructions");
    bool read_only = mg_sv_eqz(mg_json_get_str(a, store, "access"), "read_only");
    (void)mg_buf_printf(out, "- %.*s: \"%.*s\"%s%s%.*s\n", MG_SV_ARG(folder_of(a, store)),
                        MG_SV_ARG(mg_json_get_str(a, store, "name")), read_only ? ", which you can only read" : "",
                        description.len ? ": " : "", MG_SV_ARG(description));
    if (instructions.len)
        (void)mg_buf_printf(out, "  How to use it: %.*s\n", MG_SV_ARG(instructions));
}

mg_rc mg_memory_system(struct mg_arena *a, struct mg_sv stores, struct mg_sv *system, struct mg_err *err)
{
    struct mg_json *all;
    if (stores.len == 0)
        return MG_OK;
    mg_rc rc = mg_json_parse(a, stores, &mg_json_raw_limits, &all, err);
    if (rc < 0)
        return rc;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TEXT_MAX);
    (void)mg_buf_printf(
        &b,
        "You have memory: folders of text files that stay when this session is over, for you and for other sessions. "
        "Look into them before you begin a task, and write down there what will be worth knowing later. What you "
        "change is saved after each tool call; the call's result says what could not be. A file has at most %d bytes "
        "of UTF-8 text.\n",
        MG_MEMORY_CONTENT_MAX);
    for (const struct mg_json *s = all->child; s; s = s->next)
        describe(a, s, &b);
    if (!mg_buf_ok(&b))
        return mg_err_set(err, MG_EINTERNAL, "the descriptions of the memory stores are too long");
    mg_prompt_add(a, mg_buf_view(&b), system);
    return MG_OK;
}
