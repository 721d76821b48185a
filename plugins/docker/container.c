#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/json.h"
#include "docker/docker.h"
#include "docker/egress.h"
#include "docker/mux.h"

/* The container and the volume of one sandbox: what they are made like, and how they are found and removed. */

enum {
    PATH_ROOM = 256,
    RUN_TMPFS_BYTES = 16 * 1024 * 1024, /* /run and /var/tmp: sockets and leftovers */
    OOM_SCORE = 300,                    /* the kernel takes a sandbox before the server; its commands take more still */
    REMOVE_TRIES = 100,
    REMOVE_PAUSE_MS = 50,
};

/* ---- looking ---- */

mango_status container_inspect(const struct docker *d, const struct mango_call *call, const char *name,
                               struct container *ret)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    *ret = (struct container){0};
    snprintf(path, sizeof(path), "/containers/%s/json", name);
    const struct engine_req req = {.method = "GET", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    struct mango_sv doc = s == MANGO_OK && r.status == 200 ? engine_body(d, &r) : no_text();
    if (s == MANGO_OK && r.status == 200) {
        ret->there = true;
        ret->running = json_true(doc, "State/Running");
        ret->paused = json_true(doc, "State/Paused");
        ret->open_network = !json_is(doc, "HostConfig/NetworkMode", "none");
        ret->door = json_is(doc, "Config/Labels/io.mango.door", "true");
        ret->plain = json_is(doc, "Config/Labels/io.mango.runner", "exec");
        (void)json_copy(doc, "Config/Labels/io.mango.arch", ret->arch, sizeof(ret->arch));
        (void)json_copy(doc, "Image", ret->image, sizeof(ret->image));
        (void)json_copy(doc, "Config/Labels/io.mango.label", ret->label, sizeof(ret->label));
        (void)json_copy(doc, "Config/Labels/io.mango.identity", ret->identity, sizeof(ret->identity));
        (void)json_copy(doc, "Config/Labels/io.mango.root", ret->root, sizeof(ret->root));
    } else if (s == MANGO_OK && r.status != 404) {
        s = engine_fail(d, call, &r, "look at the container");
    }
    engine_free(d, &r);
    return s;
}

mango_status volume_check(const struct docker *d, const struct mango_call *call, const char *name, const char *identity)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/volumes/%s", name);
    const struct engine_req req = {.method = "GET", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status == 404)
        s = fail(d->host, call, MANGO_EGONE, "the workspace is lost: its volume %s does not exist any more", name);
    else if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "look at the workspace's volume");
    else if (s == MANGO_OK && !json_is(engine_body(d, &r), "Labels/io.mango.identity", identity))
        s = fail(d->host, call, MANGO_EGONE, "the workspace is lost: the volume %s is another one than the session's",
                 name);
    engine_free(d, &r);
    return s;
}

/* ---- making ---- */

/* What a container is made of. */
struct made {
    struct image image;
    bool plain; /* without mango-box */
};

static bool is_limited(const struct mango_sandbox_spec *spec)
{
    return spec->network && spec->network->mode == MANGO_NET_LIMITED;
}

/* of: what is made of it, or NULL for the volume. */
static void put_labels(struct text *t, const struct mango_sandbox_spec *spec, const char *identity, const char *root,
                       const struct made *of)
{
    text_printf(t, "\"Labels\":{\"io.mango.door\":\"%s\",", is_limited(spec) ? "true" : "false");
    text_add(t, "\"io.mango.managed\":\"true\",\"io.mango.label\":");
    text_json(t, spec->label);
    text_add(t, ",\"io.mango.owner\":");
    text_json(t, spec->owner);
    text_add(t, ",\"io.mango.identity\":");
    text_jsonz(t, identity);
    text_add(t, ",\"io.mango.root\":");
    text_jsonz(t, root);
    if (of) {
        text_printf(t, ",\"io.mango.runner\":\"%s\",\"io.mango.arch\":", of->plain ? "exec" : "box");
        text_jsonz(t, of->image.arch);
    }
    text_add(t, "}");
}

