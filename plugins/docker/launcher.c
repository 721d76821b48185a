#include "docker/launcher.h"

#include <stdio.h>
#include <string.h>

#include "common/json.h"

#define BOX_WORKER "/.mango/mango-worker/mango-worker"

enum {
    BOX_NAME_MAX = 64,
    PATH_ROOM = 256,
    WORK_ID_MAX = 128,       /* bytes */
    NAME_TRIES = 5,          /* of a launch that meets another one */
    LOG_TAIL = 200,          /* lines */
    REPLACE_GRACE_MS = 5000, /* for the box of the session's last item, which may be about to leave by itself */
    FRAME_HEAD = 8,          /* bytes in front of each piece of the Engine's log */
};

static void box_name(struct mango_sv label, char out[BOX_NAME_MAX])
{
    snprintf(out, BOX_NAME_MAX, "mango-work-%.*s", LABEL_LEN, label.ptr);
}

/* ---- looking ---- */

struct look {
    bool there, created, running, oom; /* created: and never started */
    int64_t exit_code;
    char id[TAG_MAX], work[WORK_ID_MAX + 1], label[LABEL_LEN + 1];
};

static mango_status look_at(const struct docker *d, const struct mango_call *call, const char *name, struct look *ret)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    *ret = (struct look){.exit_code = -1};
    snprintf(path, sizeof(path), "/containers/%.128s/json", name);
    const struct engine_req req = {.method = "GET", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    struct mango_sv doc = s == MANGO_OK && r.status == 200 ? engine_body(d, &r) : no_text();
    if (s == MANGO_OK && r.status == 200) {
        ret->there = true;
        ret->created = json_is(doc, "State/Status", "created");
        ret->running = json_true(doc, "State/Running");
        ret->oom = json_true(doc, "State/OOMKilled");
        (void)json_int(doc, "State/ExitCode", &ret->exit_code);
        (void)json_copy(doc, "Id", ret->id, sizeof(ret->id));
        (void)json_copy(doc, "Config/Labels/io.mango.work", ret->work, sizeof(ret->work));
        (void)json_copy(doc, "Config/Labels/io.mango.label", ret->label, sizeof(ret->label));
    } else if (s == MANGO_OK && r.status != 404) {
        s = engine_fail(d, call, &r, "look at the box");
    }
    engine_free(d, &r);
    return s;
}

/* ---- making ---- */

static void put_strings(struct text *t, const char *name, const struct mango_sv *v, uint64_t n)
{
    text_printf(t, "\"%s\":[", name);
    for (uint64_t i = 0; i < n; i++) {
        if (i > 0)
            text_add(t, ",");
        text_json(t, v[i]);
    }
    text_add(t, "]");
}

static void put_env(struct text *t, const struct mango_launch_spec *spec)
{
    text_add(t, "\"Env\":[\"LANG=C.UTF-8\",\"TERM=dumb\",\"TMPDIR=/tmp\",\"HOME=" WORKSPACE "\"");
    for (uint64_t i = 0; i < spec->n_env; i++) {
        text_add(t, ",");
        text_json(t, spec->env[i]);
    }
    text_add(t, "],");
}

static void put_box_labels(struct text *t, const struct mango_launch_spec *spec)
{
    text_add(t, "\"Labels\":{\"io.mango.managed\":\"true\",\"io.mango.kind\":\"work\",\"io.mango.label\":");
    text_json(t, spec->label);
    text_add(t, ",\"io.mango.owner\":");
    text_json(t, spec->owner);
    text_add(t, ",\"io.mango.work\":");
    text_json(t, spec->work_id);
    text_add(t, "},");
}

