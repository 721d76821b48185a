#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "docker/cred-helper.h"
#include "docker/docker.h"
#include "docker/registry.h"

enum { CONFIG_MAX = 1024 * 1024 /* bytes of a config.json */ };

static char *config_path(const struct docker *d)
{
    struct text t = {0};
    const char *home = getenv("HOME");
    if (d->set.config_dir)
        text_printf(&t, "%s/config.json", d->set.config_dir);
    else if (home && *home)
        text_printf(&t, "%s/.docker/config.json", home);
    return t.ptr;
}

mango_status registry_auth(const struct docker *d, const struct mango_call *call, const char *image, struct text *out)
{
    char host[256], helper[REGISTRY_HELPER_MAX] = "", why[300] = "";
    char *path = config_path(d);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    mango_status s = MANGO_OK;
    if (fd < 0) {
        if (path && errno != ENOENT && errno != ENOTDIR)
            s = fail(d->host, call, MANGO_EINVALID, "cannot read %.200s: %s; see DOCKER_CONFIG", path, strerror(errno));
        free(path);
        return s;
    }
    char *text = malloc(CONFIG_MAX);
    ssize_t n = text ? read(fd, text, CONFIG_MAX) : -1;
    close(fd);
    registry_of(image, host, sizeof(host));
    if (n < 0)
        s = fail(d->host, call, MANGO_EINVALID, "cannot read %.200s: %s", path, strerror(errno));
    else if (registry_lookup((struct mango_sv){text, (uint64_t)n}, host, out, helper, why, sizeof(why)) < 0)
        s = fail(d->host, call, MANGO_EINVALID, "%.200s %s", path, why);
    if (text)
        explicit_bzero(text, CONFIG_MAX);
    free(text);
    free(path);
    return s == MANGO_OK && helper[0] ? cred_helper_ask(d, call, helper, host, out) : s;
}
