#include "common/hostbox/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/hostbox/hostbox.h"

struct folder {
    struct boxes boxes; /* first: the operations see it alone */
    struct box_root roots[FOLDER_ROOTS_MAX];
    char *path;
};

static mango_status check(const struct boxes *all, const struct mango_call *call, const struct mango_sandbox_spec *spec)
{
    if (spec->n_mounts > 0 || spec->network)
        return fail(all->host, call, MANGO_EUNSUPPORTED, "a folder of this machine has neither mounts nor a network");
    return MANGO_OK;
}

static void command(const struct box *b, struct words *argv)
{
    word(argv, b->all->runner);
}

static const struct box_kind kind = {
    .name = "worker",
    .env_name = "WORKER",
    .runner = "mango-local-runner",
    .terminal = true,
    .check = check,
    .command = command,
};

static mango_status open_root(struct folder *f, const struct mango_call *call, const struct folder_root *root)
{
    const struct mango_host *h = f->boxes.host;
    char *path = realpath(root->path, NULL);
    int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0 || f->boxes.n_roots == FOLDER_ROOTS_MAX) {
        int e = errno;
        free(path);
        if (fd < 0)
            return fail_path(h, call, e, sv_z(root->path));
        close(fd);
        return fail(h, call, MANGO_ETOOBIG, "at most %d folders are allowed beside the workspace", FOLDER_ROOTS_MAX);
    }
    if (strcmp(path, "/") == 0)
        *path = '\0';
    f->roots[f->boxes.n_roots++] = (struct box_root){{path, fd}, root->read_only};
    return MANGO_OK;
}

mango_status folder_open(const struct mango_host *host, const struct mango_call *call, const struct folder_opts *opts,
                         void **ret_ctx)
{
    struct folder *f = calloc(1, sizeof(*f));
    if (!f)
        return fail(host, call, MANGO_ERETRY, "out of memory");
    f->boxes.host = host;
    f->boxes.kind = &kind;
    f->boxes.roots = f->roots;
    f->boxes.read_only = opts->read_only;
    f->path = realpath(opts->path, NULL);
    f->boxes.folder = f->path;
    int e = errno;
    mango_status s = boxes_open(&f->boxes, call);
    if (s == MANGO_OK && !f->path)
        s = fail_path(host, call, e, sv_z(opts->path));
    for (int i = 0; s == MANGO_OK && i < opts->n_roots; i++)
        s = open_root(f, call, &opts->roots[i]);
    if (s < 0)
        folder_close(f);
    else
        *ret_ctx = f;
    return s;
}

void folder_close(void *ctx)
{
    struct folder *f = ctx;
    if (!f)
        return;
    boxes_done(&f->boxes);
    for (int i = 0; i < f->boxes.n_roots; i++) {
        close(f->roots[i].at.root_fd);
        free((char *)f->roots[i].at.root);
    }
    free(f->path);
    free(f);
}

const struct mango_sandbox_ops folder_ops = {
    .struct_size = sizeof(folder_ops),
    .create = hostbox_create,
    .attach = hostbox_attach,
    .exec = hostbox_exec,
    .read = hostbox_read,
    .write = hostbox_write,
    .stat = hostbox_stat,
    .destroy = hostbox_destroy,
    .health = hostbox_health,
    .detach = hostbox_detach,
    .proc_open = hostbox_proc_open,
    .proc_write = hostbox_proc_write,
    .proc_read = hostbox_proc_read,
    .proc_close = hostbox_proc_close,
};
