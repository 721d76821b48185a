#include "domain/repository.h"

#include <ctype.h>
#include <string.h>

#include "domain/resource.h"
#include "domain/vault.h"
#include "json/write.h"

enum {
    SHA1_HEX = 40,
    CHECKOUT_BYTES_MAX = 2048 /* as JSON: a branch's name with each byte escaped */,
    ENTRY_MORE = 64 /* what an entry grows by */
};

static const char *const CHECKOUTS[] = {"branch", "commit", NULL};
enum { C_BRANCH, C_COMMIT };

/* ---- the URL ---- */

static mg_rc check_url(struct mg_arena *a, struct mg_sv url, const char *place, struct mg_err *err)
{
    struct mg_sv normal;
    if (!mg_server_url_normal(a, url, &normal) || !mg_sv_starts(normal, "https://") || memchr(url.ptr, '?', url.len))
        return mg_err_set(err, MG_EINVAL,
                          "%s: must be an https:// URL of at most %d printable ASCII bytes without user, password, "
                          "query and fragment; a token goes into authorization_token",
                          place, MG_CREDENTIAL_URL_MAX);
    return MG_OK;
}

/* The last component of its path, without .git. */
static struct mg_sv repo_of(struct mg_sv url)
{
    struct mg_sv rest = mg_sv_from(url, mg_sv_find(url, '/') + 2);
    rest = mg_sv_from(rest, mg_sv_find(rest, '/'));
    while (rest.len && rest.ptr[rest.len - 1] == '/')
        rest.len--;
    if (mg_sv_ends(rest, ".git"))
        rest.len -= strlen(".git");
    const char *slash = rest.len ? memrchr(rest.ptr, '/', rest.len) : NULL;
    return slash ? mg_sv_n(slash + 1, (size_t)(rest.ptr + rest.len - slash - 1)) : MG_SV("");
}

/* ---- checkout ---- */

/* git-check-ref-format(1), for what stands behind refs/heads/. */
bool mg_branch_name_valid(struct mg_sv s)
{
    if (s.len == 0 || s.len > MG_REPOSITORY_BRANCH_MAX || s.ptr[0] == '-' || mg_sv_eqz(s, "@") || mg_sv_eqz(s, "HEAD"))
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i], next = i + 1 < s.len ? (unsigned char)s.ptr[i + 1] : '/';
        if (c <= ' ' || c == 0x7f || strchr("~^:?*[\\", c) || (c == '.' && (next == '.' || next == '/')) ||
            (c == '/' && (next == '/' || next == '.')) || (c == '@' && next == '{'))
            return false;
    }
    while (s.len) {
        struct mg_sv part = mg_sv_split(&s, '/');
        if (part.len == 0 || part.ptr[0] == '.' || mg_sv_ends(part, ".lock"))
            return false;
    }
    return true;
}

static bool is_commit(struct mg_sv s)
{
    bool good = s.len == SHA1_HEX;
    for (size_t i = 0; good && i < s.len; i++)
        good = isxdigit((unsigned char)s.ptr[i]);
    return good;
}