static void put_box(struct text *t, const struct docker *d, const struct mango_launch_spec *spec, const char *image,
                    const char *volume)
{
    bool none = spec->box->network && spec->box->network->mode == MANGO_NET_NONE;
    const struct mango_sv program = bundle_in_image(d) ? spec->argv[0] : sv_z(BOX_WORKER);
    text_add(t, "{\"Image\":");
    text_jsonz(t, image);
    text_add(t, ",\"Hostname\":\"worker\",\"User\":");
    text_jsonz(t, d->set.user);
    text_add(t, ",");
    put_strings(t, "Entrypoint", &program, 1);
    text_add(t, ",");
    put_strings(t, "Cmd", spec->argv + 1, spec->n_argv - 1);
    text_add(t, ",\"StopSignal\":\"SIGTERM\",\"Healthcheck\":{\"Test\":[\"NONE\"]},\"WorkingDir\":\"" WORKSPACE "\",");
    put_env(t, spec);
    put_box_labels(t, spec);
    text_add(t, "\"HostConfig\":{\"NetworkMode\":");
    text_jsonz(t, none ? "none" : d->set.network);
    text_add(t, ",\"ReadonlyRootfs\":true,\"CapDrop\":[\"ALL\"],\"SecurityOpt\":[\"no-new-privileges:true\"],"
                "\"Privileged\":false,\"IpcMode\":\"private\",\"RestartPolicy\":{\"Name\":\"no\"},\"AutoRemove\":false,"
                "\"LogConfig\":{\"Type\":\"json-file\",\"Config\":{\"max-size\":\"1m\",\"max-file\":\"1\"}},");
    if (d->set.runtime) {
        text_add(t, "\"Runtime\":");
        text_jsonz(t, d->set.runtime);
        text_add(t, ",");
    }
    container_put_limits(t, d, spec->box);
    container_put_mounts(t, spec->box, volume, WORKSPACE, no_text());
    text_add(t, "}}");
}

static mango_status check(const struct docker *d, const struct mango_call *call, const struct mango_launch_spec *spec)
{
    if (!sv_hex(spec->label, LABEL_LEN) || !sv_hex(spec->owner, LABEL_LEN) || spec->work_id.len == 0 ||
        spec->work_id.len > WORK_ID_MAX)
        return fail(d->host, call, MANGO_EINVALID,
                    "label and owner must be %d lowercase hex digits, a work id 1 to %d bytes", LABEL_LEN, WORK_ID_MAX);
    if (!spec->box || spec->n_argv == 0)
        return fail(d->host, call, MANGO_EINVALID, "a launch needs a command line and a description of the box");
    if (spec->box->network && spec->box->network->mode == MANGO_NET_LIMITED)
        return fail(d->host, call, MANGO_EUNSUPPORTED,
                    "boxes of workers have the network MANGO_DOCKER_NETWORK or none, no list of hosts");
    return MANGO_OK;
}

static mango_status make(struct docker *d, const struct mango_call *call, const struct mango_launch_spec *spec,
                         const char *name, bool *ret_taken)
{
    text_auto struct text body = {0};
    char image[IMAGE_MAX], child[TAG_MAX], identity[IDENTITY_LEN + 1];
    struct mango_sandbox_spec disk = *spec->box;
    bool new_volume, refused;
    int status = 0;
    *ret_taken = false;
    if (spec->box->image.len >= sizeof(image))
        return fail(d->host, call, MANGO_EINVALID, "the image's name is longer than %d bytes", IMAGE_MAX - 1);
    snprintf(image, sizeof(image), "%.*s", (int)spec->box->image.len, spec->box->image.len ? spec->box->image.ptr : "");
    if (!image[0])
        snprintf(image, sizeof(image), "%s", d->set.image);
    disk.label = spec->label;
    disk.owner = spec->owner;
    mango_status s = bundle_image(d, call, image, child);
    if (s == MANGO_OK)
        s = volume_make(d, call, &disk, name, WORKSPACE, identity, &new_volume);
    if (s < 0)
        return s;
    put_box(&body, d, spec, child, name);
    s = body.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory")
                 : container_post(d, call, text_view(&body), name, &status);
    *ret_taken = s == MANGO_OK && status == 409;
    if (s == MANGO_OK && !*ret_taken && (s = container_start(d, call, name, &refused)) < 0 && refused)
        (void)container_drop(d, call, name);
    return s == MANGO_ENOENT ? fail(d->host, call, MANGO_ERETRY, "image '%.200s' is gone again", child) : s;
}