/* What the Engine said of a volume of our name. MANGO_ENOENT: it has no labels of ours at all. The name is a hash that
 * nobody meets by accident: it is what is left when the Engine is killed between making a volume and noting its labels. */
static mango_status whose(const struct docker *d, const struct mango_call *call, struct mango_sv volume,
                          const char *name, struct mango_sv label)
{
    char found[LABEL_LEN + 1];
    if (json_get(volume, "Labels/io.mango.label").len == 0)
        return MANGO_ENOENT;
    if (!json_copy(volume, "Labels/io.mango.label", found, sizeof(found)) || !sv_is(label, found))
        return fail(d->host, call, MANGO_EDENIED, "the volume %s exists and does not belong to this session", name);
    return MANGO_OK;
}

static mango_status post_volume(const struct docker *d, const struct mango_call *call,
                                const struct mango_sandbox_spec *spec, const char *name, const char *root,
                                char identity[IDENTITY_LEN + 1], bool *ret_new)
{
    text_auto struct text body = {0};
    struct engine_res r = {0};
    char found[IDENTITY_LEN + 1] = "";
    uint64_t disk = spec->disk_bytes ? spec->disk_bytes : d->set.disk_bytes;
    random_hex(identity, IDENTITY_LEN);
    text_add(&body, "{\"Name\":");
    text_jsonz(&body, name);
    text_add(&body, ",\"Driver\":\"local\",\"DriverOpts\":{");
    if (disk)
        text_printf(&body, "\"size\":\"%llu\"", (unsigned long long)disk);
    text_add(&body, "},");
    put_labels(&body, spec, identity, root, NULL);
    text_add(&body, "}");
    const struct engine_req req = {
        .method = "POST", .path = "/volumes/create", .body = text_view(&body), .control = true};
    mango_status s = body.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 201)
        s = engine_fail(d, call, &r,
                        disk ? "make a volume with a size limit (the file system below its data folder needs project "
                               "quotas; without them set no disk limit)"
                             : "make the workspace's volume");
    else if (s == MANGO_OK)
        s = whose(d, call, engine_body(d, &r), name, spec->label);
    if (s == MANGO_OK && !json_copy(engine_body(d, &r), "Labels/io.mango.identity", found, sizeof(found)))
        s = fail(d->host, call, MANGO_EDENIED, "the volume %s has lost its identity", name);
    *ret_new = strcmp(identity, found) == 0;
    memcpy(identity, found, sizeof(found));
    engine_free(d, &r);
    return s;
}

/* Makes it or finds it; identity is the one of what is there then. */
mango_status volume_make(const struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         const char *name, const char *root, char identity[IDENTITY_LEN + 1], bool *ret_new)
{
    mango_status s = post_volume(d, call, spec, name, root, identity, ret_new);
    if (s == MANGO_ENOENT && (s = volume_drop(d, call, name)) == MANGO_OK)
        s = post_volume(d, call, spec, name, root, identity, ret_new);
    return s == MANGO_ENOENT ? fail(d->host, call, MANGO_EINTERNAL, "the volume %s does not keep its labels", name) : s;
}

static void put_bind(struct text *t, struct mango_sv source, struct mango_sv target)
{
    text_add(t, ",{\"Type\":\"bind\",\"ReadOnly\":true,\"BindOptions\":{\"Propagation\":\"rprivate\"},\"Source\":");
    text_json(t, source);
    text_add(t, ",\"Target\":");
    text_json(t, target);
    text_add(t, "}");
}

void container_put_mounts(struct text *t, const struct mango_sandbox_spec *spec, const char *name, const char *root,
                          struct mango_sv door)
{
    text_add(t, "\"Mounts\":[{\"Type\":\"volume\",\"Source\":");
    text_jsonz(t, name);
    text_add(t, ",\"Target\":");
    text_jsonz(t, root);
    text_add(t, "}");
    for (uint64_t i = 0; i < spec->n_mounts; i++)
        put_bind(t, spec->mounts[i].source, spec->mounts[i].target);
    if (door.len > 0)
        put_bind(t, door, sv_z(EGRESS_DIR));
    text_add(t, "]");
}

