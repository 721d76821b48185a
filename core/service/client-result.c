#include "service/client-result.h"

#include "domain/content.h"
#include "json/json.h"
#include "json/write.h"
#include "run/step.h"
#include "tools/keep.h"

static const char NOTHING[] = "[{\"type\":\"text\",\"text\":\"(no output)\"}]";

struct out {
    struct mg_arena *a;
    struct mg_jw w;
    struct mg_buf b;
    size_t left; /* bytes of text that still have room */
    int n, dropped;
};

static void put_text(struct out *o, struct mg_sv text)
{
    mg_jw_obj(&o->w);
    mg_jw_kstrz(&o->w, "type", "text");
    mg_jw_kstr(&o->w, "text", text);
    mg_jw_obj_end(&o->w);
    o->n++;
}

static void put_raw(struct out *o, const struct mg_json *v)
{
    mg_jw_raw(&o->w, v->raw);
    o->n++;
}

static void take_text(struct out *o, const struct mg_json *v)
{
    struct mg_sv text = mg_json_get_str(o->a, v, "text");
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(2 * (MG_RESULT_HEAD + MG_RESULT_TAIL));
    if (text.len == 0)
        return; /* the endpoint refuses it */
    if (text.len <= o->left) {
        o->left -= text.len;
        put_raw(o, v);
        return;
    }
    if (o->left == 0) {
        o->dropped++;
        return;
    }
    o->left = o->left > MG_RESULT_HEAD + MG_RESULT_TAIL ? o->left - MG_RESULT_HEAD - MG_RESULT_TAIL : 0;
    mg_result_excerpt(&b, text, "the result is too long for the context");
    put_text(o, mg_buf_view(&b));
}

static void take_image(struct out *o, const struct mg_json *v)
{
    const struct mg_json *source = mg_json_get(v, "source");
    struct mg_err why = {0};
    if (mg_sv_eqz(mg_json_get_str(o->a, source, "type"), "base64") &&
        mg_image_check(mg_json_get_str(o->a, source, "media_type"), mg_json_get_str(o->a, source, "data"), &why) < 0)
        put_text(o, mg_arena_printf(o->a, "[an image is left out: %s]", why.text));
    else
        put_raw(o, v);
}

struct mg_sv mg_client_result(struct mg_arena *a, struct mg_sv content, size_t max)
{
    struct mg_json *arr;
    struct out o = {.a = a, .b = MG_BUF_INIT(MG_STEP_EVENT_BYTES), .left = max};
    struct mg_sv got = MG_SV(NOTHING);
    if (content.len == 0 || mg_json_parse(a, content, &mg_json_raw_limits, &arr, NULL) < 0)
        return got;
    o.w = mg_jw_to(&o.b);
    mg_jw_arr(&o.w);
    for (const struct mg_json *v = arr->child; v; v = v->next) {
        struct mg_sv type = mg_json_get_str(a, v, "type");
        if (mg_sv_eqz(type, "text"))
            take_text(&o, v);
        else if (mg_sv_eqz(type, "image"))
            take_image(&o, v);
        else
            put_raw(&o, v);
    }
    if (o.dropped)
        put_text(&o,
                 mg_arena_printf(a, "[%d more texts are left out: the result is too long for the context]", o.dropped));
    mg_jw_arr_end(&o.w);
    if (o.n && mg_buf_ok(&o.b))
        got = mg_arena_sv(a, mg_buf_view(&o.b));
    mg_buf_done(&o.b);
    return got;
}
