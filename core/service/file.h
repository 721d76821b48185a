/* Files of clients: from an upload that is whole to a row, and back. */
#ifndef MG_SERVICE_FILE_H
#define MG_SERVICE_FILE_H

#include "domain/principal.h"
#include "object/object.h"
#include "store/file.h"

struct mg_file_spec {
    struct mg_sv filename, mime_type; /* checked by core/domain/file.h */
    int64_t expires_in_s;             /* 0: never */
};
/* Seals the upload and makes its file; ends the upload in any case. */
mg_rc mg_files_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_upload *u,
                      const struct mg_file_spec *spec, struct mg_file_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_files_delete(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                      struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;

#endif
