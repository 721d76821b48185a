#include "service/file.h"

#include "base/hook.h"
#include "base/mem.h"

static mg_rc commit(struct mg_pg *pg, struct mg_arena *a, struct mg_upload *u, const struct mg_file_new *f,
                    struct mg_file_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_upload_complete(u, a, &t, err);
    if (rc >= 0)
        rc = mg_file_insert(a, &t, f, mg_upload_key(u), ret, err);
    if (rc < 0)
        return rc;
    mg_hook("file.created.before");
    rc = mg_txn_commit(&t, err);
    mg_hook("file.created.after");
    return rc;
}

mg_rc mg_files_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_upload *u,
                      const struct mg_file_spec *spec, struct mg_file_row *ret, struct mg_err *err)
{
    mg_rc rc = mg_upload_seal(u, err);
    if (rc >= 0) {
        const struct mg_file_new f = {
            .id = mg_id_new("file"),
            .workspace = mg_id_sv(&who->workspace),
            .filename = spec->filename,
            .mime_type = spec->mime_type,
            .size = mg_upload_size(u),
            .expires_in_s = spec->expires_in_s,
            .sha256 = mg_upload_sha256(u),
        };
        rc = commit(pg, a, u, &f, ret, err);
    }
    if (rc == MG_EFENCED)
        rc = mg_err_set(err, MG_EUNAVAIL, "file: the upload took too long to be finished; send it again");
    mg_upload_end(u, pg, rc, err);
    return rc;
}

mg_rc mg_files_delete(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                      struct mg_sv id, struct mg_err *err)
{
    struct mg_sv key;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_file_delete(a, &t, mg_id_sv(&who->workspace), id, &key, err);
    if (rc < 0)
        return rc;
    mg_hook("file.deleted.before");
    rc = mg_txn_commit(&t, err);
    mg_hook("file.deleted.after");
    if (rc >= 0)
        mg_objects_wake(o); /* the bytes go on the keeper's thread */
    return rc;
}
