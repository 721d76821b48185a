#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docker/archive.h"
#include "docker/plain.h"

/* Archives of folders: mango-box packs and unpacks inside of the container, as an ordinary command. */

struct pipe_end {
    mango_sink_fn *sink;
    void *sink_ctx;
    struct text words; /* of standard error */
};

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct pipe_end *e = ctx;
    if (stream == 1 && e->sink)
        return e->sink(e->sink_ctx, 0, p, n);
    if (stream == 2 && e->words.len < ARCHIVE_WORDS_MAX)
        text_bytes(&e->words, p, n < ARCHIVE_WORDS_MAX ? n : ARCHIVE_WORDS_MAX);
    return 0;
}

static mango_status run(struct docker *d, const struct mango_call *call, struct mango_sv id, const char *verb,
                        struct mango_sv path, mango_source_fn *source, void *source_ctx, struct pipe_end *e)
{
    struct box *b;
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    text_auto struct text folder = {0};
    struct mango_sv argv[PLAIN_ARCHIVE_ARGS] = {sv_z(BOX_PATH), sv_z(verb), sv_z(b->root), path};
    s = b->plain ? plain_archive(b, call, source == NULL, path, &folder, argv) : MANGO_OK;
    const struct mango_exec_req req = {.struct_size = sizeof(req),
                                       .argv = argv,
                                       .n_argv = b->plain ? PLAIN_ARCHIVE_ARGS : 4,
                                       .stdin_source = source,
                                       .stdin_ctx = source_ctx,
                                       .sink = on_output,
                                       .sink_ctx = e};
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    if (s == MANGO_OK)
        s = docker_exec(d, call, id, &req, &r);
    live_leave(&b->live);
    if (s < 0)
        return s;
    if (!r.exited)
        return fail(d->host, call, MANGO_ERETRY, "the archive was cut off");
    if (r.exit_code == 0)
        return MANGO_OK;
    char words[ARCHIVE_WORDS_MAX + 1];
    snprintf(words, sizeof(words), "%.*s", (int)e->words.len, text_view(&e->words).ptr);
    words[strcspn(words, "\n")] = '\0';
    return fail(d->host, call, strstr(words, strerror(ENOSPC)) ? MANGO_EQUOTA : MANGO_EINVALID, "archive: %s", words);
}

mango_status docker_archive_out(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                                mango_sink_fn *sink, void *sink_ctx)
{
    struct pipe_end e = {.sink = sink, .sink_ctx = sink_ctx};
    mango_status s = run(ctx, call, id, "pack", path, NULL, NULL, &e);
    text_free(&e.words);
    return s;
}

mango_status docker_archive_in(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                               mango_source_fn *source, void *source_ctx)
{
    struct pipe_end e = {0};
    mango_status s = run(ctx, call, id, "unpack", path, source, source_ctx, &e);
    text_free(&e.words);
    return s;
}
