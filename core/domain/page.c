#include "domain/page.h"

#include <inttypes.h>

#include "base/buf.h"
#include "base/mem.h"
#include "crypto/hash.h"

/* A token is base64url of "DIGEST:n|b:POS:ID"; the digest covers the rest and the scope, so that half a token,
 * one of another list and one of other filters are all refused. It is no secret: what a forged cursor could reach is
 * what the key may read anyway. */
enum { TOKEN_MAX = 2048 /* characters: a path of 1,024 bytes is one */, DIGEST_LEN = 16 /* hex digits */ };

static void digest(struct mg_arena *a, struct mg_sv scope, struct mg_sv text, char out[MG_SHA256_HEX])
{
    mg_sha256_hex(mg_arena_printf(a, "mango-cursor-1\n%.*s\n%.*s", MG_SV_ARG(scope), MG_SV_ARG(text)), out);
    out[DIGEST_LEN] = '\0';
}

struct mg_sv mg_cursor_format(struct mg_arena *a, struct mg_sv scope, const struct mg_cursor *c)
{
    char hex[MG_SHA256_HEX];
    struct mg_sv text = mg_arena_printf(a, "%c:%" PRId64 ":%.*s", c->back ? 'b' : 'n', c->pos, MG_SV_ARG(c->id));
    digest(a, scope, text, hex);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TOKEN_MAX);
    mg_base64url_encode(&b, mg_arena_printf(a, "%s:%.*s", hex, MG_SV_ARG(text)));
    return mg_arena_sv(a, mg_buf_view(&b));
}

static mg_rc refuse(struct mg_err *err)
{
    return mg_err_set(
        err, MG_EINVAL,
        "page: this is not a cursor of this list with these filters; pass next_page (or prev_page) of its answer "
        "unchanged, with the same filters, or leave it out to begin at the start");
}

mg_rc mg_cursor_parse(struct mg_arena *a, struct mg_sv scope, struct mg_sv token, struct mg_cursor *ret,
                      struct mg_err *err)
{
    char hex[MG_SHA256_HEX];
    *ret = (struct mg_cursor){.given = false};
    if (token.len == 0)
        return MG_OK;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TOKEN_MAX);
    if (token.len > TOKEN_MAX || mg_base64_decode(&b, token) < 0)
        return refuse(err);
    struct mg_sv rest = mg_arena_sv(a, mg_buf_view(&b));
    if (rest.len < DIGEST_LEN + 3 || rest.ptr[DIGEST_LEN] != ':')
        return refuse(err);
    struct mg_sv given = mg_sv_n(rest.ptr, DIGEST_LEN), text = mg_sv_from(rest, DIGEST_LEN + 1);
    digest(a, scope, text, hex);
    if (!mg_sv_eqz(given, hex))
        return refuse(err);
    struct mg_sv way = mg_sv_split(&text, ':'), pos = mg_sv_split(&text, ':');
    *ret = (struct mg_cursor){.given = true, .back = mg_sv_eqz(way, "b"), .id = text};
    return mg_sv_to_i64(pos, &ret->pos) ? MG_OK : refuse(err);
}

mg_rc mg_limit_parse(struct mg_sv text, int fallback, int max, int *ret, struct mg_err *err)
{
    int64_t n = fallback;
    if (text.ptr && !mg_sv_to_i64(text, &n))
        return mg_err_set(err, MG_EINVAL, "limit: must be an integer from 1 to %d", max);
    if (n < 1 || n > max)
        return mg_err_set(err, MG_EINVAL, "limit: must be from 1 to %d", max);
    *ret = (int)n;
    return MG_OK;
}
