#include "http/multipart.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"

/* A boundary's delimiter begins with the only CR that it holds, so that a mismatch never leads back into it: what was matched is content,
 * and the byte at hand is looked at anew. */
enum {
    BOUNDARY_MAX = 70,         /* characters: RFC 2046 */
    DELIMITER_HEAD = 4,        /* "\r\n--" */
    NAME_MAX_BYTES = 256,      /* of a part's name */
    FILENAME_MAX_BYTES = 4096, /* of its filename, decoded */
    LINE_PADDING_MAX = 64,     /* spaces behind a boundary */
};

enum state { PREAMBLE, AFTER, PADDING, AFTER_LF, DASH, HEAD, DATA, EPILOGUE };

struct mg_multipart {
    struct mg_multipart_ops ops;
    char delimiter[DELIMITER_HEAD + BOUNDARY_MAX + 1];
    size_t len, matched; /* of the delimiter */
    size_t ghost;        /* of matched: the line end that stands before the body's first byte */
    enum state state;
    unsigned parts, padding;
    struct mg_buf head;
};

/* ---- header parameters ---- */

static bool is_boundary_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("'()+_,-./:=? ", c));
}

static struct mg_sv skip_space(struct mg_sv s)
{
    while (s.len && (*s.ptr == ' ' || *s.ptr == '\t'))
        s = mg_sv_from(s, 1);
    return s;
}

/* A quoted string's content: only an escaped quote is one, since clients send paths with backslashes. */
static bool take_quoted(struct mg_sv *s, struct mg_buf *out)
{
    size_t i = 1;
    for (; i < s->len && s->ptr[i] != '"'; i++) {
        if (s->ptr[i] == '\\' && i + 1 < s->len && s->ptr[i + 1] == '"')
            i++;
        (void)mg_buf_char(out, s->ptr[i]);
    }
    if (i >= s->len)
        return false;
    *s = mg_sv_from(*s, i + 1);
    return true;
}

/* The next "; name=value" of *s. False at the end and when it is malformed (*ret_bad). */
static bool next_param(struct mg_sv *s, struct mg_sv *name, struct mg_buf *value, bool *ret_bad)
{
    mg_buf_reset(value);
    *s = skip_space(*s);
    if (s->len == 0)
        return false;
    *ret_bad = true;
    if (*s->ptr != ';')
        return false;
    *s = skip_space(mg_sv_from(*s, 1));
    size_t eq = mg_sv_find(*s, '=');
    if (s->len == 0) { /* a semicolon at the end */
        *ret_bad = false;
        return false;
    }
    if (eq == 0 || eq == s->len)
        return false;
    *name = mg_sv_trim(mg_sv_n(s->ptr, eq));
    *s = skip_space(mg_sv_from(*s, eq + 1));
    if (s->len && *s->ptr == '"') {
        if (!take_quoted(s, value))
            return false;
    } else {
        size_t end = mg_sv_find(*s, ';');
        (void)mg_buf_sv(value, mg_sv_trim(mg_sv_n(s->ptr, end)));
        *s = mg_sv_from(*s, end);
    }
    *ret_bad = !mg_buf_ok(value);
    return !*ret_bad;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RFC 5987: charset'language'percent-encoded, UTF-8 only. */
static bool decode_extended(struct mg_sv v, struct mg_buf *out)
{
    struct mg_sv charset = mg_sv_split(&v, '\'');
    (void)mg_sv_split(&v, '\'');
    if (!mg_sv_eq_nocase(charset, MG_SV("utf-8")))
        return false;
    mg_buf_reset(out);
    for (size_t i = 0; i < v.len; i++) {
        int hi, lo;
        if (v.ptr[i] != '%') {
            (void)mg_buf_char(out, v.ptr[i]);
            continue;
        }
        if (i + 2 >= v.len || (hi = hex_digit(v.ptr[i + 1])) < 0 || (lo = hex_digit(v.ptr[i + 2])) < 0)
            return false;
        (void)mg_buf_char(out, (char)(hi << 4 | lo));
        i += 2;
    }
    return mg_buf_ok(out);
}

static bool has_control(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < ' ' || s.ptr[i] == 0x7f)
            return true;
    return false;
}