void container_put_limits(struct text *t, const struct docker *d, const struct mango_sandbox_spec *spec)
{
    unsigned long long memory = spec->memory_bytes ? spec->memory_bytes : d->set.memory_bytes;
    unsigned long long cpu = spec->cpu_millis ? spec->cpu_millis : d->set.cpu_millis;
    /* As much swap as memory is none on top. */
    text_printf(t, "\"Memory\":%llu,\"MemorySwap\":%llu,\"NanoCpus\":%llu,\"PidsLimit\":%u,\"OomScoreAdj\":%d,", memory,
                memory, cpu * 1000000, spec->pids ? spec->pids : d->set.pids, OOM_SCORE);
    text_add(
        t,
        "\"Ulimits\":[{\"Name\":\"core\",\"Soft\":0,\"Hard\":0}],"); /* open files: mango-box has a limit of its own */
    text_printf(
        t,
        "\"Tmpfs\":{\"/tmp\":\"rw,exec,nosuid,nodev,mode=1777,size=%llu\","
        "\"/var/tmp\":\"rw,exec,nosuid,nodev,mode=1777,size=%d\",\"/run\":\"rw,nosuid,nodev,mode=1777,size=%d\"},",
        (unsigned long long)d->set.tmp_bytes, RUN_TMPFS_BYTES, RUN_TMPFS_BYTES);
}

/* Process 1 where mango-box does not run: a shell waits for orphans too. */
static const char shell_init[] = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

static void put_container(struct text *t, const struct docker *d, const struct mango_sandbox_spec *spec,
                          const struct made *of, const char *name, const char *root, const char *identity,
                          struct mango_sv door)
{
    bool open = spec->network && spec->network->mode == MANGO_NET_OPEN;
    text_add(t, "{\"Image\":");
    text_jsonz(t, of->image.child);
    text_add(t, ",\"Hostname\":\"sandbox\",\"User\":");
    text_jsonz(t, d->set.user);
    if (of->plain) {
        text_add(t, ",\"Entrypoint\":[\"/bin/sh\",\"-c\"],\"Cmd\":[");
        text_jsonz(t, shell_init);
        text_add(t, "]");
    } else {
        text_add(t, ",\"Entrypoint\":[\"" BOX_PATH "\"],\"Cmd\":[\"init\"]");
    }
    text_add(t, ",\"StopSignal\":\"SIGTERM\",\"Healthcheck\":{\"Test\":[\"NONE\"]},\"WorkingDir\":");
    text_jsonz(t, root);
    text_add(t, ",\"Env\":[\"LANG=C.UTF-8\",\"TERM=dumb\",\"TMPDIR=/tmp\",");
    text_auto struct text home = {0};
    text_printf(&home, "HOME=%s", root);
    text_json(t, text_view(&home));
    text_add(t, "],");
    put_labels(t, spec, identity, root, of);
    text_add(t, ",\"HostConfig\":{\"NetworkMode\":");
    text_jsonz(t, open ? d->set.network : "none");
    text_add(t, ",\"ReadonlyRootfs\":true,\"CapDrop\":[\"ALL\"],\"SecurityOpt\":[\"no-new-privileges:true\"],"
                "\"Privileged\":false,\"IpcMode\":\"private\",\"LogConfig\":{\"Type\":\"none\"},"
                "\"RestartPolicy\":{\"Name\":\"no\"},\"AutoRemove\":false,");
    if (d->set.runtime) {
        text_add(t, "\"Runtime\":");
        text_jsonz(t, d->set.runtime);
        text_add(t, ",");
    }
    container_put_limits(t, d, spec);
    container_put_mounts(t, spec, name, root, door);
    text_add(t, "}}");
    t->bad |= home.bad;
}

