/* Where the Engine is: DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH as for the docker command. */
#ifndef MANGO_DOCKER_ENDPOINT_H
#define MANGO_DOCKER_ENDPOINT_H

#include <stdbool.h>

#include "common/text.h"

struct endpoint {
    char *socket;          /* path of a unix socket, or NULL */
    char *base;            /* "http://docker", "https://host:2376" */
    char *ca, *cert, *key; /* PEM, or NULL */
};

enum { ENDPOINT_WHY_MAX = 300 };

/* host: "unix:///path", "tcp://host[:port]", "http(s)://host[:port]"; empty: the usual socket. cert_path: folder of
 * ca.pem, cert.pem and key.pem, or empty. False with a reason that names what to change. */
bool endpoint_parse(struct endpoint *ret, const char *host, const char *cert_path, bool tls_verify,
                    char why[ENDPOINT_WHY_MAX]);
void endpoint_done(struct endpoint *e);

/* The version to speak: the lower of ours and the Engine's. False when the Engine's is too old or no version. */
bool endpoint_version(const char *engine, char ret[16]);

#endif