/* ---- a part's head ---- */

struct part_head {
    struct mg_buf name, filename, extended, type;
    bool has_disposition, has_name, has_filename, has_extended, has_type;
};

static void part_head_done(struct part_head *p)
{
    mg_buf_done(&p->name);
    mg_buf_done(&p->filename);
    mg_buf_done(&p->extended);
    mg_buf_done(&p->type);
}

static mg_rc bad(struct mg_err *err, const char *what)
{
    return mg_err_set(err, MG_EINVAL, "multipart/form-data: %s", what);
}

static bool keep(struct mg_buf *to, bool *has, struct mg_sv v)
{
    if (*has)
        return false;
    *has = true;
    return mg_buf_sv(to, v) == MG_OK;
}

static mg_rc read_disposition(struct part_head *p, struct mg_sv v, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf value = MG_BUF_INIT(MG_MULTIPART_HEAD_MAX);
    mg_auto(buf) struct mg_buf decoded = MG_BUF_INIT(MG_MULTIPART_HEAD_MAX);
    struct mg_sv name, rest = v;
    bool wrong = false, fits = true;
    size_t semi = mg_sv_find(rest, ';');
    if (p->has_disposition || !mg_sv_eq_nocase(mg_sv_trim(mg_sv_n(rest.ptr, semi)), MG_SV("form-data")))
        return bad(err, "each part needs one Content-Disposition: form-data header");
    p->has_disposition = true;
    rest = mg_sv_from(rest, semi);
    while (fits && next_param(&rest, &name, &value, &wrong)) {
        if (mg_sv_eq_nocase(name, MG_SV("name")))
            fits = keep(&p->name, &p->has_name, mg_buf_view(&value));
        else if (mg_sv_eq_nocase(name, MG_SV("filename")))
            fits = keep(&p->filename, &p->has_filename, mg_buf_view(&value));
        else if (mg_sv_eq_nocase(name, MG_SV("filename*")))
            fits = decode_extended(mg_buf_view(&value), &decoded) &&
                   keep(&p->extended, &p->has_extended, mg_buf_view(&decoded));
    }
    if (wrong || !fits)
        return bad(err, "a part's Content-Disposition is malformed, too long, or has a parameter twice");
    return MG_OK;
}

static mg_rc read_line(struct part_head *p, struct mg_sv line, struct mg_err *err)
{
    size_t colon = mg_sv_find(line, ':');
    if (colon == line.len || colon == 0)
        return bad(err, "a part's header line has no name");
    struct mg_sv name = mg_sv_n(line.ptr, colon), value = mg_sv_trim(mg_sv_from(line, colon + 1));
    if (mg_sv_eq_nocase(name, MG_SV("content-disposition")))
        return read_disposition(p, value, err);
    if (mg_sv_eq_nocase(name, MG_SV("content-type")) && !keep(&p->type, &p->has_type, value))
        return bad(err, "a part's Content-Type is too long or given twice");
    if (mg_sv_eq_nocase(name, MG_SV("content-transfer-encoding")) && !mg_sv_eq_nocase(value, MG_SV("binary")) &&
        !mg_sv_eq_nocase(value, MG_SV("8bit")) && !mg_sv_eq_nocase(value, MG_SV("7bit")))
        return bad(err, "a part has a Content-Transfer-Encoding; send its bytes as they are");
    return MG_OK;
}

static mg_rc check_text(struct mg_sv s, const char *what, struct mg_err *err)
{
    if (mg_utf8_valid(s, NULL) && !has_control(s))
        return MG_OK;
    return mg_err_set(err, MG_EINVAL, "multipart/form-data: a part's %s must be UTF-8 without control characters",
                      what);
}

static mg_rc begin_part(struct mg_multipart *m, struct part_head *p, struct mg_err *err)
{
    struct mg_part part = {.name = mg_buf_view(&p->name), .content_type = mg_buf_view(&p->type)};
    if (!p->has_disposition || !p->has_name || part.name.len == 0)
        return bad(err, "a part has no name in its Content-Disposition");
    if (p->has_extended || p->has_filename)
        part.filename = mg_buf_view(p->has_extended ? &p->extended : &p->filename);
    mg_rc rc = check_text(part.name, "name", err);
    if (rc >= 0 && part.filename.ptr)
        rc = check_text(part.filename, "filename", err);
    if (rc >= 0)
        rc = check_text(part.content_type, "Content-Type", err);
    return rc < 0 ? rc : m->ops.part(m->ops.ctx, &part, err);
}

