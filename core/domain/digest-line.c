#include "domain/digest-line.h"

#include "domain/memory.h"

enum { GAP = 2 }; /* between hash and name: a space, then another one or the star of binary mode */

static struct mg_sv unescaped(struct mg_arena *a, struct mg_sv name)
{
    char *out = mg_arena_alloc(a, name.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < name.len; i++) {
        bool escape = name.ptr[i] == '\\' && i + 1 < name.len;
        char c = name.ptr[escape ? ++i : i];
        out[n++] = escape && c == 'n' ? '\n' : escape && c == 'r' ? '\r' : c;
    }
    return mg_sv_n(out, n);
}

bool mg_digest_line(struct mg_arena *a, struct mg_sv line, struct mg_sv *ret_sha, struct mg_sv *ret_name)
{
    bool escaped = line.len && line.ptr[0] == '\\'; /* in front of a line whose name has escapes */
    if (escaped)
        line = mg_sv_from(line, 1);
    if (line.len <= MG_MEMORY_SHA + GAP || !mg_memory_sha_ok(mg_sv_n(line.ptr, MG_MEMORY_SHA)))
        return false;
    *ret_sha = mg_sv_n(line.ptr, MG_MEMORY_SHA);
    *ret_name = mg_sv_from(line, MG_MEMORY_SHA + GAP);
    if (escaped)
        *ret_name = unescaped(a, *ret_name);
    return true;
}
