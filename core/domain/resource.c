#include "domain/resource.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "domain/repository.h"

static const char *const KINDS[] = {"file", "github_repository", "memory_store", NULL};
enum kind { FILE_KIND, GITHUB_KIND, MEMORY_KIND };

/* ---- mount paths ---- */

static mg_rc bad_path(const char *place, const char *why, struct mg_err *err)
{
    return mg_err_set(err, MG_EINVAL, "%s: %s", place, why);
}

static mg_rc check_component(struct mg_sv s, const char *place, struct mg_err *err)
{
    if (s.len == 0)
        return bad_path(place, "must not have empty components or end in a slash", err);
    if (mg_sv_eqz(s, ".") || mg_sv_eqz(s, ".."))
        return bad_path(place, "must not have '.' or '..' in it", err);
    if (s.len > MG_MOUNT_COMPONENT_MAX)
        return mg_err_set(err, MG_EINVAL, "%s: a component may have at most %d bytes", place, MG_MOUNT_COMPONENT_MAX);
    return MG_OK;
}

static bool below(struct mg_sv path, const char *folder)
{
    size_t n = strlen(folder);
    return path.len > n + 1 && memcmp(path.ptr, folder, n) == 0 && path.ptr[n] == '/';
}

/* The server's own places in the workspace. */
static bool reserved(struct mg_sv path)
{
    static const char *const OWN[] = {"/workspace/skills", "/workspace/.session", "/workspace/.agents", NULL};
    for (int i = 0; OWN[i]; i++)
        if (mg_sv_eqz(path, OWN[i]) || below(path, OWN[i]))
            return true;
    return mg_sv_starts(path, "/workspace/.mango");
}

mg_rc mg_mount_path_check(struct mg_sv path, const char *place, struct mg_err *err)
{
    if (path.len > MG_MOUNT_PATH_MAX)
        return mg_err_set(err, MG_EINVAL, "%s: may have at most %d bytes", place, MG_MOUNT_PATH_MAX);
    if (!mg_utf8_valid(path, NULL) || mg_text_hides(path) || memchr(path.ptr, '\\', path.len))
        return bad_path(place, "must be UTF-8 without control characters, line or direction marks and backslashes",
                        err);
    if (path.len < 2 || path.ptr[0] != '/')
        return bad_path(place, "must be absolute", err);
    struct mg_sv rest = mg_sv_from(path, 1);
    bool more = true;
    while (more) {
        size_t at = mg_sv_find(rest, '/');
        more = at < rest.len;
        mg_rc rc = check_component(mg_sv_n(rest.ptr, at), place, err);
        if (rc < 0)
            return rc;
        rest = mg_sv_from(rest, at + 1);
        if (more && rest.len == 0)
            return check_component(rest, place, err);
    }
    if (!below(path, MG_MOUNT_UPLOADS) && !below(path, "/workspace"))
        return bad_path(place, "must lie below " MG_MOUNT_UPLOADS " or /workspace", err);
    if (reserved(path))
        return bad_path(place, "is a place of the server's own; choose another one", err);
    return MG_OK;
}

bool mg_mounts_meet(struct mg_sv a, struct mg_sv b)
{
    struct mg_sv shorter = a.len < b.len ? a : b, longer = a.len < b.len ? b : a;
    if (memcmp(shorter.ptr, longer.ptr, shorter.len) != 0)
        return false;
    return shorter.len == longer.len || longer.ptr[shorter.len] == '/';
}

/* ---- entries ---- */