static mango_status give(const struct docker *d, const struct look *l, struct mango_buf *ret_id)
{
    return d->host->buf_append(d->host, ret_id, l->id, strlen(l->id));
}

static mango_status ask_to_stop(const struct docker *d, const struct mango_call *call, const char *id,
                                uint64_t grace_ms);

static mango_status replace(const struct docker *d, const struct mango_call *call, const struct look *l)
{
    mango_status s = l->running ? ask_to_stop(d, call, l->id, REPLACE_GRACE_MS) : MANGO_OK;
    return s == MANGO_OK ? container_drop(d, call, l->id) : s;
}

static mango_status launch(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                           struct mango_buf *ret_id)
{
    struct docker *d = ctx;
    char name[BOX_NAME_MAX];
    struct look l, ended = {0};
    bool taken;
    mango_status s = check(d, call, spec);
    if (s == MANGO_OK)
        box_name(spec->label, name);
    for (int i = 0; s == MANGO_OK && i < NAME_TRIES; i++) {
        if ((s = look_at(d, call, name, &l)) < 0)
            break;
        if (l.there && !sv_is(spec->label, l.label))
            return fail(d->host, call, MANGO_EDENIED, "the container %s exists and does not belong to this session",
                        name);
        if (l.there && !l.created && sv_is(spec->work_id, l.work)) /* runs, or has ended: an item is launched once */
            return give(d, &l, ret_id);
        if (l.there && ended.there && strcmp(ended.id, l.id) != 0) /* while the last one left, an item overtook this */
            return fail(d->host, call, MANGO_ERETRY, "another item of the session has been given a box meanwhile");
        if (l.there) { /* of a claim that is over, since two may not write to one workspace; or cut off before its start */
            ended = l;
            s = replace(d, call, &l);
        } else {
            s = make(d, call, spec, name, &taken);
        }
    }
    return s == MANGO_OK ? fail(d->host, call, MANGO_ERETRY, "the container %s comes and goes", name) : s;
}

static mango_status persists(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                             struct mango_persists *ret)
{
    const struct docker *d = ctx;
    char name[BOX_NAME_MAX];
    text_auto struct text t = {0};
    (void)call;
    ret->what = MANGO_PERSIST_WORKSPACE;
    if (!ret->names)
        return MANGO_OK;
    box_name(spec->label, name);
    text_printf(&t, "volume %s\n", name);
    return t.bad ? MANGO_ERETRY : d->host->buf_append(d->host, ret->names, t.ptr, t.len);
}

/* ---- watching ---- */

static bool id_ok(struct mango_sv id)
{
    return sv_hex(id, 64);
}

static mango_status no_box(const struct docker *d, const struct mango_call *call, struct mango_sv id)
{
    return fail(d->host, call, MANGO_EINVALID, "'%.*s' is no box of this launcher", (int)(id.len < 80 ? id.len : 80),
                id.len ? id.ptr : "");
}

static void tell(const struct docker *d, const struct look *l, struct mango_launch_state *state)
{
    state->state = !l->there    ? MANGO_LAUNCH_GONE
                   : l->created ? MANGO_LAUNCH_PENDING
                   : l->running ? MANGO_LAUNCH_RUNNING
                                : MANGO_LAUNCH_ENDED;
    if (state->state != MANGO_LAUNCH_ENDED)
        return;
    state->result.exited = l->exit_code >= 0 && l->exit_code <= 255;
    state->result.unknown = !state->result.exited;
    state->result.exit_code = state->result.exited ? (int32_t)l->exit_code : 0;
    state->result.oom = l->oom;
    if (l->oom && state->reason)
        (void)d->host->buf_append(d->host, state->reason, "killed for want of memory", 25);
}

