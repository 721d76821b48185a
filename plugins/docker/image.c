#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/json.h"
#include "common/tar.h"
#include "docker/docker.h"

/* Images. A session's container is made from a child of the image that was asked for: the same, plus mango-box and the
 * folder of the workspace with the right owner. So nothing is copied into a container when it starts, it works with a
 * read-only root and with an Engine on another host, and a new volume takes the folder's owner over. */

#define CHILD_REPO "mango-box"

/* Names, and where they lead in the workspace: what the server mounts for the session. */
static const char *const links[][2] = {{"mnt/session", ".session"}, {"mnt/memory", ".session/memory"}};
enum { N_LINKS = sizeof(links) / sizeof(links[0]) };

enum {
    PULL_LINE_MAX = 64 * 1024, /* bytes of one line of a pull's progress */
    TEMPLATE_S = 3600,         /* age of a template before it counts as left behind by a crash */
    TEMPLATE_DIGITS = 32,      /* of its name */
    LOST_TRIES = 20,           /* looks for a container whose making was not answered */
    LOST_PAUSE_MS = 50,
};

static mango_status check_name(const struct docker *d, const struct mango_call *call, const char *image)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@";
    size_t n = strlen(image);
    if (n == 0 || n >= IMAGE_MAX || strspn(image, allowed) != n || strstr(image, "..") || image[0] == '/')
        return fail(d->host, call, MANGO_EINVALID, "'%.100s' is no name of an image: [REGISTRY/]NAME[:TAG][@DIGEST]",
                    image);
    return MANGO_OK;
}

/* ---- pull ---- */

struct pull {
    struct text line;
    char error[300];
};

static void on_line(struct pull *p)
{
    struct mango_sv line = text_view(&p->line);
    /* "error" in the middle of a pull, "message" as the whole answer. */
    for (int i = 0; i < 2 && json_valid(line); i++) {
        const char *name = i == 0 ? "error" : "message";
        if (json_get(line, name).len > 0 && !json_copy(line, name, p->error, sizeof(p->error)))
            snprintf(p->error, sizeof(p->error), "an error with too many words");
    }
    p->line.len = 0;
}

static int32_t on_progress(void *ctx, int32_t stream, const char *bytes, uint64_t n)
{
    (void)stream;
    struct pull *p = ctx;
    for (uint64_t i = 0; i < n; i++) {
        if (bytes[i] == '\n')
            on_line(p);
        else if (p->line.len < PULL_LINE_MAX)
            text_bytes(&p->line, &bytes[i], 1);
    }
    return 0;
}

static mango_status pull(struct docker *d, const struct mango_call *call, const char *image)
{
    text_auto struct text path = {0};
    text_auto struct text auth = {0};
    struct pull p = {0};
    struct engine_res r = {0};
    mango_status s = registry_auth(d, call, image, &auth);
    if (s < 0)
        return s;
    text_add(&path, "/images/create?fromImage=");
    text_url(&path, sv_z(image));
    const char *last = strrchr(image, '/');
    if (!strchr(last ? last : image, ':') && !strchr(image, '@'))
        text_add(&path, "&tag=latest"); /* without it the Engine fetches every tag */
    const struct engine_req req = {.method = "POST",
                                   .path = path.ptr,
                                   .registry = auth.len ? auth.ptr : NULL,
                                   .sink = on_progress,
                                   .sink_ctx = &p};
    s = path.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (p.line.len > 0)
        on_line(&p);
    if (s == MANGO_OK && (r.status != 200 || p.error[0]))
        s = fail(d->host, call, r.status == 200 || r.status >= 500 ? MANGO_ERETRY : MANGO_EINVALID,
                 "image '%.200s' could not be pulled (HTTP %d): %s; check MANGO_SANDBOX_IMAGE, the registry and its "
                 "credentials",
                 image, r.status, p.error);
    engine_free(d, &r);
    text_free(&p.line);
    return s;
}

/* ---- the child ---- */