mango_status container_post(const struct docker *d, const struct mango_call *call, struct mango_sv body,
                            const char *name, int *ret_status)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/containers/create?name=%s", name);
    const struct engine_req req = {.method = "POST", .path = path, .body = body, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 201 && r.status != 409) {
        bool no_image = r.status == 404;
        s = engine_fail(d, call, &r, "make the container (see also MANGO_DOCKER_NETWORK and MANGO_DOCKER_RUNTIME)");
        s = no_image ? MANGO_ENOENT : s;
    }
    *ret_status = r.status;
    engine_free(d, &r);
    return s;
}

static void undo_volume(const struct docker *d, const char *name)
{
    const struct mango_call own = call_of_ours(d);
    (void)volume_drop(d, &own, name);
}

/* What the Engine would say of a container that it has just made of put_container's text. */
static void describe(const struct docker *d, const struct mango_sandbox_spec *spec, const struct made *of,
                     const char *root, const char *identity, struct container *ret)
{
    bool open = spec->network && spec->network->mode == MANGO_NET_OPEN;
    *ret = (struct container){
        .there = true,
        .open_network = open && strcmp(d->set.network, "none") != 0,
        .door = is_limited(spec),
        .plain = of->plain,
    };
    memcpy(ret->arch, of->image.arch, sizeof(ret->arch));
    snprintf(ret->label, sizeof(ret->label), "%.*s", (int)spec->label.len, spec->label.ptr);
    snprintf(ret->identity, sizeof(ret->identity), "%s", identity);
    snprintf(ret->root, sizeof(ret->root), "%s", root);
}

mango_status container_make(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            const char *name, const char *root, bool plain, struct container *ret, bool *ret_lost)
{
    text_auto struct text body = {0};
    char image[IMAGE_MAX], identity[IDENTITY_LEN + 1];
    struct made of = {.plain = plain};
    bool new_volume = false;
    int status = 0;
    *ret_lost = false;
    if (spec->image.len >= sizeof(image))
        return fail(d->host, call, MANGO_EINVALID, "the image's name is longer than %d bytes", IMAGE_MAX - 1);
    snprintf(image, sizeof(image), "%.*s", (int)spec->image.len, spec->image.len ? spec->image.ptr : "");
    if (!image[0])
        snprintf(image, sizeof(image), "%s", d->set.image);
    mango_status s = image_child(d, call, image, root, &of.image);
    if (s == MANGO_OK)
        s = volume_make(d, call, spec, name, root, identity, &new_volume);
    if (s < 0)
        return s;
    text_auto struct text door = {0};
    if (is_limited(spec) && (s = egress_open(d, call, spec->label, spec->network, &door)) < 0) {
        if (new_volume)
            undo_volume(d, name);
        return s;
    }
    put_container(&body, d, spec, &of, name, root, identity, text_view(&door));
    if (body.bad)
        return fail(d->host, call, MANGO_ERETRY, "out of memory");
    s = container_post(d, call, text_view(&body), name, &status);
    if (s == MANGO_ENOENT) { /* the first container of this image: cheaper than to ask each time whether it is not */
        s = image_make(d, call, image, root, of.image.child);
        if (s == MANGO_OK)
            s = container_post(d, call, text_view(&body), name, &status);
    }
    *ret_lost = s == MANGO_OK && status == 409;
    if (s == MANGO_OK && !*ret_lost)
        describe(d, spec, &of, root, identity, ret);
    /* A definite refusal leaves nothing behind. */
    if (s < 0 && status >= 400 && new_volume)
        undo_volume(d, name);
    return s == MANGO_ENOENT ? MANGO_ERETRY : s;
}

/* ---- states ---- */

static mango_status post(const struct docker *d, const struct mango_call *call, const char *name, const char *verb,
                         const char *what)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/containers/%s/%s", name, verb);
    const struct engine_req req = {.method = "POST", .path = path};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 204 && r.status != 304)
        s = engine_fail(d, call, &r, what);
    engine_free(d, &r);
    return s;
}

