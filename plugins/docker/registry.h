/* Credentials of registries from Docker's config.json. */
#ifndef MANGO_DOCKER_REGISTRY_H
#define MANGO_DOCKER_REGISTRY_H

#include "common/text.h"

/* host: the registry of an image's name as config.json spells it. */
void registry_of(const char *image, char *host, size_t size);
/* Looks up host in the text of a config.json. 1: out has the header's value; 0: no credentials; -1: why says what is
 * wrong. */
int registry_lookup(struct mango_sv config, const char *host, struct text *out, char *why, size_t why_size);

#endif