/* The wanted member and no other; *ret_place is its name in errors. */
static mg_rc take_checkout(struct mg_arena *a, const struct mg_json *v, const char *place, int *ret_kind,
                           struct mg_sv *ret, struct mg_err *err)
{
    static const struct mg_field_rule RULES[][3] = {
        [C_BRANCH] = {{.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
                      {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT},
                      {.name = NULL}},
        [C_COMMIT] = {{.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
                      {.name = "sha", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT},
                      {.name = NULL}},
    };
    const struct mg_json *m[2];
    char p[MG_PATH_MAX];
    mg_rc rc = mg_check_tag(a, v, place, CHECKOUTS, ret_kind, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, place, RULES[*ret_kind], m, err);
    if (rc < 0)
        return rc;
    *ret = mg_json_str(a, m[1]);
    if (*ret_kind == C_COMMIT && !is_commit(*ret))
        return mg_err_set(err, MG_EINVAL, "%s: must be the whole id of a commit, %d hexadecimal digits",
                          mg_place(p, place, "sha"), SHA1_HEX);
    if (*ret_kind == C_BRANCH && !mg_branch_name_valid(*ret))
        return mg_err_set(err, MG_EINVAL,
                          "%s: must be a branch as git names it, at most %d bytes, without refs/heads/ (see git "
                          "check-ref-format)",
                          mg_place(p, place, "name"), MG_REPOSITORY_BRANCH_MAX);
    return MG_OK;
}

static struct mg_sv checkout_text(struct mg_arena *a, int kind, struct mg_sv value)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(CHECKOUT_BYTES_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", CHECKOUTS[kind]);
    mg_jw_kstr(&w, kind == C_BRANCH ? "name" : "sha", value);
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

mg_rc mg_checkout_read(struct mg_arena *a, struct mg_sv checkout, struct mg_checkout *ret, struct mg_err *err)
{
    struct mg_json *v;
    struct mg_sv value;
    int kind = 0;
    *ret = (struct mg_checkout){.branch = MG_SV(""), .commit = MG_SV("")};
    if (checkout.len == 0)
        return MG_OK;
    mg_rc rc = mg_json_parse(a, checkout, &mg_json_api_limits, &v, err);
    if (rc >= 0)
        rc = take_checkout(a, v, "checkout", &kind, &value, err);
    if (rc >= 0)
        *(kind == C_BRANCH ? &ret->branch : &ret->commit) = value;
    return rc;
}

/* ---- bodies ---- */

static mg_rc take_path(struct mg_arena *a, const struct mg_json *path, const char *place, struct mg_resource_spec *x,
                       struct mg_err *err)
{
    char p[MG_PATH_MAX];
    struct mg_sv repo = repo_of(x->url);
    if (mg_given(path)) {
        x->mount_path = mg_json_str(a, path);
        return mg_mount_path_check(x->mount_path, mg_place(p, place, "mount_path"), err);
    }
    x->mount_path = mg_arena_printf(a, "/workspace/%.*s", MG_SV_ARG(repo));
    if (mg_mount_path_check(x->mount_path, "", NULL) >= 0)
        return MG_OK;
    return mg_err_set(err, MG_EINVAL,
                      "%s: is required here, since the URL's last component can be no folder's name in /workspace",
                      mg_place(p, place, "mount_path"));
}

mg_rc mg_repository_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_resource_spec *ret,
                          struct mg_err *err)
{
    enum { F_TYPE, F_URL, F_TOKEN, F_CHECKOUT, F_PATH, N_FIELDS };
    static const struct mg_field_rule RULES[] = {
        [F_TYPE] = {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        [F_URL] = {.name = "url", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT},
        [F_TOKEN] = {.name = "authorization_token", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT},
        [F_CHECKOUT] = {.name = "checkout", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        [F_PATH] = {.name = "mount_path", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT},
        [N_FIELDS] = {.name = NULL},
    };
    const struct mg_json *m[N_FIELDS];
    char p[MG_PATH_MAX];
    int kind = 0;
    struct mg_sv value;
    mg_rc rc = mg_check_object(a, v, place, RULES, m, err);
    if (rc < 0)
        return rc;
    *ret = (struct mg_resource_spec){.url = mg_json_str(a, m[F_URL])};
    rc = check_url(a, ret->url, mg_place(p, place, "url"), err);
    if (rc >= 0 && mg_given(m[F_TOKEN])) {
        ret->token = mg_json_str(a, m[F_TOKEN]);
        rc = mg_token_check(ret->token, mg_place(p, place, "authorization_token"), err);
    }
    if (rc >= 0 && mg_given(m[F_CHECKOUT])) {
        rc = take_checkout(a, m[F_CHECKOUT], mg_place(p, place, "checkout"), &kind, &value, err);
        if (rc >= 0)
            ret->checkout = checkout_text(a, kind, value);
    }
    return rc < 0 ? rc : take_path(a, m[F_PATH], place, ret, err);
}

mg_rc mg_repository_parse_update(struct mg_arena *a, const struct mg_json *body, struct mg_sv *ret_token,
                                 struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "authorization_token", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT},
        {.name = NULL},
    };
    const struct mg_json *m[1];
    mg_rc rc = mg_check_object(a, body, "", RULES, m, err);
    if (rc < 0)
        return rc;
    *ret_token = mg_json_str(a, m[0]);
    return mg_token_check(*ret_token, "authorization_token", err);
}

/* ---- tokens apart from the rest ---- */

static const char TOKEN[] = "authorization_token";

/* The entries without their tokens, or with these, of which null is none. */
static void write_entries(struct mg_jw *w, const struct mg_json *v, const struct mg_json *tokens)
{
    const struct mg_json *token = tokens ? tokens->child : NULL;
    mg_jw_arr(w);
    for (const struct mg_json *e = v->child; e; e = e->next, token = token ? token->next : NULL) {
        mg_jw_obj(w);
        for (const struct mg_json *m = e->child; m; m = m->next) {
            if (mg_sv_eqz(m->key, TOKEN))
                continue;
            mg_jw_key_sv(w, m->key);
            mg_jw_raw(w, m->raw);
        }
        if (mg_given(token))
            mg_jw_kraw(w, TOKEN, token->raw);
        mg_jw_obj_end(w);
    }
    mg_jw_arr_end(w);
}

static void write_tokens(struct mg_jw *w, const struct mg_json *v)
{
    mg_jw_arr(w);
    for (const struct mg_json *e = v->child; e; e = e->next) {
        const struct mg_json *token = mg_json_get(e, TOKEN);
        mg_jw_raw(w, mg_given(token) ? token->raw : MG_SV("null"));
    }
    mg_jw_arr_end(w);
}

void mg_repositories_split(struct mg_arena *a, const struct mg_json *v, struct mg_sv *ret_rest,
                           struct mg_sv *ret_tokens)
{
    size_t room = v->raw.len + (v->n + 2) * ENTRY_MORE;
    mg_auto(secret) struct mg_buf rest = MG_BUF_INIT(room), tokens = MG_BUF_INIT(room);
    struct mg_jw w = mg_jw_to(&rest), x = mg_jw_to(&tokens);
    bool any = false;
    *ret_rest = v->raw;
    *ret_tokens = mg_sv_n(NULL, 0);
    for (const struct mg_json *e = v->child; e; e = e->next)
        any = any || mg_given(mg_json_get(e, TOKEN));
    if (!any)
        return;
    write_entries(&w, v, NULL);
    *ret_rest = mg_arena_sv(a, mg_buf_view(&rest));
    if (mg_buf_reserve(&tokens, room) >= 0) /* in one piece: growing would leave copies */
        write_tokens(&x, v);
    *ret_tokens = mg_arena_sv(a, mg_buf_view(&tokens));
}

mg_rc mg_repositories_join(struct mg_arena *a, struct mg_sv rest, struct mg_sv tokens, struct mg_sv *ret,
                           struct mg_err *err)
{
    struct mg_json *v, *t;
    mg_rc rc = mg_json_parse(a, rest, &mg_json_api_limits, &v, err);
    if (rc >= 0)
        rc = mg_json_parse(a, tokens, &mg_json_api_limits, &t, err);
    if (rc < 0)
        return rc;
    size_t room = rest.len + tokens.len + (v->n + 2) * ENTRY_MORE;
    mg_auto(secret) struct mg_buf b = MG_BUF_INIT(room);
    struct mg_jw w = mg_jw_to(&b);
    rc = mg_buf_reserve(&b, room);
    if (rc < 0)
        return rc;
    write_entries(&w, v, t);
    *ret = mg_arena_sv(a, mg_buf_view(&b));
    return MG_OK;
}
