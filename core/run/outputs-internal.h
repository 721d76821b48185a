/* Of outputs.c and outputs-list.c: one publication, on a thread of its own. */
#ifndef MG_RUN_OUTPUTS_INTERNAL_H
#define MG_RUN_OUTPUTS_INTERNAL_H

#include "crypto/hash.h"
#include "domain/resource.h"
#include "run/outputs.h"
#include "sandbox/manager.h"
#include "store/output.h"

enum { MG_OUTPUTS_NOTES_BYTES = 2000 }; /* of the words about what was not published */

struct mg_output {
    struct mg_sv path, filename, mime; /* path: below the folder */
    int64_t size;
    char sha256[MG_SHA256_HEX]; /* of what the file holds; "": not known yet */
    bool kept;                  /* is published, or stays so */
};

struct mg_publication {
    struct mg_run *run;
    struct mg_pg *pg;
    struct mg_arena *a;
    struct mg_sv workspace;
    struct mg_sandbox *box;
    const struct mg_tool_ops *ops;
    uint64_t deadline_ns;
    struct mg_output *files;
    int n;
    struct mg_output_row *old;
    int n_old;
    struct mg_buf notes;
    int n_notes;
};

/* Adds "'PATH' WHY" to the notes. */
void mg_publication_note(struct mg_publication *p, struct mg_sv path, const char *why);
/* MG_ECANCELED, MG_ETIMEOUT. */
mg_rc mg_publication_in_time(const struct mg_publication *p, struct mg_err *err) MG_MUSTCHECK;
const struct mg_output_row *mg_publication_old(const struct mg_publication *p, struct mg_sv path); /* or NULL */
/* Fills files; old is there. Those that are published and hold what they held are asked for by nothing but the list. MG_EINVAL: a tree that cannot be published. */
mg_rc mg_publication_list(struct mg_publication *p, struct mg_err *err) MG_MUSTCHECK;

#endif
