#include "tools/search.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "tools/names.h"
#include "tools/result.h"

static struct mg_sv trim_slashes(struct mg_sv s)
{
    while (s.len > 1 && s.ptr[s.len - 1] == '/')
        s.len--;
    while (mg_sv_starts(s, "./"))
        s = mg_sv_from(s, 2);
    return s;
}

/* Absolute folder and the prefix of shown paths for a folder argument. */
static void place(struct mg_tool_call *c, struct mg_sv path, struct mg_search *ret)
{
    const char *root = c->tools->ops->root(c->tools->box);
    bool top = path.len == 0 || mg_sv_eqz(path, ".");

    if (top) {
        ret->dir = mg_arena_sv(c->arena, mg_sv_of(root));
        ret->shown = MG_SV("");
        return;
    }
    bool absolute = path.ptr[0] == '/';
    ret->dir = absolute ? mg_arena_sv(c->arena, path) : mg_arena_printf(c->arena, "%s/%.*s", root, MG_SV_ARG(path));
    ret->shown = path.ptr[path.len - 1] == '/' ? path : mg_arena_printf(c->arena, "%.*s/", MG_SV_ARG(path));
}

static void place_file(struct mg_tool_call *c, struct mg_sv path, struct mg_search *ret)
{
    const char *slash = memrchr(path.ptr, '/', path.len);
    size_t n = slash ? (size_t)(slash - path.ptr) : 0;

    place(c, slash && n == 0 ? MG_SV("/") : mg_sv_n(path.ptr, n), ret);
    ret->file = mg_arena_sv(c->arena, slash ? mg_sv_from(path, n + 1) : path);
}

mg_rc mg_search_start(struct mg_tool_call *c, const struct mg_json *arg, bool files, struct mg_search *ret,
                      bool *ret_ready)
{
    struct mg_sv path = MG_SV("");
    struct mg_file_stat st = {0};

    *ret = (struct mg_search){.ended = false};
    *ret_ready = true;
    if (arg && mg_json_str(c->arena, arg).len) {
        *ret_ready = false;
        if (mg_name_take(c->arena, mg_json_str(c->arena, arg), "path", &path, c->err) < 0)
            return mg_tool_text(c->ret, true, mg_sv_of(c->err->text));
        mg_rc rc = c->tools->ops->stat(c->tools->box, path.ptr, &st, c->err);
        if (rc < 0)
            return mg_tool_failed(c->ret, rc, c->err, "cannot search", path);
        if (st.kind != 'd' && !(files && st.kind == 'f'))
            return mg_tool_textf(c->ret, true, "cannot search %.*s: it is not a folder%s", MG_SV_ARG(path),
                                 files ? " or a regular file" : "");
        *ret_ready = true;
        path = trim_slashes(path);
    }
    if (st.kind == 'f')
        place_file(c, path, ret);
    else
        place(c, path, ret);
    return MG_OK;
}

/* The last error line in front of "rc N", as text for the model. */
static void last_error(const struct mg_search *s, const char *rc_at, char out[200])
{
    struct mg_sv errors = mg_sv_trim(mg_sv_n(s->end, rc_at ? (size_t)(rc_at - s->end) : strlen(s->end)));
    const char *nl = memrchr(errors.ptr, '\n', errors.len);

    if (nl)
        errors = mg_sv_from(errors, (size_t)(nl + 1 - errors.ptr));
    (void)snprintf(out, 200, "%.*s", (int)mg_utf8_floor(errors, 199), errors.ptr);
}

static const char *missing(int code)
{
    switch (code) {
    case MG_SEARCH_NO_FOLDER:
        return "the folder cannot be entered";
    case MG_SEARCH_NO_FIND:
        return "the sandbox has no find: install findutils (or busybox) there, or search with bash";
    case MG_SEARCH_NO_GREP:
        return "the sandbox has no grep: install it there, or search with bash";
    case 126:
    case 127:
        return "the sandbox has no usable /bin/sh";
    default:
        return NULL;
    }
}

/* Reads the end text. */
static void judge_end(struct mg_search *s, char why[MG_SEARCH_WHY_MAX], bool *ret_failed)
{
    char error[200];
    const char *at = strstr(s->end, "rc "), *next;
    long rc = -1;

    for (; at && (next = strstr(at + 1, "rc ")); at = next)
        ;
    if (at)
        rc = strtol(at + 3, NULL, 10);
    last_error(s, at, error);
    if (rc == MG_SEARCH_BAD_PATTERN) {
        *ret_failed = true;
        (void)snprintf(why, MG_SEARCH_WHY_MAX, "the pattern is not a valid extended regular expression: %s", error);
    } else if (rc != 0) {
        (void)snprintf(why, MG_SEARCH_WHY_MAX, "some of it could not be searched%s%s", error[0] ? ", last: " : "",
                       error);
    }
}

static void judge(struct mg_search *s, const struct mg_exec_status *st, char why[MG_SEARCH_WHY_MAX], bool *ret_failed)
{
    const char *reason = st->exited && !s->ended ? missing(st->exit_code) : NULL;

    if (reason) {
        *ret_failed = true;
        (void)snprintf(why, MG_SEARCH_WHY_MAX, "%s", reason);
    } else if (st->timed_out) {
        (void)snprintf(why, MG_SEARCH_WHY_MAX, "it was stopped after %d s", MG_TOOL_SEARCH_MS / 1000);
    } else if (s->ended) {
        judge_end(s, why, ret_failed);
    } else if (st->signal > 0) {
        (void)snprintf(why, MG_SEARCH_WHY_MAX, "the search was killed by signal %d", st->signal);
    } else if (st->oom) {
        (void)snprintf(why, MG_SEARCH_WHY_MAX, "the search was ended for want of memory");
    } else {
        (void)snprintf(why, MG_SEARCH_WHY_MAX, "the search ended before its end was reported (status %d)",
                       st->exited ? st->exit_code : -1);
    }
}

mg_rc mg_search_run(struct mg_tool_call *c, struct mg_search *s, const char *const *argv, mg_exec_sink *sink, void *ctx,
                    char ret_why[MG_SEARCH_WHY_MAX], bool *ret_failed)
{
    static const char *const ENV[] = {"LC_ALL=C.UTF-8", NULL};
    struct mg_exec_status st = {0};
    struct mg_exec_req req = {.argv = argv,
                              .env = ENV,
                              .deadline_ns = mg_now_ns() + (uint64_t)MG_TOOL_SEARCH_MS * 1000000,
                              .cancel = c->cancel,
                              .sink = sink,
                              .sink_ctx = ctx};

    ret_why[0] = '\0';
    *ret_failed = false;
    mg_rc rc = c->tools->ops->exec(c->tools->box, &req, &st, c->err);
    if (rc == MG_ETIMEOUT)
        st.timed_out = true;
    else if (rc < 0)
        return rc;
    if (st.cancelled)
        return mg_err_set(c->err, MG_ECANCELED, "cancelled");
    judge(s, &st, ret_why, ret_failed);
    return MG_OK;
}
