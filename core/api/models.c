/* /v1/models: what the configuration names, so that clients can list something. */
#include "api/api.h"
#include "domain/check.h"
#include "model/model.h"

/* The one model that this server knows of; NULL when the endpoint decides. */
static const char *model_id(const struct mg_http_req *req)
{
    const struct mg_app *app = mg_req_app(req);
    if (app->default_model)
        return app->default_model;
    return app->model && mg_model_is_offline(app->model) ? "mango-offline" : NULL;
}

static void render_model(struct mg_jw *w, const struct mg_http_req *req, const char *id)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "id", id);
    mg_jw_kstrz(w, "type", "model");
    mg_jw_kstrz(w, "display_name", id);
    mg_jw_ktime(w, "created_at", mg_req_app(req)->started_us);
    mg_jw_kstrz(w, "lifecycle", "active");
    mg_jw_knull(w, "deprecated_at");
    mg_jw_knull(w, "retires_at");
    mg_jw_knull(w, "line");
    mg_jw_knull(w, "max_input_tokens");
    mg_jw_knull(w, "max_tokens");
    mg_jw_knull(w, "allowed_fallback_models");
    mg_jw_knull(w, "capabilities");
    mg_jw_obj_end(w);
}

static bool is_lifecycle(struct mg_sv s)
{
    static const char *const WORDS[] = {"active", "deprecated", "retired", NULL};
    return mg_word_index(WORDS, s) >= 0;
}

mg_rc mg_get_models(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_sv after, before, *words;
    int64_t limit = 20;
    int n;
    mg_rc rc = mg_param_int(req, "limit", 1, 1000, &limit, err);
    if (rc >= 0)
        rc = mg_param_one(req, "after_id", &after, err);
    if (rc >= 0)
        rc = mg_param_one(req, "before_id", &before, err);
    if (rc >= 0)
        rc = mg_param_words(req, "lifecycle", is_lifecycle, "active, deprecated, retired", &words, &n, err);
    if (rc < 0)
        return rc;
    const char *id = model_id(req);
    bool shown = id && !after.ptr && !before.ptr && n == 0;
    for (int i = 0; i < n; i++)
        shown |= id && !after.ptr && !before.ptr && mg_sv_eqz(words[i], "active");
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_key(&w, "data");
    mg_jw_arr(&w);
    if (shown)
        render_model(&w, req, id);
    mg_jw_arr_end(&w);
    mg_jw_kbool(&w, "has_more", false);
    mg_jw_kstrz(&w, "first_id", shown ? id : NULL);
    mg_jw_kstrz(&w, "last_id", shown ? id : NULL);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_get_model(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const char *id = model_id(req);
    if (!id || !mg_sv_eqz(req->param[0], id))
        return mg_err_set(err, MG_ENOTFOUND, "model '%.*s' is not in this server's list",
                          MG_SV_ARG(mg_shown_id(req->param[0])));
    struct mg_jw w = mg_jw_to(&res->body);
    render_model(&w, req, id);
    return MG_OK;
}