static mg_rc read_head(struct mg_multipart *m, struct mg_err *err)
{
    struct part_head p = {
        .name = MG_BUF_INIT(NAME_MAX_BYTES),
        .filename = MG_BUF_INIT(FILENAME_MAX_BYTES),
        .extended = MG_BUF_INIT(FILENAME_MAX_BYTES),
        .type = MG_BUF_INIT(NAME_MAX_BYTES),
    };
    struct mg_sv rest = mg_buf_view(&m->head);
    mg_rc rc = MG_OK;
    rest.len -= 2; /* the empty line */
    while (rc >= 0 && rest.len) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        if (line.len == 0 || line.ptr[line.len - 1] != '\r')
            rc = bad(err, "a part's header line does not end in CRLF");
        else
            rc = read_line(&p, mg_sv_n(line.ptr, line.len - 1), err);
    }
    if (rc >= 0)
        rc = begin_part(m, &p, err);
    part_head_done(&p);
    mg_buf_reset(&m->head);
    return rc;
}

/* ---- the body ---- */

mg_rc mg_multipart_new(struct mg_sv content_type, const struct mg_multipart_ops *ops, struct mg_multipart **ret,
                       struct mg_err *err)
{
    mg_auto(buf) struct mg_buf value = MG_BUF_INIT(BOUNDARY_MAX);
    mg_auto(buf) struct mg_buf boundary = MG_BUF_INIT(BOUNDARY_MAX);
    size_t semi = mg_sv_find(content_type, ';');
    struct mg_sv name, rest = mg_sv_from(content_type, semi);
    bool wrong = false, has = false, fits = true;
    if (!mg_sv_eq_nocase(mg_sv_trim(mg_sv_n(content_type.ptr, semi)), MG_SV("multipart/form-data")))
        return mg_err_set(err, MG_EMEDIA, "content-type: this endpoint takes multipart/form-data");
    while (fits && next_param(&rest, &name, &value, &wrong))
        if (mg_sv_eq_nocase(name, MG_SV("boundary")))
            fits = keep(&boundary, &has, mg_buf_view(&value));
    struct mg_sv b = mg_buf_view(&boundary);
    fits = fits && !wrong && b.len && b.ptr[b.len - 1] != ' ';
    for (size_t i = 0; i < b.len; i++)
        fits = fits && is_boundary_char(b.ptr[i]);
    if (!fits)
        return mg_err_set(err, MG_EINVAL,
                          "content-type: multipart/form-data needs one boundary of 1 to %d characters as RFC 2046 "
                          "allows them",
                          BOUNDARY_MAX);
    struct mg_multipart *m = mg_xcalloc(1, sizeof(*m));
    m->ops = *ops;
    memcpy(m->delimiter, "\r\n--", DELIMITER_HEAD);
    memcpy(m->delimiter + DELIMITER_HEAD, b.ptr, b.len);
    m->len = DELIMITER_HEAD + b.len;
    m->matched = m->ghost = 2; /* as if a line had ended before the first byte */
    m->head = MG_BUF_INIT(MG_MULTIPART_HEAD_MAX);
    *ret = m;
    return MG_OK;
}

void mg_multipart_free(struct mg_multipart *m)
{
    if (!m)
        return;
    mg_buf_done(&m->head);
    free(m);
}

static mg_rc content(struct mg_multipart *m, const char *p, size_t n, struct mg_err *err)
{
    if (n == 0 || m->state != DATA)
        return MG_OK;
    return m->ops.data(m->ops.ctx, mg_sv_n(p, n), err);
}