/* The Engine answers when the container has stopped; the call's deadline ends it before. */
static mango_status await_end(const struct docker *d, const struct mango_call *call, const char *id)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/containers/%.64s/wait?condition=not-running", id);
    const struct engine_req req = {.method = "POST", .path = path};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200 && r.status != 404)
        s = engine_fail(d, call, &r, "wait for the box");
    engine_free(d, &r);
    return s;
}

static mango_status watch(void *ctx, const struct mango_call *call, struct mango_sv id,
                          struct mango_launch_state *state)
{
    const struct docker *d = ctx;
    char name[TAG_MAX];
    struct look l;
    uint32_t was = state->state;
    if (!id_ok(id))
        return no_box(d, call, id);
    snprintf(name, sizeof(name), "%.*s", (int)id.len, id.ptr);
    mango_status s = look_at(d, call, name, &l);
    if (s == MANGO_OK)
        tell(d, &l, state);
    if (s < 0 || state->state != was || state->state == MANGO_LAUNCH_GONE || state->state == MANGO_LAUNCH_ENDED)
        return s;
    s = await_end(d, call, name);
    if (s == MANGO_ETIMEOUT)
        return MANGO_OK;
    struct mango_call own = call_within(d, call, CONTROL_MS);
    own.deadline_ns = now_ns(d->host) + CONTROL_MS * UINT64_C(1000000);
    if (s == MANGO_OK && (s = look_at(d, &own, name, &l)) == MANGO_OK)
        tell(d, &l, state);
    return s;
}

/* ---- the end ---- */

static mango_status ask_to_stop(const struct docker *d, const struct mango_call *call, const char *id,
                                uint64_t grace_ms)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/containers/%.64s/stop?t=%llu", id, (unsigned long long)((grace_ms + 999) / 1000));
    const struct engine_req req = {.method = "POST", .path = path};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 204 && r.status != 304 && r.status != 404)
        s = engine_fail(d, call, &r, "stop the box");
    engine_free(d, &r);
    return s;
}

/* The removal ends by force what has not ended; it works for stopped and paused processes too. */
static mango_status stop(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t grace_ms)
{
    const struct docker *d = ctx;
    char name[TAG_MAX];
    struct look l;
    struct mango_call own = *call;
    own.token = NULL;
    if (!id_ok(id))
        return no_box(d, call, id);
    snprintf(name, sizeof(name), "%.*s", (int)id.len, id.ptr);
    mango_status s = look_at(d, &own, name, &l);
    if (s == MANGO_OK && l.there && !l.work[0])
        return fail(d->host, call, MANGO_EDENIED, "the container %.12s is no box of a work item", name);
    if (s == MANGO_OK && l.there && l.running && grace_ms > 0)
        s = ask_to_stop(d, &own, name, grace_ms);
    return s == MANGO_OK && l.there ? container_drop(d, &own, name) : s;
}

static mango_status forget(void *ctx, const struct mango_call *call, struct mango_sv label)
{
    const struct docker *d = ctx;
    char name[BOX_NAME_MAX];
    struct look l;
    bool there = false;
    if (!sv_hex(label, LABEL_LEN))
        return fail(d->host, call, MANGO_EINVALID, "label must be %d lowercase hex digits", LABEL_LEN);
    box_name(label, name);
    mango_status s = look_at(d, call, name, &l);
    if (s == MANGO_OK && l.there && !sv_is(label, l.label))
        return fail(d->host, call, MANGO_EDENIED, "the container %s does not belong to this session", name);
    if (s == MANGO_OK && l.there && l.running)
        return fail(d->host, call, MANGO_EDENIED, "a box of this session runs; stop it first");
    if (s == MANGO_OK && l.there)
        s = container_drop(d, call, l.id);
    if (s == MANGO_OK)
        s = volume_look(d, call, name, label, &there);
    return s == MANGO_OK && there ? volume_drop(d, call, name) : s;
}

