/* Launcher `docker`: one hardened container per work item, one named volume per session, over the same Engine as the backend.
 *
 *   container  mango-work-LABEL   its label io.mango.work is the item's id; its name is the session's, so that the Engine itself never has
 *                                 two of one session
 *   volume     mango-work-LABEL   the workspace; stays for the next item
 *   image      mango-worker:TAG   what was asked for, with the worker's bundle in /.mango/mango-worker
 *
 * Concurrency: no state but the bundle; every operation may run at any time. A box is named by its container's Id, which changes when
 * another container takes the name over. */
#ifndef MANGO_DOCKER_LAUNCHER_H
#define MANGO_DOCKER_LAUNCHER_H

#include "docker/docker.h"

/* ---- bundle.c ---- */
void bundle_init(struct docker *d);
void bundle_done(struct docker *d);
bool bundle_in_image(const struct docker *d); /* MANGO_DOCKER_WORKER=image: the image has mango-worker on its PATH */
/* The image of boxes, made when it is not there. */
mango_status bundle_image(struct docker *d, const struct mango_call *call, const char *image, char ret[TAG_MAX]);

/* ---- launcher.c ---- */
extern const struct mango_launcher_ops docker_launcher_ops;
#define DOCKER_LAUNCHER_CAPS (MANGO_CAP_LAUNCH_LIST | MANGO_CAP_LAUNCH_LOGS)

#endif