/* MANGO_ENOENT without words when it is not there. */
mango_status image_inspect(struct docker *d, const struct mango_call *call, const char *image, char ret_id[TAG_MAX],
                           char ret_arch[ARCH_MAX])
{
    char path[IMAGE_MAX + 32], os[32];
    struct engine_res r = {0};
    snprintf(path, sizeof(path), "/images/%s/json", image);
    const struct engine_req req = {.method = "GET", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status == 404) {
        s = MANGO_ENOENT;
    } else if (s == MANGO_OK && r.status != 200) {
        s = engine_fail(d, call, &r, "look at the image");
    } else if (s == MANGO_OK) {
        struct mango_sv doc = engine_body(d, &r);
        if (!json_copy(doc, "Id", ret_id, TAG_MAX))
            s = fail(d->host, call, MANGO_EINTERNAL, "the Docker Engine described image '%.200s' without an Id", image);
        else if (json_copy(doc, "Os", os, sizeof(os)) && os[0] && strcmp(os, "linux") != 0)
            s = fail(d->host, call, MANGO_EUNSUPPORTED,
                     "image '%.200s' is for %.30s; sandboxes are made of images for linux", image, os);
        if (!json_copy(doc, "Architecture", ret_arch, ARCH_MAX) || strcmp(ret_arch, d->arch) == 0)
            ret_arch[0] = '\0';
    }
    engine_free(d, &r);
    return s;
}

static void fnv(uint64_t *h, const char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        *h = (*h ^ (unsigned char)p[i]) * UINT64_C(1099511628211);
}

/* Names the child by all that it is made of. */
static void child_name(const struct docker *d, const char *base_id, const char *root, char out[TAG_MAX])
{
    uint64_t h = d->program_hash;
    const char *colon = strchr(base_id, ':');
    fnv(&h, root, strlen(root));
    for (int i = 0; i < N_LINKS; i++)
        fnv(&h, links[i][0], strlen(links[i][0]));
    fnv(&h, d->set.user, strlen(d->set.user));
    snprintf(out, TAG_MAX, CHILD_REPO ":%.32s-%016llx", colon ? colon + 1 : base_id, (unsigned long long)h);
}

static void put_folder(struct text *tar, const char *path, uint32_t mode, uint32_t uid, uint32_t gid)
{
    const struct tar_entry e = {.path = sv_z(path), .kind = 'd', .mode = mode, .uid = uid, .gid = gid};
    tar_head(tar, &e);
}

static void put_links(struct text *tar, const char *root)
{
    char target[512];
    put_folder(tar, "mnt", 0755, 0, 0);
    for (int i = 0; i < N_LINKS; i++) {
        snprintf(target, sizeof(target), "%s/%s", root, links[i][1]);
        const struct tar_entry e = {.path = sv_z(links[i][0]), .link = sv_z(target), .kind = 'l', .mode = 0777};
        tar_head(tar, &e);
    }
}

static const char *const open_folders[] = {"tmp", "var/tmp", "run"};

static mango_status put_files(struct docker *d, const struct mango_call *call, const char *id, const char *root)
{
    text_auto struct text tar = {0};
    struct engine_res r = {0};
    char path[128];
    struct mango_sv program = d->host->buf_view(d->host, d->program);
    const struct tar_entry e = {.path = sv_z(&BOX_PATH[1]), .kind = 'f', .mode = 0755, .size = program.len};
    put_folder(&tar, ".mango", 0755, 0, 0);
    tar_head(&tar, &e);
    text_sv(&tar, program);
    tar_pad(&tar, program.len);
    put_folder(&tar, root + 1, 0755, d->uid, d->gid);
    put_links(&tar, root);
    /* The runtime gives what it mounts there the mode of the image's folder. */
    for (int i = 0; i < 3; i++)
        put_folder(&tar, open_folders[i], 01777, 0, 0);
    tar_end(&tar);
    snprintf(path, sizeof(path), "/containers/%.64s/archive?path=%%2F", id);
    const struct engine_req req = {
        .method = "PUT", .path = path, .body = text_view(&tar), .type = "application/x-tar", .control = true};
    mango_status s = tar.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "put mango-box into the image");
    engine_free(d, &r);
    return s;
}

