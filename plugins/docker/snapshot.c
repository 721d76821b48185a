#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docker/archive.h"
#include "docker/plain.h"

/* Pauses, and snapshots as images. The workspace is a volume, which a commit leaves out: so a snapshot is made of a
 * container that never runs, of the sandbox's image, into which the workspace is copied. A new volume that is mounted over
 * a folder of an image begins as that folder: so a fork begins as the snapshot, with no copy of ours. */

enum { SNAPSHOT_DIGITS = 32 };

/* ---- pause ---- */

static mango_status set_paused(struct docker *d, const struct mango_call *call, struct mango_sv id, bool paused)
{
    struct box *b;
    struct container c;
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    s = container_inspect(d, call, b->live.id, &c);
    if (s == MANGO_OK && !c.there)
        s = fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                 b->live.id);
    else if (s == MANGO_OK && c.paused != paused && (c.running || !paused))
        s = paused     ? container_pause(d, call, b->live.id)
            : c.paused ? container_unpause(d, call, b->live.id)
                       : MANGO_OK;
    if (s == MANGO_OK) {
        pthread_mutex_lock(&b->live.lock);
        b->paused = paused;
        pthread_mutex_unlock(&b->live.lock);
    }
    live_leave(&b->live);
    return s;
}

mango_status docker_pause(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    return set_paused(ctx, call, id, true);
}

mango_status docker_resume(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    return set_paused(ctx, call, id, false);
}

/* ---- snapshots ---- */

/* The archive of the workspace, as the Engine's upload asks for it. */
struct upload {
    const struct mango_call *call;
    struct run run;
    struct text piece;
    uint64_t at;
};

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct upload *u = ctx;
    if (stream == 1)
        text_bytes(&u->piece, p, n);
    return 0;
}

static int64_t next_piece(void *ctx, char *p, uint64_t n)
{
    struct upload *u = ctx;
    while (u->at == u->piece.len) {
        u->at = u->piece.len = 0;
        int what = run_wait(&u->run, u->call, u->call->deadline_ns, false);
        if (what == RUN_END && u->piece.len == 0) {
            struct mango_exec_result r = {.struct_size = sizeof(r)};
            run_result(&u->run, &r);
            return r.exited && r.exit_code == 0 ? 0 : MANGO_EINTERNAL;
        }
        if (what == RUN_TIME || what == RUN_CANCEL)
            return what == RUN_TIME ? MANGO_ETIMEOUT : MANGO_ECANCELED;
    }
    uint64_t left = u->piece.len - u->at, take = left < n ? left : n;
    memcpy(p, u->piece.ptr + u->at, take);
    u->at += take;
    return (int64_t)take;
}

static mango_status copy_workspace(struct box *b, const struct mango_call *call, const char *template)
{
    struct docker *d = b->docker;
    text_auto struct text path = {0};
    struct engine_res r = {0};
    struct upload u = {.call = call};
    text_auto struct text folder = {0};
    struct mango_sv argv[PLAIN_ARCHIVE_ARGS] = {sv_z(BOX_PATH), sv_z("pack"), sv_z(b->root), sv_z(".")};
    const struct mango_exec_req command = {
        .struct_size = sizeof(command), .argv = argv, .n_argv = b->plain ? PLAIN_ARCHIVE_ARGS : 4};
    bool unsent;
    u.run = (struct run){.out = chunk_to(on_output, &u, 1, 0), .err = chunk_to(on_output, &u, 2, 0)};
    mango_status s = b->plain ? plain_archive(b, call, true, sv_z("."), &folder, argv) : MANGO_OK;
    if (s == MANGO_OK)
        s = run_start(b, call, &command, RUN_NO_STDIN, &u.run, &unsent);
    text_printf(&path, "/containers/%.64s/archive?path=", template);
    text_url(&path, sv_z(b->root));
    const struct engine_req req = {
        .method = "PUT", .path = path.ptr, .type = "application/x-tar", .source = next_piece, .source_ctx = &u};
    if (s == MANGO_OK)
        s = path.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "copy the workspace into the snapshot");
    engine_free(d, &r);
    run_close(&u.run, call);
    text_free(&u.piece);
    return s;
}

mango_status docker_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id,
                             struct mango_buf *ret_snapshot)
{
    struct docker *d = ctx;
    struct box *b;
    struct container c;
    char template[80] = "", digits[SNAPSHOT_DIGITS + 1], name[TAG_MAX];
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    random_hex(digits, SNAPSHOT_DIGITS);
    snprintf(name, sizeof(name), SNAPSHOT_REPO ":%s", digits);
    s = container_inspect(d, call, b->live.id, &c);
    if (s == MANGO_OK && !c.there)
        s = fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                 b->live.id);
    if (s == MANGO_OK)
        s = template_make(d, call, c.image, template);
    if (s == MANGO_OK)
        s = copy_workspace(b, call, template);
    if (s == MANGO_OK)
        s = image_commit(d, call, template, name, "snapshot", c.image);
    template_drop(d, template);
    live_leave(&b->live);
    return s == MANGO_OK ? d->host->buf_append(d->host, ret_snapshot, name, strlen(name)) : s;
}

static bool snapshot_ok(struct mango_sv name)
{
    size_t prefix = sizeof(SNAPSHOT_REPO);
    return name.len > prefix && memcmp(name.ptr, SNAPSHOT_REPO ":", prefix) == 0 &&
           sv_hex((struct mango_sv){name.ptr + prefix, name.len - prefix}, SNAPSHOT_DIGITS);
}

/* Sandboxes that began as it hold a name of their own on the image. */
mango_status docker_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot)
{
    struct docker *d = ctx;
    struct engine_res r = {0};
    char path[128];
    if (!snapshot_ok(snapshot))
        return fail(d->host, call, MANGO_EINVALID, "that is no name of a snapshot");
    snprintf(path, sizeof(path), "/images/%.*s", (int)snapshot.len, snapshot.ptr);
    const struct engine_req req = {.method = "DELETE", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status == 404)
        s = fail(d->host, call, MANGO_ENOENT, "the snapshot does not exist");
    else if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "remove the snapshot");
    engine_free(d, &r);
    return s;
}

static mango_status name_fork(struct docker *d, const struct mango_call *call, struct mango_sv snapshot,
                              struct mango_sv label)
{
    struct engine_res r = {0};
    char path[256];
    snprintf(path, sizeof(path), "/images/%.*s/tag?repo=" FORK_REPO "&tag=%.*s", (int)snapshot.len, snapshot.ptr,
             (int)label.len, label.ptr);
    const struct engine_req req = {.method = "POST", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status == 404)
        s = fail(d->host, call, MANGO_ENOENT, "the snapshot does not exist");
    else if (s == MANGO_OK && r.status != 201)
        s = engine_fail(d, call, &r, "name the image of the fork");
    engine_free(d, &r);
    return s;
}

mango_status docker_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct docker *d = ctx;
    char image[TAG_MAX];
    struct mango_sandbox_spec own = *spec;
    if (!snapshot_ok(snapshot) || spec->label.len != LABEL_LEN)
        return fail(d->host, call, MANGO_EINVALID, "that is no name of a snapshot, or no label");
    mango_status s = name_fork(d, call, snapshot, spec->label);
    if (s < 0)
        return s;
    snprintf(image, sizeof(image), FORK_REPO ":%.*s", (int)spec->label.len, spec->label.ptr);
    own.image = sv_z(image);
    return docker_create(ctx, call, &own, ret);
}
