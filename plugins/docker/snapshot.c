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

static bool snapshot_ok(struct mango_sv name)
{
    size_t prefix = sizeof(SNAPSHOT_REPO);
    return name.len > prefix && memcmp(name.ptr, SNAPSHOT_REPO ":", prefix) == 0 &&
           sv_hex((struct mango_sv){name.ptr + prefix, name.len - prefix}, SNAPSHOT_DIGITS);
}

/* The Engine goes on with an image when nobody listens any more: until it has been told to us it has a name that a
 * later start sweeps. */
static mango_status save(struct docker *d, const struct mango_call *call, const char *template, const char *base,
                         struct mango_buf *ret_snapshot)
{
    const struct mango_call own = call_of_ours(d);
    char digits[SNAPSHOT_DIGITS + 1], unfinished[TAG_MAX], name[TAG_MAX];
    random_hex(digits, SNAPSHOT_DIGITS);
    snprintf(unfinished, sizeof(unfinished), UNFINISHED_REPO ":%s", digits);
    snprintf(name, sizeof(name), SNAPSHOT_REPO ":%s", digits);
    mango_status s = image_commit(d, call, template, unfinished, "snapshot", base);
    if (s == MANGO_OK && (s = image_tag(d, call, sv_z(unfinished), SNAPSHOT_REPO, sv_z(digits))) < 0)
        (void)image_drop(d, &own, sv_z(name));
    (void)image_drop(d, &own, sv_z(unfinished));
    return s == MANGO_OK ? d->host->buf_append(d->host, ret_snapshot, name, strlen(name)) : s;
}

mango_status docker_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id,
                             struct mango_buf *ret_snapshot)
{
    struct docker *d = ctx;
    struct box *b;
    struct container c;
    char template[TEMPLATE_MAX] = "";
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    s = container_inspect(d, call, b->live.id, &c);
    if (s == MANGO_OK && !c.there)
        s = fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                 b->live.id);
    if (s == MANGO_OK)
        s = template_make(d, call, c.image, template);
    if (s == MANGO_OK)
        s = copy_workspace(b, call, template);
    if (s == MANGO_OK)
        s = save(d, call, template, c.image, ret_snapshot);
    template_drop(d, template);
    live_leave(&b->live);
    return s;
}

/* Sandboxes that began as it hold a name of their own on the image. */
mango_status docker_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot)
{
    if (!snapshot_ok(snapshot))
        return fail(((struct docker *)ctx)->host, call, MANGO_EINVALID, "that is no name of a snapshot");
    return image_drop(ctx, call, snapshot);
}

mango_status docker_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct docker *d = ctx;
    char image[TAG_MAX];
    struct mango_sandbox_spec own = *spec;
    if (!snapshot_ok(snapshot) || spec->label.len != LABEL_LEN)
        return fail(d->host, call, MANGO_EINVALID, "that is no name of a snapshot, or no label");
    mango_status s = image_tag(d, call, snapshot, FORK_REPO, spec->label);
    if (s < 0)
        return s;
    snprintf(image, sizeof(image), FORK_REPO ":%.*s", (int)spec->label.len, spec->label.ptr);
    own.image = sv_z(image);
    return docker_create(ctx, call, &own, ret);
}
