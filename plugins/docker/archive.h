/* Archives of folders, pauses and snapshots. */
#ifndef MANGO_DOCKER_ARCHIVE_H
#define MANGO_DOCKER_ARCHIVE_H

#include "docker/docker.h"

enum { ARCHIVE_WORDS_MAX = 300 /* bytes of what went wrong */ };

/* ---- archive.c ---- */
mango_status docker_archive_out(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                                mango_sink_fn *sink, void *sink_ctx);
mango_status docker_archive_in(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                               mango_source_fn *source, void *source_ctx);

/* ---- snapshot.c ---- */
mango_status docker_pause(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status docker_resume(void *ctx, const struct mango_call *call, struct mango_sv id);
mango_status docker_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id,
                             struct mango_buf *ret_snapshot);
mango_status docker_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot);
mango_status docker_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret);

#endif
