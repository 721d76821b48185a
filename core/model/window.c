#include "model/window.h"

static const struct {
    const char *prefix;
    int64_t tokens;
} WINDOWS[] = {
    {"claude-", 200000},    {"deepseek-", 128000}, {"glm-4.5", 128000}, {"glm-4.6", 200000},       {"kimi-k2", 256000},
    {"minimax-m2", 200000}, {"qwen3", 256000},     {"gpt-oss", 128000}, {"mango-offline", 200000},
};

int64_t mg_model_window(struct mg_sv model)
{
    int64_t found = MG_WINDOW_UNKNOWN;
    size_t longest = 0;
    for (size_t i = 0; i < sizeof(WINDOWS) / sizeof(WINDOWS[0]); i++) {
        size_t n = strlen(WINDOWS[i].prefix);
        if (n > longest && model.len >= n && mg_sv_eq_nocase(mg_sv_n(model.ptr, n), mg_sv_of(WINDOWS[i].prefix))) {
            longest = n;
            found = WINDOWS[i].tokens;
        }
    }
    return found;
}

/* Room that the next rounds of tools may need before a request is looked at again (CX2). */
static int64_t buffer_of(int64_t tokens, int64_t max_tokens)
{
    enum { SMALL = 13000, MIDDLE = 30000, LARGE = 50000, MIDDLE_FROM = 400000, LARGE_FROM = 800000, ROUND = 15000 };
    int64_t buffer = tokens >= LARGE_FROM ? LARGE : tokens >= MIDDLE_FROM ? MIDDLE : SMALL;
    return buffer > max_tokens + ROUND ? buffer : max_tokens + ROUND;
}

struct mg_window mg_window_of(int64_t tokens, int64_t max_tokens)
{
    struct mg_window w = {.tokens = tokens > MG_WINDOW_MIN ? tokens : MG_WINDOW_MIN};
    int64_t reserve = max_tokens < w.tokens / 2 ? max_tokens : w.tokens / 2;
    w.input_max = w.tokens - reserve;
    int64_t buffer = buffer_of(w.tokens, max_tokens);
    int64_t most = w.input_max / 5; /* a small window still has most of itself to use */
    w.trigger = w.input_max - (buffer < most ? buffer : most);
    return w;
}