mango_status image_commit(const struct docker *d, const struct mango_call *call, const char *id, const char *name,
                          const char *kind, const char *base)
{
    text_auto struct text path = {0};
    text_auto struct text body = {0};
    struct engine_res r = {0};
    const char *colon = strchr(name, ':');
    text_printf(&path, "/commit?container=%.64s&pause=0&repo=%.*s&tag=", id, (int)(colon - name), name);
    text_url(&path, sv_z(colon + 1));
    text_printf(&body, "{\"Labels\":{\"io.mango.kind\":\"%s\",\"io.mango.base\":", kind);
    text_jsonz(&body, base);
    text_add(&body, "}}");
    const struct engine_req req = {.method = "POST", .path = path.ptr, .body = text_view(&body), .once = true};
    mango_status s =
        path.bad || body.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 201)
        s = engine_fail(d, call, &r, "save an image");
    engine_free(d, &r);
    return s;
}

mango_status image_tag(const struct docker *d, const struct mango_call *call, struct mango_sv image, const char *repo,
                       struct mango_sv tag)
{
    struct engine_res r = {0};
    char path[256];
    snprintf(path, sizeof(path), "/images/%.*s/tag?repo=%s&tag=%.*s", (int)image.len, image.ptr, repo, (int)tag.len,
             tag.ptr);
    const struct engine_req req = {.method = "POST", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status == 404)
        s = fail(d->host, call, MANGO_ENOENT, "the snapshot does not exist");
    else if (s == MANGO_OK && r.status != 201)
        s = engine_fail(d, call, &r, "name the image of a snapshot");
    engine_free(d, &r);
    return s;
}

mango_status image_drop(const struct docker *d, const struct mango_call *call, struct mango_sv name)
{
    struct engine_res r = {0};
    char path[128];
    snprintf(path, sizeof(path), "/images/%.*s", (int)name.len, name.ptr);
    const struct engine_req req = {.method = "DELETE", .path = path, .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status == 404)
        s = fail(d->host, call, MANGO_ENOENT, "the snapshot does not exist");
    else if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "remove the snapshot");
    engine_free(d, &r);
    return s;
}

/* It may still come: the Engine does not stop when nobody listens any more. */
static void template_lost(const struct docker *d, const char *name)
{
    const struct mango_call own = call_of_ours(d);
    struct container c = {0};
    for (int i = 0; i < LOST_TRIES && container_inspect(d, &own, name, &c) == MANGO_OK && !c.there; i++) {
        struct timespec ts = {.tv_nsec = LOST_PAUSE_MS * 1000000L};
        nanosleep(&ts, NULL);
    }
    template_drop(d, name);
}

/* Named by us, so that one is found whose making was not answered. */
mango_status template_make(const struct docker *d, const struct mango_call *call, const char *image,
                           char ret_name[TEMPLATE_MAX])
{
    text_auto struct text body = {0};
    struct engine_res r = {0};
    char digits[TEMPLATE_DIGITS + 1], path[128];
    random_hex(digits, TEMPLATE_DIGITS);
    snprintf(ret_name, TEMPLATE_MAX, "mango-template-%s", digits);
    snprintf(path, sizeof(path), "/containers/create?name=%s", ret_name);
    text_add(&body, "{\"Image\":");
    text_jsonz(&body, image);
    text_add(&body, ",\"Entrypoint\":[\"" BOX_PATH "\"],\"Cmd\":[\"init\"],\"NetworkDisabled\":true,"
                    "\"Labels\":{\"io.mango.kind\":\"template\"},\"HostConfig\":{\"NetworkMode\":\"none\"}}");
    const struct engine_req req = {.method = "POST", .path = path, .body = text_view(&body), .control = true};
    mango_status s = body.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s < 0 && !body.bad)
        template_lost(d, ret_name);
    else if (s == MANGO_OK && r.status != 201 && r.status != 409) /* 409: ours, by a request that was sent again */
        s = engine_fail(d, call, &r, "make a container of the image");
    if (s < 0)
        ret_name[0] = '\0';
    engine_free(d, &r);
    return s;
}

void template_drop(const struct docker *d, const char *name)
{
    const struct mango_call own = call_of_ours(d);
    if (name[0])
        (void)container_drop(d, &own, name);
}