static mg_rc parse_memory(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_resource_spec *ret,
                          struct mg_err *err)
{
    static const char *const ACCESS[] = {"read_write", "read_only", NULL};
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = "memory_store_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
        {.name = "access", .type = MG_FT_STRING, .flags = MG_FF_NULL, .one_of = ACCESS},
        {.name = "instructions",
         .type = MG_FT_STRING,
         .flags = MG_FF_NULL | MG_FF_TEXT,
         .max = MG_STORE_INSTRUCTIONS_MAX},
        {.name = NULL},
    };
    const struct mg_json *m[4];
    char p[MG_PATH_MAX];
    if (!place[0])
        return mg_err_set(err, MG_EINVAL, "type: a memory store can only be given when the session is created");
    mg_rc rc = mg_check_object(a, v, place, RULES, m, err);
    if (rc < 0)
        return rc;
    *ret = (struct mg_resource_spec){
        .memory_store_id = mg_json_str(a, m[1]),
        .read_only = mg_given(m[2]) && mg_sv_eqz(mg_json_str(a, m[2]), "read_only"),
        .instructions = mg_given(m[3]) ? mg_json_str(a, m[3]) : mg_sv_n(NULL, 0),
    };
    if (ret->instructions.ptr && memchr(ret->instructions.ptr, '\0', ret->instructions.len))
        return mg_err_set(err, MG_EINVAL, "%s: must not hold NUL (\\u0000)", mg_place(p, place, "instructions"));
    return MG_OK;
}

mg_rc mg_resource_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_resource_spec *ret,
                        struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = "file_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
        {.name = "mount_path", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    char p[MG_PATH_MAX];
    int kind = 0;
    mg_rc rc = mg_check_tag(a, v, place, KINDS, &kind, err);
    if (rc < 0)
        return rc;
    if (kind == MEMORY_KIND)
        return parse_memory(a, v, place, ret, err);
    if (kind == GITHUB_KIND)
        return mg_repository_parse(a, v, place, ret, err);
    rc = mg_check_object(a, v, place, RULES, m, err);
    if (rc < 0)
        return rc;
    *ret = (struct mg_resource_spec){.file_id = mg_json_str(a, m[1])};
    if (!mg_given(m[2])) {
        ret->mount_path = mg_arena_printf(a, MG_MOUNT_UPLOADS "/%.*s", MG_SV_ARG(ret->file_id));
        return MG_OK;
    }
    ret->mount_path = mg_json_str(a, m[2]);
    if (ret->mount_path.len > 0 && ret->mount_path.ptr[0] != '/') /* the SDKs' example says "data.csv" */
        ret->mount_path = mg_arena_printf(a, MG_MOUNT_UPLOADS "/%.*s", MG_SV_ARG(ret->mount_path));
    return mg_mount_path_check(ret->mount_path, mg_place(p, place, "mount_path"), err);
}

static mg_rc check_pair(const struct mg_resource_spec *x, int i, int n, struct mg_err *err)
{
    bool stores = x[i].memory_store_id.ptr && x[n].memory_store_id.ptr;
    if (stores && mg_sv_eq(x[i].memory_store_id, x[n].memory_store_id))
        return mg_err_set(err, MG_EINVAL, "resources[%d].memory_store_id: is that of resources[%d] too", n, i);
    bool mounts = !x[i].memory_store_id.ptr && !x[n].memory_store_id.ptr;
    if (mounts && mg_mounts_meet(x[i].mount_path, x[n].mount_path))
        return mg_err_set(err, MG_EINVAL, "resources[%d].mount_path: meets that of resources[%d]", n, i);
    return MG_OK;
}

mg_rc mg_resources_parse(struct mg_arena *a, const struct mg_json *v, struct mg_resource_spec **ret, int *ret_n,
                         struct mg_err *err)
{
    struct mg_resource_spec *x = mg_arena_alloc(a, sizeof(*x) * ((size_t)v->n + 1));
    char p[MG_PATH_MAX];
    int n = 0, stores = 0;
    for (const struct mg_json *e = v->child; e; e = e->next, n++) {
        mg_rc rc = mg_resource_parse(a, e, mg_place_at(p, "resources", (unsigned)n), &x[n], err);
        if (rc < 0)
            return rc;
        for (int i = 0; i < n && rc >= 0; i++)
            rc = check_pair(x, i, n, err);
        stores += x[n].memory_store_id.ptr != NULL;
        if (rc >= 0 && stores > MG_SESSION_STORES_MAX)
            rc = mg_err_set(err, MG_EINVAL, "resources: a session may have at most %d memory stores",
                            MG_SESSION_STORES_MAX);
        if (rc < 0)
            return rc;
    }
    *ret = x;
    *ret_n = n;
    return MG_OK;
}
