/* Uploads: multipart/form-data. The first byte says how the stream is cut, the second how long the boundary is; however it is cut, the parts
 * are the same. */
#include <string.h>

#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "http/multipart.h"

enum { SEEN_MAX = 1024 * 1024, BOUNDARY_LENGTHS = 80 };

struct seen {
    struct mg_buf all;
    bool open;
    int parts;
};

static mg_rc on_part(void *ctx, const struct mg_part *p, struct mg_err *err)
{
    struct seen *s = ctx;

    (void)err;
    fuzz_check(!s->open, "a part begins behind the end of the last one");
    fuzz_check(p->name.ptr && !memchr(p->name.ptr, 0, p->name.len), "a part has a name without NUL");
    fuzz_check(++s->parts <= MG_MULTIPART_PARTS_MAX, "a body has a bounded number of parts");
    s->open = true;
    (void)mg_buf_char(&s->all, '[');
    (void)mg_buf_sv(&s->all, p->name);
    (void)mg_buf_char(&s->all, '|');
    (void)mg_buf_sv(&s->all, p->filename);
    (void)mg_buf_char(&s->all, '|');
    return MG_OK;
}

static mg_rc on_data(void *ctx, struct mg_sv data, struct mg_err *err)
{
    struct seen *s = ctx;

    (void)err;
    fuzz_check(s->open, "content belongs to a part");
    (void)mg_buf_sv(&s->all, data);
    return MG_OK;
}

static mg_rc on_end(void *ctx, struct mg_err *err)
{
    struct seen *s = ctx;

    (void)err;
    fuzz_check(s->open, "a part ends once");
    s->open = false;
    (void)mg_buf_char(&s->all, ']');
    return MG_OK;
}

static mg_rc read_body(struct mg_sv type, struct mg_sv body, size_t step, struct seen *ret)
{
    struct mg_multipart_ops ops = {.part = on_part, .data = on_data, .end = on_end, .ctx = ret};
    mg_auto(multipart) struct mg_multipart *m = NULL;
    struct mg_err err = {0};
    mg_rc rc = mg_multipart_new(type, &ops, &m, &err);

    for (size_t at = 0; at < body.len && rc == MG_OK; at += step)
        rc = mg_multipart_feed(m, mg_sv_n(body.ptr + at, body.len - at < step ? body.len - at : step), &err);
    if (rc == MG_OK)
        rc = mg_multipart_finish(m, &err);
    fuzz_check_err(rc, &err);
    fuzz_check(rc != MG_OK || !ret->open, "a body that is whole has no open part");
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char type[BOUNDARY_LENGTHS + 64];

    if (size < 2)
        return 0;
    size_t step = (size_t)data[0] + 1, at = 2;
    size_t n = data[1] % BOUNDARY_LENGTHS < size - at ? data[1] % BOUNDARY_LENGTHS : size - at;
    int len = snprintf(type, sizeof(type), "multipart/form-data; boundary=%.*s", (int)n, (const char *)data + at);
    struct mg_sv body = fuzz_text(data + at + n, size - at - n);
    struct seen pieces = {.all = MG_BUF_INIT(SEEN_MAX)}, whole = {.all = MG_BUF_INIT(SEEN_MAX)};
    mg_rc a = read_body(mg_sv_n(type, (size_t)len), body, step, &pieces);
    mg_rc b = read_body(mg_sv_n(type, (size_t)len), body, body.len + 1, &whole);
    fuzz_check(a == b, "the cuts do not change the verdict");
    fuzz_check(a != MG_OK || mg_sv_eq(mg_buf_view(&pieces.all), mg_buf_view(&whole.all)), "nor the parts");
    mg_buf_done(&pieces.all);
    mg_buf_done(&whole.all);
    return 0;
}
