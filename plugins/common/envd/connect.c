#include "common/envd/connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

void connect_code(struct mango_sv json, char out[CONNECT_CODE_MAX])
{
    int64_t number;
    if (json_copy(json, "code", out, CONNECT_CODE_MAX))
        return;
    if (json_int(json, "code", &number))
        snprintf(out, CONNECT_CODE_MAX, "%lld", (long long)number);
    else
        snprintf(out, CONNECT_CODE_MAX, "unknown");
}

/* "canceled" (499) by the other side is a stream that broke off: nobody here has asked for it. */
static const struct {
    const char *code;
    int status;
    bool not_begun;
} codes[] = {
    {"canceled", 408, false},          {"unknown", 500, false},           {"invalid_argument", 400, true},
    {"deadline_exceeded", 504, false}, {"not_found", 404, true},          {"already_exists", 409, false},
    {"permission_denied", 403, true},  {"resource_exhausted", 429, true}, {"failed_precondition", 400, true},
    {"aborted", 409, false},           {"out_of_range", 400, true},       {"unimplemented", 501, true},
    {"internal", 500, false},          {"unavailable", 503, false},       {"data_loss", 500, false},
    {"unauthenticated", 401, true},
};
enum { N_CODES = sizeof(codes) / sizeof(codes[0]) };

int connect_status(const char *code)
{
    for (size_t i = 0; i < N_CODES; i++) {
        if (strcmp(codes[i].code, code) == 0)
            return codes[i].status;
    }
    int64_t number = strtol(code, NULL, 10);
    return number >= 400 && number <= 599 ? (int)number : 500;
}

bool connect_not_begun(const char *code)
{
    for (size_t i = 0; i < N_CODES; i++) {
        if (strcmp(codes[i].code, code) == 0)
            return codes[i].not_begun;
    }
    return false;
}

static bool on_end(struct connect *c, struct mango_sv json)
{
    struct mango_sv e = json_get(json, "error");
    c->ended = true;
    if (json_kind(e) != '{')
        return true;
    c->error = true;
    connect_code(e, c->code);
    (void)json_text(json_get(e, "message"), &c->words);
    return true;
}

static bool on_whole(struct connect *c)
{
    struct mango_sv json = text_view(&c->body);
    if (!json_valid(json))
        return false;
    if (c->head[0] == CONNECT_END)
        return on_end(c, json);
    c->stopped = !c->message(c->ctx, json);
    return true;
}

/* What is there instead is often an error page. */
static void strange(struct connect *c, const char *p, uint64_t n)
{
    c->bad = true;
    text_free(&c->words);
    text_bytes(&c->words, (const char *)c->head, c->have);
    text_bytes(&c->words, p, n < CONNECT_STRANGE_MAX ? n : CONNECT_STRANGE_MAX);
}

static bool on_head(struct connect *c)
{
    c->left = (uint32_t)c->head[1] << 24 | (uint32_t)c->head[2] << 16 | (uint32_t)c->head[3] << 8 | c->head[4];
    c->body.len = 0;
    return (c->head[0] == 0 || c->head[0] == CONNECT_END) && c->left <= CONNECT_MESSAGE_MAX;
}

bool connect_feed(struct connect *c, const char *p, uint64_t n)
{
    while (n > 0 && !c->bad && !c->stopped) {
        if (c->ended) { /* nothing may follow */
            c->bad = true;
            break;
        }
        if (c->have < CONNECT_HEAD) {
            c->head[c->have++] = (unsigned char)*p++;
            n--;
            if (c->have == CONNECT_HEAD && !on_head(c))
                strange(c, p, n);
        } else {
            uint64_t take = n < c->left ? n : c->left;
            text_bytes(&c->body, p, take);
            c->left -= (uint32_t)take;
            p += take;
            n -= take;
        }
        if (c->bad || c->have < CONNECT_HEAD || c->left > 0)
            continue;
        c->have = 0;
        if (c->body.bad || !on_whole(c)) {
            c->bad = true;
            text_free(&c->words);
            text_sv(&c->words, (struct mango_sv){c->body.ptr, c->body.len < CONNECT_STRANGE_MAX ? c->body.len
                                                                                                : CONNECT_STRANGE_MAX});
        }
    }
    return !c->bad && !c->stopped;
}

void connect_free(struct connect *c)
{
    text_free(&c->words);
    text_free(&c->body);
}

void connect_envelope(struct text *out, struct mango_sv json)
{
    const char head[CONNECT_HEAD] = {0, (char)(json.len >> 24), (char)(json.len >> 16), (char)(json.len >> 8),
                                     (char)json.len};
    text_bytes(out, head, sizeof(head));
    text_sv(out, json);
}