mango_status image_make(struct docker *d, const struct mango_call *call, const char *image, const char *root,
                        const char *child)
{
    char id[TEMPLATE_MAX];
    mango_status s = template_make(d, call, image, id);
    if (s == MANGO_OK)
        s = put_files(d, call, id, root);
    if (s == MANGO_OK)
        s = image_commit(d, call, id, child, "image", image);
    template_drop(d, id);
    return s;
}

mango_status image_child(struct docker *d, const struct mango_call *call, const char *image, const char *root,
                         struct image *ret)
{
    char base[TAG_MAX];
    *ret = (struct image){0};
    mango_status s = check_name(d, call, image);
    if (s == MANGO_OK &&
        strncmp(image, FORK_REPO ":", sizeof(FORK_REPO)) == 0) { /* a child already, with files in it */
        snprintf(ret->child, TAG_MAX, "%.*s", TAG_MAX - 1, image);
        return MANGO_OK;
    }
    if (s == MANGO_OK)
        s = image_inspect(d, call, image, base, ret->arch);
    if (s == MANGO_ENOENT) {
        s = pull(d, call, image);
        if (s == MANGO_OK)
            s = image_inspect(d, call, image, base, ret->arch);
    }
    if (s < 0)
        return s == MANGO_ENOENT ? fail(d->host, call, MANGO_ERETRY, "image '%.200s' is gone again", image) : s;
    child_name(d, base, root, ret->child);
    return MANGO_OK;
}

mango_status image_ready(struct docker *d, const struct mango_call *call, const char *image, const char *root,
                         struct image *ret)
{
    char found[TAG_MAX], arch[ARCH_MAX];
    mango_status s = image_child(d, call, image, root, ret);
    if (s == MANGO_OK && (s = image_inspect(d, call, ret->child, found, arch)) == MANGO_ENOENT)
        s = image_make(d, call, image, root, ret->child);
    return s;
}

/* Whoever made it has had its time. */
static bool left_behind(struct mango_sv item)
{
    int64_t created_s = 0;
    return json_int(item, "Created", &created_s) && created_s < (int64_t)time(NULL) - TEMPLATE_S;
}

static void sweep_template(const struct docker *d, struct mango_sv item)
{
    char id[TEMPLATE_MAX];
    if (json_copy(item, "Id", id, sizeof(id)))
        template_drop(d, id);
}

static void sweep_unfinished(const struct docker *d, struct mango_sv item)
{
    static const char repo[] = UNFINISHED_REPO ":";
    const struct mango_call own = call_of_ours(d);
    struct mango_sv tag;
    for (uint64_t pos = 0; json_next(json_get(item, "RepoTags"), &pos, NULL, &tag);) {
        text_auto struct text name = {0};
        if (json_text(tag, &name) && !name.bad && strncmp(name.ptr, repo, sizeof(repo) - 1) == 0)
            (void)image_drop(d, &own, text_view(&name));
    }
}

void templates_sweep(const struct docker *d, const struct mango_call *call)
{
    static const struct {
        const char *list, *filter;
        void (*drop)(const struct docker *d, struct mango_sv item);
    } kinds[] = {
        {"/containers/json?all=1&filters=", "{\"label\":[\"io.mango.kind=template\"],\"status\":[\"created\"]}",
         sweep_template},
        {"/images/json?filters=", "{\"reference\":[\"" UNFINISHED_REPO "\"]}", sweep_unfinished},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        text_auto struct text path = {0};
        struct engine_res r = {0};
        struct mango_sv item;
        text_add(&path, kinds[i].list);
        text_url(&path, sv_z(kinds[i].filter));
        const struct engine_req req = {.method = "GET", .path = path.ptr, .control = true};
        if (!path.bad && engine_call(d, call, &req, &r) == MANGO_OK && r.status == 200) {
            struct mango_sv all = engine_body(d, &r);
            for (uint64_t pos = 0; json_next(all, &pos, NULL, &item);) {
                if (left_behind(item))
                    kinds[i].drop(d, item);
            }
        }
        engine_free(d, &r);
    }
}
