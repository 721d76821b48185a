#include "run/mounts.h"

#include "base/clock.h"
#include "base/mem.h"
#include "events/notify.h"
#include "object/object.h"
#include "run/engine-internal.h"
#include "sandbox/manager.h"
#include "store/resource.h"

enum {
    LIST_MAX = 2 * 1024 * 1024, /* bytes of the list of what is there: 500 lines of at most 1.2 KB, twice */
    REMOVE_MS = 30000,
    MOUNT_MODE = 0444,
};

/* What is there: a line "ID SHA256 PATH" for each file, and "ID git PATH" for each repository, in the workspace itself, so that a snapshot takes it
 * along. */
#define LIST_PATH ".session/mounts"

struct mg_sv mg_mount_place(struct mg_arena *a, struct mg_sv mount_path)
{
    if (mg_sv_starts(mount_path, "/mnt/session/"))
        return mg_arena_printf(a, ".session/%.*s", MG_SV_ARG(mg_sv_from(mount_path, strlen("/mnt/session/"))));
    return mg_arena_sv(a, mg_sv_from(mount_path, strlen("/workspace/")));
}

static bool is_repository(const struct mg_mount_row *m)
{
    return !m->object_key.ptr;
}

static struct mg_sv line_of(struct mg_arena *a, const struct mg_mount_row *m)
{
    struct mg_sv kind = is_repository(m) ? MG_SV("git") : m->sha256;
    return mg_arena_printf(a, "%.*s %.*s %.*s", MG_SV_ARG(m->id), MG_SV_ARG(kind), MG_SV_ARG(m->mount_path));
}

static bool has_line(struct mg_sv list, struct mg_sv line)
{
    while (list.len)
        if (mg_sv_eq(mg_sv_split(&list, '\n'), line))
            return true;
    return false;
}

/* ---- one file ---- */

struct source {
    struct mg_objects *objects;
    struct mg_pg *pg;
    const struct mg_mount_row *row;
    int64_t at;
    struct mg_err err;
};

static int64_t next_bytes(void *ctx, char *p, uint64_t n)
{
    struct source *s = ctx;
    size_t got = 0;
    if (!s->objects)
        return mg_err_set(&s->err, MG_EUNAVAIL, "this server has no object store"), MANGO_ERETRY;
    if (mg_object_read_at(s->objects, s->pg, s->row->object_key, s->row->size, s->at, p, (size_t)n, &got, &s->err) < 0)
        return MANGO_ERETRY;
    s->at += (int64_t)got;
    return (int64_t)got;
}

static mg_rc put_in(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, struct mg_sandbox *box,
                    const struct mg_mount_row *m, struct mg_err *err)
{
    struct source s = {.objects = e->opts.objects, .pg = pg, .row = m};
    mg_rc rc = mg_sandbox_put(box, mg_mount_place(a, m->mount_path).ptr, MOUNT_MODE, next_bytes, &s, m->size, err);
    if (rc < 0 && s.err.rc < 0) /* the store, not the sandbox */
        rc = mg_err_set(err, s.err.rc == MG_EUNAVAIL ? MG_EUNAVAIL : MG_EINTERNAL,
                        "a file of the session cannot be read: %s", s.err.text);
    return rc;
}

static mg_rc take_out(struct mg_arena *a, struct mg_sandbox *box, struct mg_sv line, struct mg_err *err)
{
    (void)mg_sv_split(&line, ' ');
    bool folder = mg_sv_eqz(mg_sv_split(&line, ' '), "git");
    struct mg_exec_status st;
    bool ours = mg_sv_starts(line, "/mnt/session/") || mg_sv_starts(line, "/workspace/");
    if (!ours)
        return MG_OK; /* not of our writing */
    const char *const argv[] = {"rm", folder ? "-rf" : "-f", "--", mg_mount_place(a, line).ptr, NULL};
    const struct mg_exec_req req = {.argv = argv, .deadline_ns = mg_now_ns() + REMOVE_MS * UINT64_C(1000000)};
    return mg_sandbox_ops(box)->exec(box, &req, &st, err);
}

/* ---- all of them ---- */

static mg_rc take_out_old(struct mg_arena *a, struct mg_sandbox *box, struct mg_sv list,
                          const struct mg_mount_row *rows, int n, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    while (list.len && rc >= 0) {
        struct mg_sv line = mg_sv_split(&list, '\n');
        bool wanted = line.len == 0;
        for (int i = 0; i < n && !wanted; i++)
            wanted = mg_sv_eq(line, line_of(a, &rows[i]));
        if (!wanted)
            rc = take_out(a, box, line, err);
    }
    return rc;
}

static mg_rc write_list(struct mg_sandbox *box, const struct mg_buf *list, struct mg_err *err)
{
    return mg_sandbox_ops(box)->write(box, LIST_PATH, mg_buf_view(list), err);
}

/* A workspace without the list has none of them. */
static mg_rc read_list(struct mg_sandbox *box, struct mg_buf *out, struct mg_err *err)
{
    bool eof = false;
    mg_rc rc = mg_sandbox_ops(box)->read(box, LIST_PATH, 0, LIST_MAX, out, &eof, err);
    return rc == MG_ENOTFOUND || rc == MG_EINVAL ? MG_OK : rc;
}

mg_rc mg_mounts_sync(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, struct mg_sandbox *box,
                     bool *ret_missing, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf list = MG_BUF_INIT(LIST_MAX), now = MG_BUF_INIT(LIST_MAX);
    struct mg_mount_row *rows;
    int n = 0;
    *ret_missing = false;
    mg_rc rc = mg_mounts_of(a, pg, mg_id_sv(session), &rows, &n, err);
    if (rc >= 0)
        rc = read_list(box, &list, err);
    if (rc < 0 || (n == 0 && list.len == 0))
        return rc;
    struct mg_sv was = mg_buf_view(&list);
    rc = take_out_old(a, box, was, rows, n, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        struct mg_sv line = line_of(a, &rows[i]);
        bool there = has_line(was, line);
        *ret_missing |= !there && is_repository(&rows[i]);
        if (!there && !is_repository(&rows[i]))
            rc = put_in(e, pg, a, box, &rows[i], err);
        if (there || !is_repository(&rows[i]))
            (void)mg_buf_printf(&now, "%.*s\n", MG_SV_ARG(line));
    }
    return rc >= 0 && !mg_sv_eq(was, mg_buf_view(&now)) ? write_list(box, &now, err) : rc;
}

mg_rc mg_mounts_note_repository(struct mg_sandbox *box, struct mg_sv id, struct mg_sv mount_path, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf list = MG_BUF_INIT(LIST_MAX);
    mg_rc rc = read_list(box, &list, err);
    if (rc >= 0)
        rc = mg_buf_printf(&list, "%.*s git %.*s\n", MG_SV_ARG(id), MG_SV_ARG(mount_path));
    return rc < 0 ? rc : write_list(box, &list, err);
}

void mg_mounts_changed(struct mg_engine *e, const struct mg_id *session)
{
    mg_box_stale(e, mg_id_sv(session));
    if (e->opts.notify)
        mg_notify_send(e->opts.notify, mg_id_sv(session), 0);
}
