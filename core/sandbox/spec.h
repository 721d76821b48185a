/* What a session's environment asks of a sandbox, as the canonical text that is stored and hashed, and as the ABI's
 * struct. */
#ifndef MG_SANDBOX_SPEC_H
#define MG_SANDBOX_SPEC_H

#include "base/arena.h"
#include "mango/plugin.h"
#include "plugin/plugin.h"

struct mg_spec {
    struct mg_sv text;     /* canonical JSON: fixed order, no blanks; golden test */
    struct mg_sv hash;     /* "sha256:" and 64 hex digits, then "|packages=sha256:..." when packages are asked for */
    struct mg_sv packages; /* raw JSON object, or empty when none is asked for */
    struct mango_sandbox_spec abi;
    struct mango_network network;
};

/* From the resolved config of a cloud environment. Arena memory. MG_EINVAL names the field. */
mg_rc mg_spec_from_config(struct mg_arena *a, struct mg_sv config, struct mg_sv image, struct mg_spec *ret,
                          struct mg_err *err) MG_MUSTCHECK;
/* From stored canonical text. */
mg_rc mg_spec_from_text(struct mg_arena *a, struct mg_sv text, struct mg_spec *ret, struct mg_err *err) MG_MUSTCHECK;
/* Refuses what the backend can never do. */
mg_rc mg_spec_check(const struct mg_spec *spec, const struct mg_plugin *backend, struct mg_err *err) MG_MUSTCHECK;
/* The package part of a stored hash must be the one of spec, when spec asks for packages. */
bool mg_spec_same_packages(const struct mg_spec *spec, struct mg_sv stored_hash);

#endif