/* ---- what is there ---- */

static mango_status list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                               void *fn_ctx)
{
    const struct docker *d = ctx;
    text_auto struct text path = {0};
    text_auto struct text filter = {0};
    struct engine_res r = {0};
    struct mango_sv item;
    if (!sv_hex(owner, LABEL_LEN))
        return fail(d->host, call, MANGO_EINVALID, "owner must be %d lowercase hex digits", LABEL_LEN);
    text_printf(&filter, "{\"label\":[\"io.mango.kind=work\",\"io.mango.owner=%.*s\"]}", LABEL_LEN, owner.ptr);
    text_add(&path, "/containers/json?all=1&filters=");
    text_url(&path, text_view(&filter));
    const struct engine_req req = {.method = "GET", .path = path.ptr, .control = true};
    mango_status s =
        path.bad || filter.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "list the boxes");
    bool more = s == MANGO_OK;
    for (uint64_t pos = 0; more && json_next(engine_body(d, &r), &pos, NULL, &item);) {
        char id[TAG_MAX], label[LABEL_LEN + 1];
        int64_t created_s = 0;
        if (!json_copy(item, "Id", id, sizeof(id)) || !json_copy(item, "Labels/io.mango.label", label, sizeof(label)))
            continue;
        (void)json_int(item, "Created", &created_s);
        const struct mango_owned o = {
            .struct_size = sizeof(o), .id = sv_z(id), .label = sv_z(label), .created_us = created_s * 1000000};
        more = fn(fn_ctx, &o) == 0;
    }
    engine_free(d, &r);
    return s;
}

/* ---- logs ---- */

struct log {
    mango_sink_fn *sink;
    void *ctx;
    unsigned char head[FRAME_HEAD];
    uint32_t n_head, left;
    bool stop;
};

/* Each piece has a head: the stream, three zeros, four bytes of length. */
static int32_t on_log(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct log *l = ctx;
    (void)stream;
    while (n > 0 && !l->stop) {
        if (l->left == 0) {
            l->head[l->n_head++] = (unsigned char)*p++;
            n--;
            if (l->n_head < FRAME_HEAD)
                continue;
            l->n_head = 0;
            l->left = (uint32_t)l->head[4] << 24 | (uint32_t)l->head[5] << 16 | (uint32_t)l->head[6] << 8 | l->head[7];
            continue;
        }
        uint64_t take = n < l->left ? n : l->left;
        l->stop = l->sink(l->ctx, l->head[0] == 2 ? 2 : 1, p, take) != 0;
        l->left -= (uint32_t)take;
        p += take;
        n -= take;
    }
    return l->stop;
}

static mango_status logs(void *ctx, const struct mango_call *call, struct mango_sv id, mango_sink_fn *sink,
                         void *sink_ctx)
{
    const struct docker *d = ctx;
    char path[PATH_ROOM];
    struct engine_res r = {0};
    struct log l = {.sink = sink, .ctx = sink_ctx};
    if (!id_ok(id))
        return no_box(d, call, id);
    snprintf(path, sizeof(path), "/containers/%.64s/logs?stdout=1&stderr=1&tail=%d", id.ptr, LOG_TAIL);
    const struct engine_req req = {.method = "GET", .path = path, .sink = on_log, .sink_ctx = &l};
    mango_status s = engine_call(d, call, &req, &r);
    engine_free(d, &r);
    return s;
}

static mango_status health(void *ctx, const struct mango_call *call)
{
    const struct docker *d = ctx;
    struct engine_res r = {0};
    const struct engine_req req = {.method = "GET", .path = "/_ping", .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "answer");
    engine_free(d, &r);
    return s;
}

const struct mango_launcher_ops docker_launcher_ops = {
    .struct_size = sizeof(docker_launcher_ops),
    .launch = launch,
    .watch = watch,
    .stop = stop,
    .persists = persists,
    .health = health,
    .list_owned = list_owned,
    .logs = logs,
    .forget = forget,
};
