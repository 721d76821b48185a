#include "docker/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/brought.h"

/* The worker that boxes run: an archive that `make runner-bundle` has made, put into an image once. */

#define BUNDLE_NAME "mango-worker-bundle.tar.gz"
#define WORKER_REPO "mango-worker"
#define HEX_OF_IMAGE "%.32s"

enum { BUNDLE_MAX = 64 * 1024 * 1024 /* bytes of the archive */, SETTING_MAX = 4096 };

struct bundle {
    pthread_mutex_t lock; /* guards what follows; held while the file is read */
    struct mango_buf *data;
    uint64_t hash;
};

void bundle_init(struct docker *d)
{
    d->bundle = calloc(1, sizeof(*d->bundle));
    if (d->bundle)
        pthread_mutex_init(&d->bundle->lock, NULL);
}

void bundle_done(struct docker *d)
{
    if (!d->bundle)
        return;
    d->host->buf_free(d->host, d->bundle->data);
    pthread_mutex_destroy(&d->bundle->lock);
    free(d->bundle);
}

static char *setting(const struct docker *d)
{
    struct mango_buf *b = d->host->buf_new(d->host, SETTING_MAX);
    char *z = b && d->host->config_get(d->host, "worker", b) == MANGO_OK ? sv_dup(d->host->buf_view(d->host, b)) : NULL;
    d->host->buf_free(d->host, b);
    return z;
}

bool bundle_in_image(const struct docker *d)
{
    char *z = setting(d);
    bool is = z && strcmp(z, "image") == 0;
    free(z);
    return is;
}

static mango_status load(struct docker *d, const struct mango_call *call)
{
    static const struct brought_file f = {
        .name = BUNDLE_NAME,
        .title = "the worker's bundle ",
        .remedy = "make it with `make runner-bundle` and set MANGO_DOCKER_WORKER to its path, or to 'image' when the "
                  "image has mango-worker itself",
        .max = BUNDLE_MAX};
    struct brought p;
    mango_status s = brought_load(d->host, call, &f, setting(d), &p);
    d->bundle->data = p.bytes;
    d->bundle->hash = p.hash;
    return s;
}

/* Once; what was loaded does not change afterwards. */
static mango_status ready(struct docker *d, const struct mango_call *call)
{
    if (!d->bundle)
        return fail(d->host, call, MANGO_ERETRY, "out of memory");
    pthread_mutex_lock(&d->bundle->lock);
    mango_status s = d->bundle->data ? MANGO_OK : load(d, call);
    pthread_mutex_unlock(&d->bundle->lock);
    return s;
}

static mango_status put(struct docker *d, const struct mango_call *call, const char *container)
{
    struct engine_res r = {0};
    text_auto struct text path = {0};
    text_printf(&path, "/containers/%.64s/archive?path=%%2F.mango", container);
    const struct engine_req req = {.method = "PUT",
                                   .path = path.ptr,
                                   .body = d->host->buf_view(d->host, d->bundle->data),
                                   .type = "application/x-tar"};
    mango_status s = path.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "put the worker's bundle into the image");
    engine_free(d, &r);
    return s;
}

mango_status bundle_image(struct docker *d, const struct mango_call *call, const char *image, char ret[TAG_MAX])
{
    char child[TAG_MAX], id[TAG_MAX], template[TEMPLATE_MAX], found[TAG_MAX], arch[ARCH_MAX];
    struct image made;
    mango_status s = image_ready(d, call, image, WORKSPACE, &made);
    if (s == MANGO_OK && made.arch[0])
        s = fail(d->host, call, MANGO_EUNSUPPORTED,
                 "image '%.200s' is for linux/%s; a worker needs one for the Engine's host, linux/%s", image, made.arch,
                 d->arch);
    memcpy(child, made.child, TAG_MAX);
    if (s < 0 || bundle_in_image(d)) {
        memcpy(ret, child, TAG_MAX);
        return s;
    }
    if ((s = ready(d, call)) < 0 || (s = image_inspect(d, call, child, id, arch)) < 0)
        return s == MANGO_ENOENT ? fail(d->host, call, MANGO_ERETRY, "image '%.200s' is gone again", child) : s;
    const char *colon = strchr(id, ':');
    snprintf(ret, TAG_MAX, WORKER_REPO ":" HEX_OF_IMAGE "-%016llx", colon ? colon + 1 : id,
             (unsigned long long)d->bundle->hash);
    s = image_inspect(d, call, ret, found, arch);
    if (s != MANGO_ENOENT)
        return s;
    s = template_make(d, call, child, template);
    if (s == MANGO_OK)
        s = put(d, call, template);
    if (s == MANGO_OK)
        s = image_commit(d, call, template, ret, "image", child);
    template_drop(d, template);
    return s;
}
