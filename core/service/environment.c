#include "service/environment.h"

#include "domain/check.h"

mg_rc mg_environments_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                             const struct mg_json *body, bool default_cloud, struct mg_environment_row *ret,
                             struct mg_err *err)
{
    struct mg_environment env;
    const struct mg_id id = mg_id_new("env");
    mg_rc rc = mg_environment_parse_create(a, body, default_cloud, &env, err);
    return rc < 0 ? rc : mg_environment_insert(a, pg, mg_id_sv(&who->workspace), &id, &env, ret, err);
}

mg_rc mg_environments_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                             const struct mg_json *body, struct mg_environment_row *ret, struct mg_err *err)
{
    struct mg_environment env;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_environment_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc < 0)
        return rc;
    if (ret->archived_us != INT64_MIN)
        return mg_err_code(err, MG_EINVAL, "environment_archived",
                           "environment '%.*s' is archived and cannot be changed", MG_SV_ARG(mg_shown_id(id)));
    rc = mg_environment_parse_update(a, body, &ret->env, &env, err);
    if (rc >= 0)
        rc = mg_environment_save(a, &t, ret, &env, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_environments_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                              struct mg_environment_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_environment_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc < 0 || ret->archived_us != INT64_MIN)
        return rc;
    rc = mg_environment_set_archived(&t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_environments_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                             struct mg_err *err)
{
    struct mg_environment_row row;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_environment_lock(a, &t, mg_id_sv(&who->workspace), id, &row, err);
    if (rc >= 0)
        rc = mg_environment_delete(&t, &row, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}