mango_status container_start(const struct docker *d, const struct mango_call *call, const char *name, bool *ret_refused)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/containers/%s/start", name);
    const struct engine_req req = {.method = "POST", .path = path};
    mango_status s = engine_call(d, call, &req, &r);
    *ret_refused = s == MANGO_OK && r.status != 204 && r.status != 304;
    if (*ret_refused)
        s = engine_fail(d, call, &r, "start the container");
    engine_free(d, &r);
    return s;
}

mango_status container_restart(const struct docker *d, const struct mango_call *call, const char *name)
{
    return post(d, call, name, "restart?t=0", "restart the container");
}

mango_status container_pause(const struct docker *d, const struct mango_call *call, const char *name)
{
    return post(d, call, name, "pause", "pause the container");
}

mango_status container_unpause(const struct docker *d, const struct mango_call *call, const char *name)
{
    return post(d, call, name, "unpause", "resume the container");
}

/* ---- removing ---- */

static void rest(void)
{
    struct timespec ts = {.tv_nsec = REMOVE_PAUSE_MS * 1000000L};
    nanosleep(&ts, NULL);
}

/* Until the Engine says that it is gone: a removal that is under way already answers 409. */
static mango_status delete_until_gone(const struct docker *d, const struct mango_call *call, const char *path,
                                      const char *what)
{
    mango_status s = MANGO_OK;
    for (int i = 0; i < REMOVE_TRIES; i++) {
        struct engine_res r = {0};
        const struct engine_req req = {.method = "DELETE", .path = path, .control = true};
        s = engine_call(d, call, &req, &r);
        int status = r.status;
        if (s == MANGO_OK && status != 204 && status != 404)
            s = engine_fail(d, call, &r, what);
        engine_free(d, &r);
        if (s == MANGO_OK || status != 409 || (call->deadline_ns && now_ns(d->host) >= call->deadline_ns))
            return s;
        rest();
    }
    return s;
}

mango_status container_drop(const struct docker *d, const struct mango_call *call, const char *name)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof(path), "/containers/%s?force=1&v=1", name);
    return delete_until_gone(d, call, path, "remove the container");
}

mango_status volume_drop(const struct docker *d, const struct mango_call *call, const char *name)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof(path), "/volumes/%s", name);
    return delete_until_gone(d, call, path, "remove the workspace's volume");
}

mango_status volume_look(const struct docker *d, const struct mango_call *call, const char *name, struct mango_sv label,
                         bool *ret_there)
{
    char path[PATH_ROOM];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/volumes/%s", name);
    const struct engine_req req = {.method = "GET", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    *ret_there = s == MANGO_OK && r.status == 200;
    if (s == MANGO_OK && r.status != 200 && r.status != 404)
        s = engine_fail(d, call, &r, "look at the workspace's volume");
    else if (*ret_there)
        s = whose(d, call, engine_body(d, &r), name, label);
    engine_free(d, &r);
    return s == MANGO_ENOENT ? MANGO_OK : s;
}

/* The name that a forked sandbox holds on its image. */
static mango_status drop_fork(const struct docker *d, const struct mango_call *call, struct mango_sv label)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof(path), "/images/" FORK_REPO ":%.*s?force=1", (int)label.len, label.ptr);
    struct engine_res r = {0};
    const struct engine_req req = {.method = "DELETE", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200 && r.status != 404)
        s = engine_fail(d, call, &r, "remove the image of the fork");
    engine_free(d, &r);
    return s;
}

mango_status container_remove(const struct docker *d, const struct mango_call *call, const char *name,
                              struct mango_sv label)
{
    struct container c;
    bool volume = false;
    mango_status s = container_inspect(d, call, name, &c);
    if (s == MANGO_OK && c.there && !sv_is(label, c.label))
        return fail(d->host, call, MANGO_EDENIED, "the container %s does not belong to this session", name);
    if (s == MANGO_OK && c.there)
        s = container_drop(d, call, name);
    if (s == MANGO_OK)
        s = volume_look(d, call, name, label, &volume);
    if (s == MANGO_OK && volume)
        s = volume_drop(d, call, name);
    return s == MANGO_OK ? drop_fork(d, call, label) : s;
}
