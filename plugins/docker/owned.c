#include <string.h>

#include "common/json.h"
#include "docker/docker.h"

/* What this deployment owns at the Engine, bound or not. */

static mango_status list(const struct docker *d, const struct mango_call *call, const char *what, struct mango_sv owner,
                         struct engine_res *r)
{
    text_auto struct text path = {0};
    text_auto struct text filter = {0};
    text_printf(&filter, "{\"label\":[\"io.mango.owner=%.*s\"]}", (int)owner.len, owner.ptr);
    text_printf(&path, "/%s%s=", what, strcmp(what, "volumes") == 0 ? "?filters" : "/json?all=1&filters");
    text_url(&path, text_view(&filter));
    const struct engine_req req = {.method = "GET", .path = path.ptr, .control = true};
    mango_status s =
        path.bad || filter.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, r);
    return s == MANGO_OK && r->status != 200 ? engine_fail(d, call, r, "list what this deployment owns") : s;
}

struct listing {
    struct mango_sv owner;
    mango_owned_fn *fn;
    void *fn_ctx;
    bool stop;
};

/* labels: of a container or a volume. */
static void give(struct listing *l, struct mango_sv labels, int64_t created_us)
{
    char label[LABEL_LEN + 1], owner[LABEL_LEN + 1], name[NAME_LEN + 1];
    if (l->stop || !json_copy(labels, "io.mango.label", label, sizeof(label)) || !sv_hex(sv_z(label), LABEL_LEN) ||
        !json_copy(labels, "io.mango.owner", owner, sizeof(owner)) || !sv_is(l->owner, owner))
        return;
    sandbox_name(sv_z(label), name);
    struct mango_owned item = {
        .struct_size = sizeof(item), .id = sv_z(name), .label = sv_z(label), .created_us = created_us};
    l->stop = l->fn(l->fn_ctx, &item) != 0;
}

static bool has_container(struct mango_sv containers, struct mango_sv labels)
{
    char label[LABEL_LEN + 1];
    struct mango_sv item;
    if (!json_copy(labels, "io.mango.label", label, sizeof(label)))
        return false;
    for (uint64_t pos = 0; json_next(containers, &pos, NULL, &item);) {
        if (json_is(item, "Labels/io.mango.label", label))
            return true;
    }
    return false;
}

mango_status docker_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                               void *fn_ctx)
{
    struct docker *d = ctx;
    struct engine_res containers = {0}, volumes = {0};
    struct listing l = {.owner = owner, .fn = fn, .fn_ctx = fn_ctx};
    struct mango_sv item;
    if (!sv_hex(owner, LABEL_LEN))
        return fail(d->host, call, MANGO_EINVALID, "owner must be %d lowercase hex digits", LABEL_LEN);
    mango_status s = list(d, call, "containers", owner, &containers);
    if (s == MANGO_OK)
        s = list(d, call, "volumes", owner, &volumes);
    if (s == MANGO_OK) {
        struct mango_sv all = engine_body(d, &containers), left = json_get(engine_body(d, &volumes), "Volumes");
        for (uint64_t pos = 0; json_next(all, &pos, NULL, &item);) {
            int64_t created_s = 0;
            (void)json_int(item, "Created", &created_s);
            give(&l, json_get(item, "Labels"), created_s * 1000000);
        }
        /* A create that was cut off between the two, or a container that somebody removed. */
        for (uint64_t pos = 0; json_next(left, &pos, NULL, &item);) {
            if (!has_container(all, json_get(item, "Labels")))
                give(&l, json_get(item, "Labels"), 0);
        }
    }
    engine_free(d, &containers);
    engine_free(d, &volumes);
    return s;
}
