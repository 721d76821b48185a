/* Throughput of the JSON parser and writer: prints MB/s for typical texts. Times are the best of several runs, since the
 * machine has other things to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "json/json.h"
#include "json/write.h"

enum { TEXT_BYTES = 8 * 1024 * 1024, RUNS = 5 };

static const struct mg_json_limits roomy = {.max_depth = 64, .max_nodes = 20000000, .strict = true};

static void fill(struct mg_buf *b, const char *piece)
{
    (void)mg_buf_char(b, '[');
    while (b->len < TEXT_BYTES)
        (void)mg_buf_printf(b, "%s%s", b->len > 1 ? "," : "", piece);
    (void)mg_buf_char(b, ']');
}

static void fill_string(struct mg_buf *b, const char *piece)
{
    (void)mg_buf_char(b, '"');
    while (b->len < TEXT_BYTES)
        (void)mg_buf_str(b, piece);
    (void)mg_buf_char(b, '"');
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void do_parse(struct mg_sv text)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v;

    must(mg_json_parse(a, text, &roomy, &v, NULL) == MG_OK);
}

static void do_check(struct mg_sv text)
{
    must(mg_json_check(text, 64, NULL) == MG_OK);
}

static void do_escape(struct mg_sv text)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(SIZE_MAX / 2);

    mg_json_escape(&b, text);
    must(mg_buf_ok(&b));
}

static double megabytes_per_second(void (*fn)(struct mg_sv), struct mg_sv text)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < RUNS; i++) {
        uint64_t start = mg_now_ns();
        fn(text);
        uint64_t took = mg_now_ns() - start;
        best = took < best ? took : best;
    }

    return (double)text.len * 1000 / (double)(best ? best : 1);
}

static void row(const char *name, struct mg_sv text)
{
    printf("%-22s parse %7.0f MB/s   check %7.0f MB/s   escape %7.0f MB/s\n", name,
           megabytes_per_second(do_parse, text), megabytes_per_second(do_check, text),
           megabytes_per_second(do_escape, text));
}

int main(void)
{
    static const struct {
        const char *name, *piece;
        bool string;
    } texts[] = {
        {"one long ASCII string", "The quick brown fox jumps over the lazy dog. ", true},
        {"one long UTF-8 string", "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", true},
        {"one escaped string", "line\\n\\\"quoted\\\" ", true},
        {"events",
         "{\"id\":\"sevt_01J\",\"type\":\"agent.message\",\"content\":[{\"type\":\"text\",\"text\":\"I looked at the "
         "file and "
         "found three functions that nobody calls.\"}],\"usage\":{\"input_tokens\":1234,\"output_tokens\":56}}",
         false},
        {"small numbers", "1,2,34,-5,6.5", false},
        {"wide objects", "{\"a1\":0,\"a2\":0,\"a3\":0,\"a4\":0,\"a5\":0,\"a6\":0,\"a7\":0,\"a8\":0,\"a9\":0,\"a10\":0}",
         false},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        mg_auto(buf) struct mg_buf b = MG_BUF_INIT(2 * TEXT_BYTES);
        if (texts[i].string)
            fill_string(&b, texts[i].piece);
        else
            fill(&b, texts[i].piece);
        row(texts[i].name, mg_buf_view(&b));
    }
    return 0;
}
