#include <stdlib.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "sandbox/internal.h"

/* A live id is not a live workspace: a service may resume an older disk, or an empty one, under the same id. So each
 * attach writes a new number into the workspace first and into the database then. The workspace may be one ahead (a
 * crash in between), never behind. */

#define MARKER_FILE ".mango-generation"

enum { RANDOM_BYTES = 8, MARKER_MAX = 64 };

struct marker {
    struct mg_sv random;
    uint64_t n;
};

/* "RANDOM.N" */
static bool parse(struct mg_sv s, struct marker *ret)
{
    const char *dot = memchr(s.ptr, '.', s.len);
    if (!dot || (size_t)(dot - s.ptr) != 2 * RANDOM_BYTES)
        return false;
    *ret = (struct marker){.random = mg_sv_n(s.ptr, 2 * RANDOM_BYTES)};
    size_t digits = 0;
    for (const char *c = dot + 1; c < s.ptr + s.len && *c >= '0' && *c <= '9' && digits < 18; c++, digits++)
        ret->n = ret->n * 10 + (uint64_t)(*c - '0');
    return digits > 0;
}

static struct mg_sv identity_of(struct mg_sv stored)
{
    const char *slash = memchr(stored.ptr, '/', stored.len);
    return slash ? mg_sv_n(slash + 1, (size_t)(stored.ptr + stored.len - slash - 1)) : mg_sv_n("", 0);
}

static mg_rc put(struct mg_sandbox *s, struct mg_arena *a, struct mg_sv random, uint64_t n, struct mg_sv *ret,
                 struct mg_err *err)
{
    struct mg_sv text = mg_arena_printf(a, "%.*s.%llu\n", MG_SV_ARG(random), (unsigned long long)n);
    mg_rc rc = mg_sandbox_ops(s)->write(s, MARKER_FILE, text, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "mark the workspace");
    *ret = mg_arena_printf(a, "%.*s.%llu/%s", MG_SV_ARG(random), (unsigned long long)n, s->identity);
    return MG_OK;
}

mg_rc mg_marker_first(struct mg_sandbox *s, struct mg_arena *a, struct mg_sv *ret, struct mg_err *err)
{
    uint8_t bytes[RANDOM_BYTES];
    char random[2 * RANDOM_BYTES + 1];
    mg_rng_bytes(bytes, sizeof(bytes));
    mg_hex(bytes, sizeof(bytes), random);
    return put(s, a, mg_sv_of(random), 1, ret, err);
}

static mg_rc lost(struct mg_err *err, const char *why)
{
    return mg_err_code(
        err, MG_EGONE, "workspace_lost",
        "the session's workspace is lost: %s. Its files are not replaced by an empty workspace; delete the session and "
        "start a new one",
        why);
}

mg_rc mg_marker_next(struct mg_sandbox *s, struct mg_arena *a, struct mg_sv stored, struct mg_sv *ret,
                     struct mg_err *err)
{
    struct marker want, found;
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(MARKER_MAX);
    bool eof;
    struct mg_sv identity = identity_of(stored);
    bool same_disk = identity.len > 0 && mg_sv_eqz(identity, s->identity);
    if (!parse(stored, &want))
        return mg_err_set(err, MG_EINTERNAL, "the stored generation of the workspace is damaged");
    if (identity.len > 0 && s->identity[0] && !same_disk)
        return lost(err, "the service gave another disk under the same name");
    mg_rc rc = mg_sandbox_ops(s)->read(s, MARKER_FILE, 0, MARKER_MAX - 1, &text, &eof, err);
    if (rc < 0 && rc != MG_ENOTFOUND)
        return mg_err_wrap(err, rc, "look at the workspace's marker");
    if (rc == MG_OK && parse(mg_buf_view(&text), &found)) {
        if (!mg_sv_eq(found.random, want.random))
            return lost(err, "what is there now belongs to another workspace");
        if (found.n < want.n)
            return lost(err, "the service brought back an older state of it");
        if (found.n > want.n + 1)
            return lost(err, "its marker is ahead of the database, which must be an older copy");
        return put(s, a, want.random, found.n + 1, ret, err);
    }
    /* A command may have removed the file; a disk that is known to be the same one and keeps its files proves enough.
     */
    if (!same_disk || !mg_plugin_can(s->plugin, MANGO_CAP_DURABLE_WORKSPACE))
        return lost(err, "its marker is gone, as in a new and empty workspace");
    mg_log(MG_WARN, "the workspace's marker was removed from inside; the disk is the same, so it is written again",
           MG_F_STR("session", s->entry->session.s));
    return put(s, a, want.random, want.n + 1, ret, err);
}
