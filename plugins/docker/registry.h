/* Credentials of registries from Docker's config.json. */
#ifndef MANGO_DOCKER_REGISTRY_H
#define MANGO_DOCKER_REGISTRY_H

#include "common/text.h"

/* host: the registry of an image's name as config.json spells it. */
void registry_of(const char *image, char *host, size_t size);
/* Looks up host in the text of a config.json, as the docker command does: a helper of this registry, the entry under auths,
 * the helper of all registries. 1: out has the header's value; 2: helper has the name of the program to ask; 0: no
 * credentials; -1: why says what is wrong. */
enum { REGISTRY_NONE = 0, REGISTRY_HEADER, REGISTRY_HELPER };
enum { REGISTRY_HELPER_MAX = 64 }; /* bytes of a helper's name with its NUL */
int registry_lookup(struct mango_sv config, const char *host, struct text *out, char helper[REGISTRY_HELPER_MAX],
                    char *why, size_t why_size);
/* What a helper said: {"ServerURL":...,"Username":...,"Secret":...}. False when it is no such thing. */
bool registry_from_helper(struct mango_sv answer, const char *host, struct text *out);

#endif