/* Content up to the delimiter. *ret_used bytes are dealt with. */
static mg_rc find_delimiter(struct mg_multipart *m, struct mg_sv in, size_t *ret_used, struct mg_err *err)
{
    size_t at = 0, carried = m->matched; /* of the delimiter, matched in earlier pieces: not in this one */
    mg_rc rc = MG_OK;
    while (at < in.len && m->matched < m->len) {
        if (m->matched == 0) {
            const char *cr = memchr(in.ptr + at, '\r', in.len - at);
            at = cr ? (size_t)(cr - in.ptr) + 1 : in.len;
            m->matched = cr != NULL;
        } else if (in.ptr[at] == m->delimiter[m->matched]) {
            m->matched++;
            at++;
        } else {
            if (carried)
                rc = content(m, m->delimiter + m->ghost, carried - m->ghost, err);
            if (rc < 0)
                return rc;
            carried = m->ghost = 0;
            m->matched = 0;
        }
    }
    *ret_used = at;
    size_t own = m->matched > carried ? m->matched - carried : 0; /* of this piece, perhaps not content */
    if (carried && m->matched >= carried)
        return MG_OK; /* nothing but the delimiter so far */
    return content(m, in.ptr, at - own, err);
}

static mg_rc delimited(struct mg_multipart *m, struct mg_err *err)
{
    bool open = m->state == DATA;
    m->state = AFTER;
    m->matched = m->ghost = 0;
    m->padding = 0;
    return open ? m->ops.end(m->ops.ctx, err) : MG_OK;
}

/* The characters behind a boundary. */
static mg_rc after_char(struct mg_multipart *m, char c, struct mg_err *err)
{
    switch (m->state) {
    case AFTER:
        if (c == '-') {
            m->state = DASH;
            return MG_OK;
        }
        m->state = PADDING;
        return after_char(m, c, err);
    case PADDING:
        if (c == '\r')
            m->state = AFTER_LF;
        else if ((c != ' ' && c != '\t') || ++m->padding > LINE_PADDING_MAX)
            return bad(err, "a boundary is followed by something else than the end of its line");
        return MG_OK;
    case AFTER_LF:
        if (c != '\n')
            return bad(err, "a boundary's line does not end in CRLF");
        if (++m->parts > MG_MULTIPART_PARTS_MAX)
            return mg_err_set(err, MG_EINVAL, "multipart/form-data: at most %d parts are allowed",
                              MG_MULTIPART_PARTS_MAX);
        m->state = HEAD;
        return MG_OK;
    case DASH:
        if (c != '-')
            return bad(err, "the last boundary is malformed");
        m->state = EPILOGUE;
        return MG_OK;
    case PREAMBLE:
    case HEAD:
    case DATA:
    case EPILOGUE:
        break;
    }
    return MG_OK;
}

static bool head_ends(const struct mg_buf *b)
{
    struct mg_sv s = mg_buf_view(b);
    return mg_sv_ends(s, "\r\n\r\n") || mg_sv_eqz(s, "\r\n");
}

static mg_rc head_char(struct mg_multipart *m, char c, struct mg_err *err)
{
    if (mg_buf_char(&m->head, c) < 0)
        return mg_err_set(err, MG_EINVAL, "multipart/form-data: a part's headers have more than %d bytes",
                          MG_MULTIPART_HEAD_MAX);
    if (c != '\n' || !head_ends(&m->head))
        return MG_OK;
    m->state = DATA;
    m->matched = 0;
    return read_head(m, err);
}

mg_rc mg_multipart_feed(struct mg_multipart *m, struct mg_sv in, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    while (rc >= 0 && in.len) {
        size_t used = 1;
        switch (m->state) {
        case PREAMBLE:
        case DATA:
            rc = find_delimiter(m, in, &used, err);
            if (rc >= 0 && m->matched == m->len)
                rc = delimited(m, err);
            break;
        case HEAD:
            rc = head_char(m, *in.ptr, err);
            break;
        case AFTER:
        case PADDING:
        case AFTER_LF:
        case DASH:
            rc = after_char(m, *in.ptr, err);
            break;
        case EPILOGUE:
            used = in.len;
            break;
        }
        in = mg_sv_from(in, used);
    }
    return rc;
}

mg_rc mg_multipart_finish(struct mg_multipart *m, struct mg_err *err)
{
    if (m->state == EPILOGUE)
        return MG_OK;
    return bad(err, "the body ends before its last boundary; send it whole");
}
