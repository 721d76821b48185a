#include "worker/toolbox.h"

#include "json/write.h"
#include "tools/result.h"

#define DOOR __attribute__((visibility("default")))

struct mg_toolbox {
    const struct mg_toolbox_opts *opts;
    char *session_id;
    struct mg_workspace *workspace;
    void *session; /* of the executor */
    bool open;     /* the executor's */
};

/* What a tool of the embedding program says; blocks are joined as they come. */
struct mango_tool_reply {
    struct mg_buf blocks;
    bool is_error;
};

/* ---- replies ---- */

static void next_block(struct mango_tool_reply *r)
{
    if (r->blocks.len)
        (void)mg_buf_char(&r->blocks, ',');
}

DOOR int32_t mango_reply_text(struct mango_tool_reply *reply, const char *text, size_t len)
{
    mg_auto(buf) struct mg_buf shown = MG_BUF_INIT(MG_TOOL_CONTENT_MAX);
    struct mg_jw w = mg_jw_to(&reply->blocks);
    if (mg_tool_show(&shown, mg_sv_n(text, len)) < 0)
        return MG_ETOOBIG;
    next_block(reply);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "text");
    mg_jw_kstr(&w, "text", shown.len ? mg_buf_view(&shown) : MG_SV("(no output)"));
    mg_jw_obj_end(&w);
    return mg_buf_ok(&reply->blocks) ? MG_OK : MG_ETOOBIG;
}

DOOR int32_t mango_reply_block(struct mango_tool_reply *reply, const char *json, size_t len)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    if (mg_json_parse(a, mg_sv_n(json, len), &mg_json_raw_limits, &v, NULL) < 0 || !mg_json_is(v, MG_JSON_OBJECT))
        return MG_EINVAL;
    next_block(reply);
    return mg_buf_append(&reply->blocks, json, len);
}

DOOR void mango_reply_error(struct mango_tool_reply *reply)
{
    reply->is_error = true;
}

/* Makes the reply a result. failed: the tool said so by its return value. */
static mg_rc reply_end(struct mango_tool_reply *reply, bool failed, const char *name, struct mg_tool_result *ret)
{
    mg_rc rc = MG_OK;
    ret->is_error = reply->is_error || failed;
    if (!mg_buf_ok(&reply->blocks))
        rc = mg_tool_textf(ret, true, "the result of %s is over %d bytes", name, MG_TOOL_CONTENT_MAX);
    else if (reply->blocks.len == 0 && failed)
        rc = mg_tool_textf(ret, true, "the tool %s failed and said nothing", name);
    else if (reply->blocks.len == 0)
        rc = mg_tool_text(ret, ret->is_error, MG_SV(""));
    else
        rc = mg_buf_printf(&ret->content, "[%s]", reply->blocks.ptr);
    mg_buf_done(&reply->blocks);
    return rc;
}

/* ---- the toolbox ---- */

static mg_rc open_executor(struct mg_toolbox *b, struct mg_err *err)
{
    char text[MG_ERR_TEXT_MAX] = "";
    int32_t rc = b->opts->executor->open(b->opts->executor->ctx, b->session_id, &b->session, text, sizeof(text));
    b->open = rc == 0;
    return b->open ? MG_OK : mg_err_set(err, MG_EUNAVAIL, "the executor: %s", text);
}

mg_rc mg_toolbox_open(const struct mg_toolbox_opts *o, const char *session_id, struct mg_toolbox **ret,
                      struct mg_err *err)
{
    struct mg_toolbox *b = mg_xcalloc(1, sizeof(*b));
    b->opts = o;
    b->session_id = mg_xstrdup(session_id);
    mg_rc rc = o->executor ? open_executor(b, err) : mg_workspace_open(&o->workspace, &b->workspace, err);
    if (rc < 0) {
        mg_toolbox_close(b);
        return rc;
    }
    *ret = b;
    return MG_OK;
}

void mg_toolbox_close(struct mg_toolbox *b)
{
    if (!b)
        return;
    if (b->open)
        b->opts->executor->close(b->session);
    mg_workspace_close(b->workspace);
    free(b->session_id);
    free(b);
}

static const struct mango_tool *find(const struct mg_toolbox *b, const char *name)
{
    for (unsigned i = 0; i < b->opts->n_tools; i++)
        if (strcmp(b->opts->tools[i].name, name) == 0)
            return &b->opts->tools[i];
    return NULL;
}

bool mg_toolbox_has(const struct mg_toolbox *b, const char *name)
{
    if (find(b, name))
        return true;
    return b->open ? b->opts->executor->has(b->session, name) == 1 : mg_workspace_has(mg_sv_of(name));
}

uint32_t mg_toolbox_timeout_ms(const struct mg_toolbox *b, const char *name)
{
    const struct mango_tool *t = find(b, name);
    if (t)
        return t->timeout_ms ? t->timeout_ms : MG_TOOLBOX_CUSTOM_MS;
    return b->open && b->opts->executor->timeout_ms ? b->opts->executor->timeout_ms : MG_TOOLBOX_BUILTIN_MS;
}

mg_rc mg_toolbox_call(struct mg_toolbox *b, const struct mg_call *c, struct mg_cancel *cancel,
                      struct mg_tool_result *ret, struct mg_err *err)
{
    const struct mango_tool *t = find(b, c->name);
    struct mango_tool_reply reply = {.blocks = MG_BUF_INIT(MG_TOOL_CONTENT_MAX)};
    const struct mango_tool_call call = {
        .struct_size = sizeof(call),
        .cancel_fd = mg_cancel_fd(cancel),
        .session_id = b->session_id,
        .id = c->id,
        .name = c->name,
        .input = c->input,
        .input_len = c->input_len,
    };
    if (!t && !b->open)
        return mg_workspace_call(b->workspace, mg_sv_of(c->name), mg_sv_n(c->input, c->input_len), cancel, ret, err);
    ret->content = MG_BUF_INIT(MG_TOOL_CONTENT_MAX + 2);
    int32_t rc = t ? t->run(t->ctx, &call, &reply) : b->opts->executor->call(b->session, &call, &reply);
    mg_rc made = reply_end(&reply, rc != 0, c->name, ret);
    if (mg_cancel_fired(cancel))
        return mg_err_set(err, MG_ECANCELED, "cancelled");
    return made;
}
