/* A program that keeps credentials: docker-credential-NAME, as `docker login` uses it. */
#ifndef MANGO_DOCKER_CRED_HELPER_H
#define MANGO_DOCKER_CRED_HELPER_H

#include "docker/docker.h"

/* Asks for the credentials of host. Appends the value of X-Registry-Auth; nothing when the helper has none. */
mango_status cred_helper_ask(const struct docker *d, const struct mango_call *call, const char *helper,
                             const char *host, struct text *out);

#endif
