#include <stdio.h>
#include <string.h>
#include <time.h>

#include "docker/egress.h"
#include "docker/plain.h"

/* Making and finding sandboxes. */

enum {
    SHARED_TRIES = 3,    /* of a create that meets another one */
    AWAIT_TRIES = 200,   /* looks at what that one makes */
    AWAIT_NS = 25000000, /* between two of them */
};

static mango_status check_mount(const struct docker *d, const struct mango_call *call, const struct mango_mount *m)
{
    if (!d->at.socket)
        return fail(d->host, call, MANGO_EUNSUPPORTED,
                    "folders of this host cannot be mounted by a Docker Engine on another one");
    if (m->source.len == 0 || m->source.ptr[0] != '/' || m->target.len == 0 || m->target.ptr[0] != '/' || m->flags)
        return fail(d->host, call, MANGO_EINVALID, "a mount has two absolute paths and is read-only");
    return MANGO_OK;
}

static mango_status check_spec(const struct docker *d, const struct mango_call *call,
                               const struct mango_sandbox_spec *spec)
{
    if (!sv_hex(spec->label, LABEL_LEN) || (spec->owner.len != 0 && !sv_hex(spec->owner, LABEL_LEN)))
        return fail(d->host, call, MANGO_EINVALID, "label and owner must be %d lowercase hex digits", LABEL_LEN);
    if (spec->workdir.len >= ROOT_MAX ||
        (spec->workdir.len > 0 && (spec->workdir.len < 2 || spec->workdir.ptr[0] != '/')))
        return fail(d->host, call, MANGO_EINVALID,
                    "the workspace must be an absolute path of at most %d bytes, and not /", ROOT_MAX - 1);
    for (uint64_t i = 0; i < spec->n_mounts; i++) {
        mango_status s = check_mount(d, call, &spec->mounts[i]);
        if (s < 0)
            return s;
    }
    return MANGO_OK;
}

/* found: it was there before this call; the volume of a new one was looked at when it was made. */
static mango_status verify(const struct docker *d, const struct mango_call *call, const char *name,
                           const struct mango_sandbox_spec *spec, const struct container *c, bool found)
{
    if (!sv_is(spec->label, c->label) || !c->root[0])
        return fail(d->host, call, MANGO_EDENIED, "the container %s exists and does not belong to this session", name);
    if (c->open_network && spec->network && spec->network->mode != MANGO_NET_OPEN)
        return fail(d->host, call, MANGO_EDENIED,
                    "the container %s has an open network, and the environment allows none", name);
    mango_status s = found ? volume_check(d, call, name, c->identity) : MANGO_OK;
    return s == MANGO_OK && c->door && spec->network && spec->network->mode == MANGO_NET_LIMITED
               ? egress_open(d, call, spec->label, spec->network, NULL)
               : s;
}

/* A container that the Engine cannot start any more is made anew around the same volume, which volume_check has seen:
 * nothing else of it is worth keeping, since all other places are read-only or in memory. */
static mango_status rebuild(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            const char *name, bool plain, struct container *c)
{
    bool lost = false, refused;
    struct container now = {0};
    mango_status s = container_drop(d, call, name);
    if (s == MANGO_OK)
        s = container_make(d, call, spec, name, c->root, plain, &now, &lost);
    if (s == MANGO_OK && lost)
        s = container_inspect(d, call, name, &now);
    if (s == MANGO_OK && (!now.there || strcmp(now.identity, c->identity) != 0))
        s = fail(d->host, call, MANGO_ERETRY, "the container %s comes and goes: something else removes it", name);
    if (s == MANGO_OK)
        s = container_start(d, call, name, &refused);
    *c = s == MANGO_OK ? now : *c;
    return s;
}

/* With the words of what went wrong where the image is a foreign one. */
static mango_status foreign_image(const struct docker *d, const struct mango_call *call,
                                  const struct mango_sandbox_spec *spec, const char *arch)
{
    struct mango_sv image = spec->image.len ? spec->image : sv_z(d->set.image);
    return fail(
        d->host, call, MANGO_EUNSUPPORTED,
        "image '%.*s' is for linux/%s, and the host of the Docker Engine is linux/%s and cannot run its programs: "
        "use an image for linux/%s, or install an emulator there (Debian: apt-get install qemu-user-static)",
        (int)(image.len < 200 ? image.len : 200), image.ptr, arch, d->arch, d->arch);
}

/* An image for another kind of processor runs where the Engine's host has an emulator for it; a command tells. */
static mango_status check_foreign(struct docker *d, const struct mango_call *call,
                                  const struct mango_sandbox_spec *spec, const char *name, const struct container *c)
{
    struct mango_sv argv[] = {sv_z("/bin/sh"), sv_z("-c"), sv_z(":")};
    const struct mango_exec_req req = {.struct_size = sizeof(req), .argv = argv, .n_argv = 3};
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    mango_status s = docker_exec(d, call, sv_z(name), &req, &r);
    if (s == MANGO_OK && r.exited && r.exit_code == 0)
        return MANGO_OK;
    return s == MANGO_ECANCELED ? s : foreign_image(d, call, spec, c->arch);
}

/* The connection of the first command, made now: whether mango-box runs at all is known after it. *ret_stopped: the
 * container has ended again, so that its process 1 cannot run. */
