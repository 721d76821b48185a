/* Error details. Texts are formatted aside first, so that err's own text may be an argument. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const char *const rc_names[] = {
    "MG_OK",      "MG_EINVAL", "MG_EAUTH",    "MG_EDENIED",  "MG_ENOTFOUND", "MG_ECONFLICT",   "MG_EPRECOND",
    "MG_ETOOBIG", "MG_ERATE",  "MG_EUNAVAIL", "MG_ETIMEOUT", "MG_EINTERNAL", "MG_ECANCELED",   "MG_EFENCED",
    "MG_EGONE",   "MG_EIO",    "MG_ECONFIG",  "MG_EMETHOD",  "MG_EMEDIA",    "MG_EURITOOLONG", "MG_EHEADERS",
};

const char *mg_rc_name(mg_rc rc)
{
    /* Widened before the sign changes: rc may be any int. */
    int64_t i = -(int64_t)rc;

    return i >= 0 && i < (int64_t)(sizeof(rc_names) / sizeof(rc_names[0])) ? rc_names[i] : "MG_E?";
}

/* Copies at most the room there is, never half a character. dst has MG_ERR_TEXT_MAX bytes. */
static void put_text(char *dst, size_t used, const char *src)
{
    struct mg_sv s = mg_sv_of(src);
    size_t n = mg_utf8_floor(s, MG_ERR_TEXT_MAX - 1 - used);

    memcpy(dst + used, src, n);
    dst[used + n] = '\0';
}

__attribute__((format(printf, 2, 0))) static void format(char out[MG_ERR_TEXT_MAX], const char *fmt, va_list ap)
{
    int n = vsnprintf(out, MG_ERR_TEXT_MAX, fmt, ap);

    if (n < 0)
        out[0] = '\0';
    else if (n >= MG_ERR_TEXT_MAX)
        out[mg_utf8_whole(mg_sv_n(out, MG_ERR_TEXT_MAX - 1))] = '\0';
}

static void fill(struct mg_err *err, mg_rc rc, const char *code, const char *text)
{
    char kept_code[sizeof(err->code)];

    (void)snprintf(kept_code, sizeof(kept_code), "%s", code);
    err->rc = rc;
    err->retry_after_s = 0;
    err->details[0] = '\0';
    err->type = err->members = NULL;
    memcpy(err->code, kept_code, sizeof(kept_code));
    put_text(err->text, 0, text);
}

mg_rc mg_err_set(struct mg_err *err, mg_rc rc, const char *fmt, ...)
{
    char text[MG_ERR_TEXT_MAX];
    va_list ap;

    if (!err)
        return rc;
    va_start(ap, fmt);
    format(text, fmt, ap);
    va_end(ap);
    fill(err, rc, "", text);
    return rc;
}

mg_rc mg_err_code(struct mg_err *err, mg_rc rc, const char *code, const char *fmt, ...)
{
    char text[MG_ERR_TEXT_MAX];
    va_list ap;

    if (!err)
        return rc;
    va_start(ap, fmt);
    format(text, fmt, ap);
    va_end(ap);
    fill(err, rc, code, text);
    return rc;
}

mg_rc mg_err_wrap(struct mg_err *err, mg_rc rc, const char *fmt, ...)
{
    char old[MG_ERR_TEXT_MAX], context[MG_ERR_TEXT_MAX];
    va_list ap;

    if (!err)
        return rc;
    va_start(ap, fmt);
    format(context, fmt, ap);
    va_end(ap);
    memcpy(old, err->text, sizeof(old));
    old[sizeof(old) - 1] = '\0';
    err->rc = rc;
    put_text(err->text, 0, context);
    put_text(err->text, strlen(err->text), ": ");
    put_text(err->text, strlen(err->text), old);
    return rc;
}

mg_rc mg_err_errno(struct mg_err *err, int errnum, const char *fmt, ...)
{
    mg_rc rc = errnum == ENOENT ? MG_ENOTFOUND : MG_EIO;
    char context[MG_ERR_TEXT_MAX], reason[128];
    va_list ap;

    if (!err)
        return rc;
    va_start(ap, fmt);
    format(context, fmt, ap);
    va_end(ap);
    fill(err, rc, "", strerror_r(errnum, reason, sizeof(reason)));
    return mg_err_wrap(err, rc, "%s", context);
}
