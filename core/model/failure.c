#include "model/failure.h"

#include <ctype.h>

#include "base/utf8.h"

/* The endpoint's error types, which also come as events inside of a stream. */
static const struct {
    const char *type;
    enum mg_model_fail fail;
} fails_by_type[] = {
    {"overloaded_error", MG_MODEL_RETRY_OVERLOADED},
    {"rate_limit_error", MG_MODEL_RETRY_RATE},
    {"api_error", MG_MODEL_RETRY_SERVER},
    {"timeout_error", MG_MODEL_RETRY_SERVER},
    {"request_too_large", MG_MODEL_TOO_LARGE},
    {"billing_error", MG_MODEL_BILLING},
    {"invalid_request_error", MG_MODEL_PERMANENT},
    {"authentication_error", MG_MODEL_PERMANENT},
    {"permission_error", MG_MODEL_PERMANENT},
    {"not_found_error", MG_MODEL_PERMANENT},
};

/* Texts of plain 400 answers that mean something of their own; the endpoint has no type for them. */
static const struct {
    const char *text;
    enum mg_model_fail fail;
} fails_by_text[] = {
    {"prompt is too long", MG_MODEL_TOO_LARGE},
    {"exceed context limit", MG_MODEL_TOO_LARGE},
    {"credit balance is too low", MG_MODEL_BILLING},
};

static bool contains(struct mg_sv hay, const char *needle)
{
    return hay.len > 0 && memmem(hay.ptr, hay.len, needle, strlen(needle)) != NULL;
}

static bool fail_by_text(struct mg_sv message, enum mg_model_fail *ret)
{
    for (size_t i = 0; i < sizeof(fails_by_text) / sizeof(fails_by_text[0]); i++) {
        if (contains(message, fails_by_text[i].text)) {
            *ret = fails_by_text[i].fail;
            return true;
        }
    }
    return false;
}

static bool fail_by_type(struct mg_sv type, enum mg_model_fail *ret)
{
    for (size_t i = 0; i < sizeof(fails_by_type) / sizeof(fails_by_type[0]); i++) {
        if (mg_sv_eqz(type, fails_by_type[i].type)) {
            *ret = fails_by_type[i].fail;
            return true;
        }
    }
    return false;
}

enum mg_model_fail mg_model_fail_of(int status, struct mg_sv type, struct mg_sv message)
{
    enum mg_model_fail fail;
    if ((status == 0 || status == 400) && fail_by_text(message, &fail))
        return fail;
    if (status == 402)
        return MG_MODEL_BILLING;
    if (status == 413)
        return MG_MODEL_TOO_LARGE;
    if (status == 429)
        return MG_MODEL_RETRY_RATE;
    if (status == 529)
        return MG_MODEL_RETRY_OVERLOADED;
    bool repeatable = status == 408 || status == 409 || status >= 500;
    bool vague = status != 0 && !repeatable; /* there the status says more than "api_error" does */
    if (fail_by_type(type, &fail) && !(repeatable && fail == MG_MODEL_PERMANENT) &&
        !(vague && fail == MG_MODEL_RETRY_SERVER))
        return fail;
    if (status == 0 || repeatable)
        return MG_MODEL_RETRY_SERVER;
    return MG_MODEL_PERMANENT;
}

static bool is_key_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.' || c == '+' || c == '/' || c == '=' ||
           c == '~';
}

/* Length of a credential that begins at s, or 0. *ret_keep is how much of its front may be shown. */
static size_t credential_at(struct mg_sv s, struct mg_sv secret, size_t *ret_keep)
{
    static const char *const marks[] = {"sk-", "Bearer ", "bearer ", "Basic ", "x-api-key: ", "api_key=", "token="};
    enum { KEY_MIN = 8 /* characters; shorter words behind a mark are prose */ };
    *ret_keep = 0;
    if (secret.len > 0 && s.len >= secret.len && memcmp(s.ptr, secret.ptr, secret.len) == 0)
        return secret.len;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        size_t mark = strlen(marks[i]), n = mark;
        if (!mg_sv_starts(s, marks[i]))
            continue;
        while (n < s.len && is_key_char(s.ptr[n]))
            n++;
        *ret_keep = mark;
        if (n - mark >= KEY_MIN)
            return n;
    }
    return 0;
}

void mg_model_clean(char *out, size_t size, struct mg_sv text, struct mg_sv secret)
{
    enum { LOOK_MAX = 16 * 1024 /* bytes of the text that are looked at; the result is far shorter */ };
    if (text.len > LOOK_MAX)
        text.len = LOOK_MAX;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(8 * LOOK_MAX);
    mg_auto(buf) struct mg_buf valid = MG_BUF_INIT(8 * LOOK_MAX);
    for (size_t i = 0; i < text.len;) {
        size_t keep, n = credential_at(mg_sv_from(text, i), secret, &keep);
        if (n > 0) {
            mg_buf_append(&b, text.ptr + i, keep);
            mg_buf_str(&b, "***");
            i += n;
            continue;
        }
        unsigned char c = (unsigned char)text.ptr[i++];
        mg_buf_char(&b, c < 0x20 || c == 0x7f ? ' ' : (char)c);
    }
    mg_utf8_clean(&valid, mg_buf_view(&b));
    struct mg_sv v = mg_sv_trim(mg_buf_view(&valid));
    size_t n = mg_utf8_floor(v, size - 1);
    memcpy(out, v.ptr, n);
    out[n] = '\0';
}
