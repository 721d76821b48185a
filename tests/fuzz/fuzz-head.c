/* Head and body of a request: byte-wise arrival gives what whole arrival gives. */
#include <string.h>

#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "http/body.h"
#include "http/head.h"

enum { BODY_MAX = 65536 };

static enum mg_head_result parse(struct mg_sv in, size_t *scanned, struct mg_head *h, size_t *used)
{
    struct mg_err err = {0};
    int status = 0;
    enum mg_head_result r = mg_head_parse(in, scanned, h, used, &status, &err);
    fuzz_check(r != MG_HEAD_BAD || (status >= 400 && status < 600 && err.text[0]),
               "a bad head has a status and a text");
    fuzz_check(r != MG_HEAD_DONE || (*used > 0 && *used <= in.len), "the head's length lies in the input");
    return r;
}

static enum mg_body_result feed(const struct mg_head *h, struct mg_sv in, size_t step, struct mg_buf *out)
{
    struct mg_body b;
    enum mg_body_result r = MG_BODY_MORE;
    if (h->chunked)
        mg_body_chunked(&b);
    else
        mg_body_length(&b, h->has_length ? h->length : 0);
    for (size_t at = 0; at < in.len && r == MG_BODY_MORE;) {
        struct mg_sv piece = mg_sv_n(in.ptr + at, in.len - at < step ? in.len - at : step);
        size_t used = 0;
        r = mg_body_feed(&b, piece, BODY_MAX, out, &used);
        fuzz_check(used <= piece.len, "no more is used than was given");
        fuzz_check(used > 0 || r != MG_BODY_MORE, "the body goes on");
        at += used;
    }
    return r;
}

static void check_body(const struct mg_head *h, struct mg_sv rest)
{
    struct mg_buf whole = MG_BUF_INIT(BODY_MAX), bytes = MG_BUF_INIT(BODY_MAX);
    enum mg_body_result a = feed(h, rest, rest.len, &whole), b = feed(h, rest, 1, &bytes);
    fuzz_check(a == b, "the cuts of a body make no difference to its end");
    if (a == MG_BODY_DONE)
        fuzz_check(whole.len == bytes.len && (whole.len == 0 || memcmp(whole.ptr, bytes.ptr, whole.len) == 0),
                   "nor to its content");
    mg_buf_done(&whole);
    mg_buf_done(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mg_head whole, bytes;
    struct mg_sv in = fuzz_text(data, size);
    size_t scanned = 0, used_whole = 0, used_bytes = 0;
    enum mg_head_result a = parse(in, &scanned, &whole, &used_whole), b = MG_HEAD_MORE;
    scanned = 0;
    for (size_t n = 1; n <= in.len && b == MG_HEAD_MORE; n++)
        b = parse(mg_sv_n(in.ptr, n), &scanned, &bytes, &used_bytes);
    fuzz_check(a != MG_HEAD_DONE || (b == MG_HEAD_DONE && used_whole == used_bytes),
               "byte by byte gives the same head");
    if (a == MG_HEAD_DONE)
        check_body(&whole, mg_sv_from(in, used_whole));
    return 0;
}