static mango_status try_box(struct docker *d, const struct mango_call *call, const char *name, bool *ret_stopped)
{
    struct box *b;
    struct mux *m = NULL;
    struct container c;
    mango_status s = box_enter(d, call, sv_z(name), &b);
    if (s < 0)
        return s;
    s = box_mux(b, call, &m);
    if (m)
        mux_unref(m);
    live_leave(&b->live);
    *ret_stopped = s == MANGO_ERETRY && container_inspect(d, call, name, &c) == MANGO_OK && c.there && !c.running;
    return s;
}

/* What was just made works, with mango-box or without. */
static mango_status prove(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                          const char *name, struct container *c)
{
    bool stopped = false;
    mango_status s = c->plain ? MANGO_OK : try_box(d, call, name, &stopped);
    if (stopped && d->set.runner != RUNNER_AUTO)
        s = fail(d->host, call, MANGO_EUNSUPPORTED,
                 "mango-box, a program for linux/%s, does not run in the container %s; see MANGO_DOCKER_RUNNER",
                 d->box_arch[0] ? d->box_arch : "nothing that is known", name);
    else if (stopped) {
        (void)docker_detach(d, call, sv_z(name));
        s = rebuild(d, call, spec, name, true, c);
        if (s == MANGO_OK)
            s = box_enlist(d, call, spec, name, c, false, NULL);
    }
    if (s == MANGO_OK && c->arch[0])
        s = check_foreign(d, call, spec, name, c);
    if (s < 0)
        (void)docker_detach(d, call, sv_z(name));
    return s;
}

/* The container must be there. */
static mango_status bind(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         const char *name, struct container *c, bool found, struct mango_sandbox_ref *ret)
{
    bool refused = false;
    mango_status s = verify(d, call, name, spec, c, found);
    if (s == MANGO_OK)
        s = box_wake(d, call, name, c, &refused);
    if (refused && found)
        s = rebuild(d, call, spec, name, c->plain, c);
    else if (refused && d->set.runner == RUNNER_AUTO && !c->plain) /* it may be mango-box that does not run there */
        s = rebuild(d, call, spec, name, true, c);
    else if (refused && c->arch[0] && c->plain) /* process 1 is a program of the image */
        s = foreign_image(d, call, spec, c->arch);
    if (s == MANGO_OK)
        s = box_enlist(d, call, spec, name, c, found, ret);
    return s == MANGO_OK && !found ? prove(d, call, spec, name, c) : s;
}

/* A start that was refused leaves no container; the volume is new and goes with it. */
static void undo(const struct docker *d, const char *name, struct mango_sv label)
{
    const struct mango_call own = call_of_ours(d);
    (void)container_remove(d, &own, name, label);
}

/* Another create was faster. The Engine gives the name away before the container can be seen. */
static mango_status await(const struct docker *d, const struct mango_call *call, const char *name, struct container *c)
{
    mango_status s = MANGO_OK;
    for (int i = 0; i < AWAIT_TRIES && s == MANGO_OK && !c->there; i++) {
        if (d->host->cancelled(d->host, call))
            return MANGO_ECANCELED;
        nanosleep(&(struct timespec){.tv_nsec = AWAIT_NS}, NULL);
        s = container_inspect(d, call, name, c);
    }
    return s;
}

static bool is_plain(const struct docker *d)
{
    return d->set.runner == RUNNER_EXEC || (d->set.runner == RUNNER_AUTO && strcmp(d->box_arch, d->arch) != 0);
}

mango_status docker_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           struct mango_sandbox_ref *ret)
{
    struct docker *d = ctx;
    char name[NAME_LEN + 1], root[ROOT_MAX];
    struct container c;
    mango_status s = check_spec(d, call, spec);
    if (s < 0)
        return s;
    sandbox_name(spec->label, name);
    snprintf(root, sizeof(root), "%.*s", spec->workdir.len ? (int)spec->workdir.len : (int)strlen(WORKSPACE),
             spec->workdir.len ? spec->workdir.ptr : WORKSPACE);
    for (int i = 0; i < SHARED_TRIES; i++) {
        bool lost;
        s = container_inspect(d, call, name, &c);
        if (s < 0)
            return s;
        if (c.there)
            return bind(d, call, spec, name, &c, true, ret);
        s = container_make(d, call, spec, name, root, is_plain(d), &c, &lost);
        if (s < 0)
            return s;
        if (lost) {
            s = await(d, call, name, &c);
            if (s < 0)
                return s;
            if (c.there)
                return bind(d, call, spec, name, &c, true, ret);
            continue; /* what the other one made has gone again */
        }
        s = bind(d, call, spec, name, &c, false, ret);
        if (s < 0 && s != MANGO_ECANCELED && s != MANGO_ETIMEOUT)
            undo(d, name, spec->label);
        return s;
    }
    return fail(d->host, call, MANGO_ERETRY, "the container %s comes and goes: something else removes it", name);
}

mango_status docker_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                           const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct docker *d = ctx;
    char name[NAME_LEN + 1];
    struct container c;
    mango_status s = check_spec(d, call, spec);
    if (s < 0)
        return s;
    sandbox_name(spec->label, name);
    if (!sv_is(id, name))
        return fail(d->host, call, MANGO_EDENIED, "the stored reference does not belong to this session");
    s = container_inspect(d, call, name, &c);
    if (s == MANGO_OK && !c.there)
        return fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                    name);
    return s == MANGO_OK ? bind(d, call, spec, name, &c, true, ret) : s;
}
